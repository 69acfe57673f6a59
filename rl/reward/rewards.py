"""Parses `reward.function` and `eval.reward`, and runs their terms in workers.

Both settings are sums of terms such as "verifier + 0.1*my_reward:brevity". The first
term decides whether a completion is correct. If one of the terms cannot judge a
completion, the completion has no verdict.
"""

import contextlib
import dataclasses
import math
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from configs import base
from rl.reward import function as functions
from rl.reward.function import LARGEST, Fault, describe_item
from rl.reward.verifier import Reward, Score, verifier_reward
from rl.types import Problem
from rl.verifier import Verdict, VerifierPool
from rl.verifier.pool import ENDED, LATE, Lost, Workers

VERIFIER = "verifier"
ADVICE = "make the function faster, or raise config.reward.timeout"
_TERM = re.compile(
    r"\s*([+-]?)\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*\*\s*)?(verifier(?![\w.:])|[\w./][\w./-]*:\w[\w.]*)\s*"
)


class RewardError(ValueError):
    """Signals that a reward function cannot be used, or returns an invalid reward."""


class Term(NamedTuple):
    weight: float
    name: str  # "verifier" or "module:function"


def parse(function: str, *, key: str) -> tuple[Term, ...]:
    """Parses a reward; raises ValueError if it is not a sum of different terms."""
    terms: list[Term] = []
    at = 0
    while at < len(function) or not terms:
        match = _TERM.match(function, at)
        if match is None or (terms and not match[1]):
            wrong = "lacks a sign" if match else "is not a term"
            raise ValueError(
                f"{key}={function!r}: {function[at:]!r} {wrong}; write"
                " 'verifier', 'module:function', or a sum such as"
                " 'verifier + 0.1*module:function'"
            )
        sign = -1.0 if match[1] == "-" else 1.0
        terms.append(Term(sign * float(match[2] or 1), match[3]))
        at = match.end()
    names = [term.name for term in terms]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"{key}={function!r}: {twice[0]} occurs twice; add its weights instead"
        )
    return tuple(terms)


def _warn(reason: str) -> None:
    print(f"WARNING: no verdict: {reason}", file=sys.stderr, flush=True)


class Rewards:
    """Builds reward functions, and owns the worker processes that run them.

    Raises ValueError if a reward is not a sum of terms, or a function cannot be used.

    Args:
      formulas: values of `reward.function` and `eval.reward` by config key.
      settings: `config.reward`. A call that times out or ends its worker is tried once
        more.
      advice: what to do about a call that times out, for messages.
      on_lost: receives a message if every attempt to call a user function timed out or
        ended its worker.
    """

    def __init__(
        self,
        formulas: Mapping[str, str],
        settings: base.Reward,
        *,
        advice: str = ADVICE,
        on_lost: Callable[[str], None] = _warn,
    ):
        s = self._settings = settings
        late = f"{s.timeout:g} s; {advice}"
        self._hints = {LATE: late, ENDED: "correct the function"}
        self._on_lost = on_lost
        self._terms = {key: parse(text, key=key) for key, text in formulas.items()}
        own: dict[str, str] = {}
        for key, terms in self._terms.items():
            for term in terms:
                own.setdefault(term.name, key)
        verifies = own.pop(VERIFIER, None)
        self._lock = threading.Lock()
        self._judged = self._lost = 0
        self._pool: VerifierPool | None = None
        self._workers: Workers | None = None
        self._by_name: dict[str, Reward] = {}
        # SHA-256 of each file of a user function, by function and file.
        self.code: dict[str, Mapping[str, str]] = {}
        with contextlib.ExitStack() as opened:
            if verifies:
                self._pool = opened.enter_context(
                    VerifierPool(s.workers, s.timeout, literal=s.literal, after=s.after)
                )
                self._by_name[VERIFIER] = verifier_reward(self._pool.judge)
            if own:
                self._workers = Workers(
                    s.workers,
                    s.timeout,
                    f"{functions.__name__}:{functions.open_function.__name__}",
                    preload=[name.partition(":")[0] for name in own],
                    confined=False,
                )
                opened.callback(self._workers.close)
                for name, key in own.items():
                    self._by_name[name] = self._function(self._workers, name, key)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Ends all worker processes."""
        self._opened.close()

    @property
    def counts(self) -> Mapping[str, int]:
        """Returns counts of completions, replaced workers and verdicts by rule."""
        counts = dict(self._pool.counts if self._pool else {"replaced": 0, "lost": 0})
        with self._lock:
            counts["judged"] = self._judged
            counts["lost"] += self._lost
        if self._workers:
            counts["replaced"] += self._workers.replaced
        return counts

    def reward(self, key: str) -> Reward:
        """Returns the reward function for `key`, a key of `formulas`."""
        terms = self._terms[key]

        def sum_terms(
            groups: Sequence[Sequence[str]], problems: Sequence[Problem]
        ) -> list[list[Score]]:
            with self._lock:
                self._judged += sum(map(len, groups))
            by_term = [self._by_name[term.name](groups, problems) for term in terms]
            return [
                [_sum(key, terms, scores) for scores in zip(*of_group, strict=True)]
                for of_group in zip(*by_term, strict=True)
            ]

        return sum_terms

    def _function(self, workers: Workers, name: str, key: str) -> Reward:
        named, hints = f"{key}={name!r}", self._hints
        opened = (name, key, self._settings.right_from, self._settings.after or None)
        # One request per worker, so that each worker hashes the file when it imports
        # it. After an edit, a worker with the old function still has the old hash.
        requests = [((*opened, None, None), (None,))] * workers.workers
        (form,), *_ = workers.map(requests)
        if isinstance(form, Fault):
            raise RewardError(form.text)
        if isinstance(form, Lost):
            raise RewardError(
                f"{named}: cannot be imported: it {form.reason} ({hints[form.reason]})"
            )

        self.code[name] = form.files

        def call_function(
            groups: Sequence[Sequence[str]], problems: Sequence[Problem]
        ) -> list[list[Score]]:
            calls = [
                [tuple(texts)] if form.grouped else [(text,) for text in texts]
                for texts in groups
            ]
            requests = [
                ((*opened, form.files, problem), of_problem)
                for problem, of_problem in zip(problems, calls, strict=True)
            ]
            scores: list[list[Score]] = [[] for _ in groups]
            for i, results in enumerate(workers.map(requests)):
                for call, result in zip(calls[i], results, strict=True):
                    if isinstance(result, Fault):
                        raise RewardError(result.text)
                    if isinstance(result, Lost):
                        reason = (
                            f"{named}: {form.place}: {result.reason}"
                            f" ({hints[result.reason]});"
                            f" {describe_item(problems[i], call[0])}"
                        )
                        self._on_lost(reason)
                        with self._lock:
                            self._lost += len(call)
                        lost = Score.of(Verdict(None, None, "lost", reason))
                        result = [lost] * len(call)
                    scores[i] += result
            return scores

        return call_function


def uses_verifier(formula: str, *, key: str) -> bool:
    return any(term.name == VERIFIER for term in parse(formula, key=key))


def try_out(
    formulas: Mapping[str, str],
    problem: Problem,
    settings: base.Reward,
    *,
    advice: str = ADVICE,
) -> Mapping[str, Mapping[str, str]]:
    """Calls the user functions of rewards, to find errors; returns `Rewards.code`.

    The functions judge two completions of `problem`: its first gold in a box, and an
    empty text. Raises ValueError if a function cannot be loaded, fails, breaks its
    contract, takes too long or ends its worker.
    """
    own = {}
    for key, formula in formulas.items():
        names = [t.name for t in parse(formula, key=key) if t.name != VERIFIER]
        if names:
            own[key] = " + ".join(names)
    if not own:
        return {}

    def refuse(reason: str) -> None:
        raise RewardError(reason)

    one = dataclasses.replace(settings, workers=1)
    opened = Rewards(own, one, advice=advice, on_lost=refuse)
    with contextlib.closing(opened) as rewards:
        texts = [f"\\boxed{{{problem.answers[0]}}}", ""]
        for key in own:
            rewards.reward(key)([texts], [problem])
        return rewards.code


def _sum(key: str, terms: Sequence[Term], scores: Sequence[Score]) -> Score:
    """Returns the weighted sum of one completion's scores.

    If a term could not judge, the verdict is that of the first such term; otherwise
    that of the first term. If there are several terms, the components include the
    unweighted reward of each.
    """
    if len(terms) == 1 and terms[0].weight == 1:
        return scores[0]
    components: dict[str, float] = {}
    for term, score in zip(terms, scores, strict=True):
        own = {term.name: score.reward} if len(terms) > 1 else {}
        for name, part in {**own, **score.components}.items():
            if name in components:
                raise RewardError(
                    f"{key}: two parts of the sum are called {name!r}; in your"
                    " reward function, rename that component"
                )
            components[name] = part
    unjudged = [s.verdict for s in scores if s.verdict.correct is None]
    reward = math.fsum(t.weight * s.reward for t, s in zip(terms, scores, strict=True))
    if abs(reward) > LARGEST:
        formula = " + ".join(f"{t.weight:g}*{t.name}" for t in terms)
        raise RewardError(
            f"{key}={formula!r} is {reward:g}: must be at most {LARGEST:,} in"
            " magnitude; lower its weights"
        )
    verdict = unjudged[0] if unjudged else scores[0].verdict
    return Score(reward=reward, verdict=verdict, components=components)
