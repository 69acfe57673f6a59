"""One evaluation on disk: its conditions, every completion, and how it resumes.

    DIR/conditions.json     what was asked of which model, and how
    DIR/problems/           of benchmarks that are not among the known ones
    DIR/completions.jsonl   one row per completion, written as each ends
    DIR/verdicts.jsonl      one row per completion: answer found, right or wrong

Completions are asked for in chunks of problems. A chunk's seed depends on the run's
seed, the benchmark and the chunk alone, so that a restart draws what the first start
would have drawn, and keeps what is already there.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rl.evaluate import Decode, Drawn, Scored, draw
from rl.templates import check_template
from rl.types import Problem
from rollout.types import Sampler, SamplingParams


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What one asks of a model; two results compare where these agree.

    Attributes:
      template: see `rl.templates.encode_prompt`.
      samples: completions per problem.
      temperature: 0 is greedy.
      top_p: nucleus mass.
      max_tokens: most tokens of a completion.
      context: most tokens of prompt and completion together.
      seed: of all draws.
      chunk: completions asked for in one call of the sampler.
    """

    template: str
    samples: int
    temperature: float
    top_p: float
    max_tokens: int
    context: int
    seed: int = 0
    chunk: int = 1024

    def __post_init__(self):
        check_template(self.template)
        for key in ("samples", "max_tokens", "context", "chunk"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)}: must be at least 1")
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(
                f"samples={self.samples} at temperature 0 are {self.samples} times the "
                "same completion"
            )


# "paper": understand-r1-zero's harness (arXiv 2503.20783), whose base row the paper
# prints. "avg32": sampling as DeepSeek-R1 is evaluated (arXiv 2501.12948).
PRESETS = {
    "paper": Conditions(
        template="none",
        samples=1,
        temperature=0.0,
        top_p=1.0,
        max_tokens=3000,
        context=4096,
    ),
    "qwen_math": Conditions(
        template="qwen_math",
        samples=1,
        temperature=0.0,
        top_p=1.0,
        max_tokens=3000,
        context=4096,
    ),
    "avg32": Conditions(
        template="qwen_math",
        samples=32,
        temperature=0.6,
        top_p=0.95,
        max_tokens=3000,
        context=4096,
    ),
}


@contextlib.contextmanager
def opened(folder: pathlib.Path) -> Iterator[None]:
    """Holds the folder for one process; a second is refused.

    Raises:
      BlockingIOError: another process evaluates into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{folder}: another evaluation writes into it"
            ) from None
        yield


def record_conditions(folder: pathlib.Path, conditions: Mapping[str, Any]) -> None:
    """Writes conditions.json, or checks that a started evaluation has the same.

    Benchmarks may join later; whatever else differs would mix two evaluations.

    Raises:
      ValueError: naming the first key that differs, with both values.
    """
    wanted = json.loads(json.dumps(conditions))
    kept = read_conditions(folder)
    if kept is not None:
        benchmarks = kept["benchmarks"] | wanted["benchmarks"]
        for key, old, new in differences(
            kept, wanted | {"benchmarks": kept["benchmarks"] | wanted["benchmarks"]}
        ):
            if not (key.startswith("benchmarks.") and old is None):
                raise ValueError(
                    f"{folder} was begun with {key}={old!r}, now {new!r}: choose "
                    "another --out, or delete it"
                )
        wanted["benchmarks"] = benchmarks
    replace_file(folder / "conditions.json", json.dumps(wanted, indent=2) + "\n")


def read_conditions(folder: pathlib.Path) -> dict[str, Any] | None:
    """The conditions of an evaluation, None where none were recorded."""
    path = folder / "conditions.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def problems_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where the problems of a benchmark that is not a known one are kept."""
    return folder / "problems" / f"{name}.jsonl"


def write_problems(
    folder: pathlib.Path, name: str, problems: Sequence[Problem]
) -> None:
    """Keeps the problems, so that the folder can be judged wherever it goes."""
    path = problems_file(folder, name)
    path.parent.mkdir(exist_ok=True)
    rows = [json.dumps(dataclasses.asdict(p), ensure_ascii=False) for p in problems]
    replace_file(path, "".join(row + "\n" for row in rows))


def draw_missing(
    folder: pathlib.Path,
    benchmark: str,
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    *,
    conditions: Conditions,
    stop_token_ids: tuple[int, ...],
    sampler: Sampler,
    decode: Decode,
    on_kept: Callable[[Drawn], None] = lambda drawn: None,
) -> None:
    """Draws what completions.jsonl does not hold yet, and writes each as it ends.

    A prompt that leaves fewer than `max_tokens` in the context gets what is left.
    """
    present = {
        (drawn.id, drawn.sample)
        for drawn in read_completions(folder).get(benchmark, ())
    }
    _end_last_row(folder / "completions.jsonl")
    with open(folder / "completions.jsonl", "a", encoding="utf-8") as out:

        def keep(drawn: Drawn) -> None:
            if (drawn.id, drawn.sample) in present:
                return
            present.add((drawn.id, drawn.sample))
            row = {"benchmark": benchmark} | dataclasses.asdict(drawn)
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            out.flush()
            on_kept(drawn)

        for number, (budget, chunk) in enumerate(_chunks(prompts, conditions)):
            lacking = [
                i
                for i in chunk
                for sample in range(conditions.samples)
                if (problems[i].id, sample) not in present
            ]
            if not lacking:
                continue
            # Greedy draws need no seed, so only what is missing is asked for again.
            asked = lacking if conditions.temperature == 0 else chunk
            draw(
                [problems[i] for i in asked],
                [prompts[i] for i in asked],
                sampler=sampler,
                params=SamplingParams(
                    n=conditions.samples,
                    max_tokens=budget,
                    temperature=conditions.temperature,
                    top_p=conditions.top_p,
                    stop_token_ids=stop_token_ids,
                ),
                seed=_chunk_seed(conditions.seed, benchmark, number),
                decode=decode,
                on_drawn=keep,
            )


def check_prompts(
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    conditions: Conditions,
    max_positions: int,
) -> int:
    """How many prompts leave less than `max_tokens`; refuses what cannot be asked.

    Raises:
      ValueError: a context beyond the model's positions, or a prompt that fills it.
    """
    if conditions.context > max_positions:
        raise ValueError(
            f"context={conditions.context} exceeds the model's {max_positions} "
            "positions"
        )
    for problem, prompt in zip(problems, prompts, strict=True):
        if len(prompt) >= conditions.context:
            raise ValueError(
                f"problem {problem.id}: its prompt of {len(prompt)} tokens fills the "
                f"context of {conditions.context}"
            )
    room = conditions.context - conditions.max_tokens
    return sum(len(prompt) > room for prompt in prompts)


def read_completions(folder: pathlib.Path) -> dict[str, list[Drawn]]:
    """Kept completions by benchmark. A last row cut short by a kill does not count.

    Raises:
      ValueError: naming the row that is malformed or there twice.
    """
    path = folder / "completions.jsonl"
    if not path.exists():
        return {}
    kept: dict[str, dict[tuple[str, int], Drawn]] = {}
    for number, row in _rows(path):
        try:
            drawn = Drawn(
                id=row["id"],
                sample=row["sample"],
                completion=row["completion"],
                tokens=row.get("tokens"),
                finish_reason=row.get("finish_reason"),
            )
            benchmark = row["benchmark"]
        except KeyError as error:
            raise ValueError(f"{path}:{number}: no field {error}") from None
        if not isinstance(drawn.completion, str):
            raise ValueError(f"{path}:{number}: completion must be a text")
        of_benchmark = kept.setdefault(benchmark, {})
        if (drawn.id, drawn.sample) in of_benchmark:
            raise ValueError(
                f"{path}:{number}: {benchmark} {drawn.id} sample {drawn.sample} is "
                "there twice"
            )
        of_benchmark[drawn.id, drawn.sample] = drawn
    return {name: list(rows.values()) for name, rows in kept.items()}


def write_verdicts(
    folder: pathlib.Path, scored: Mapping[str, Sequence[Scored]]
) -> None:
    """Writes verdicts.jsonl whole: a reader never sees half of a judging."""
    rows = [
        {
            "benchmark": benchmark,
            "id": s.drawn.id,
            "sample": s.drawn.sample,
            "answer": s.answer,
            "correct": s.correct,
        }
        for benchmark, of_benchmark in scored.items()
        for s in of_benchmark
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    replace_file(folder / "verdicts.jsonl", text)


def read_verdicts(folder: pathlib.Path) -> dict[str, dict[str, list[bool]]]:
    """Verdicts by benchmark and problem id, in the order of samples.

    Raises:
      FileNotFoundError: the evaluation was never judged to its end.
    """
    path = folder / "verdicts.jsonl"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder}: no verdicts.jsonl; finish the evaluation, or --rescore it"
        )
    verdicts: dict[str, dict[str, dict[int, bool]]] = {}
    for _, row in _rows(path):
        of_problem = verdicts.setdefault(row["benchmark"], {}).setdefault(row["id"], {})
        of_problem[row["sample"]] = row["correct"]
    return {
        benchmark: {
            id: [by_sample[sample] for sample in sorted(by_sample)]
            for id, by_sample in of_benchmark.items()
        }
        for benchmark, of_benchmark in verdicts.items()
    }


def checkpoint_hash(folder: pathlib.Path) -> str:
    """SHA-256 over the config and all weight files of a Hugging Face folder.

    Raises:
      FileNotFoundError: it has no weights.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise FileNotFoundError(f"{folder}: no .safetensors file in it")
    digest = hashlib.sha256()
    for path in [folder / "config.json", *weights]:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _chunks(
    prompts: Sequence[Sequence[int]], conditions: Conditions
) -> list[tuple[int, list[int]]]:
    """(token budget, problem indices): one budget and at most `chunk` completions."""
    by_budget: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        budget = min(conditions.max_tokens, conditions.context - len(prompt))
        by_budget.setdefault(budget, []).append(i)
    size = max(1, conditions.chunk // conditions.samples)
    return [
        (budget, indices[start : start + size])
        for budget, indices in sorted(by_budget.items(), reverse=True)
        for start in range(0, len(indices), size)
    ]


def _chunk_seed(seed: int, benchmark: str, number: int) -> int:
    entropy = np.random.SeedSequence([seed, zlib.crc32(benchmark.encode()), number])
    return int(entropy.generate_state(1)[0] >> 1)


def _end_last_row(path: pathlib.Path) -> None:
    """Makes a file ready for the next row: completes the last one, or cuts it off."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        data = file.read()
        start = data.rfind(b"\n") + 1
        if start == len(data):
            return
        if _is_json(data[start:]):
            file.write(b"\n")
        else:
            file.truncate(start)


def _rows(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") and not _is_json(line):
                return
            try:
                yield number, json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}:{number}: not UTF-8 ({error.reason})"
                ) from None
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not JSON ({error.msg})") from None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8"))
    except ValueError:
        return False
    return True


def replace_file(path: pathlib.Path, text: str) -> None:
    """Replaces a file in one step."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            inner = f"{key}.{name}" if key else name
            yield from differences(old.get(name), new.get(name), inner)
    elif old != new:
        yield key, old, new
