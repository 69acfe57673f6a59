"""Servers that decode many completions together, in simulated time.

Each has slots and its own clock. A step of a server gives a token to every slot that is
taken, and takes as long as reading the weights and what all of them have in the cache.
A slot whose completion ends is taken by the next that waits, at the least busy server,
as `rollout.vllm.fleet` does it.
"""

import bisect
import collections
import dataclasses
import heapq
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """What decodes: one sampler over all devices, or each vLLM server for itself.

    Attributes:
      fixed: seconds of a server's step whatever is live: weights, reductions.
      position: seconds of it besides for each position in the cache.
      slots: completions that one decodes together.
      samplers: that share the completions.
      prefill: seconds of a position of a prompt, or of a text that is read anew.
      how: the sampler's speed is known: computed, measured or given.
    """

    fixed: float
    position: float
    slots: int
    samplers: int
    prefill: float
    how: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """A completion that is there.

    Attributes:
      key: as it was asked for.
      tokens: by the version that drew them, in order.
    """

    key: int
    tokens: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    key: int
    prompt: int
    tokens: int


class _Server:
    """One of them: `steps` counts its steps, by which completions begin and end."""

    def __init__(self, sampling: Sampling, prompt: float):
        self._sampling, self._prompt = sampling, prompt
        self.clock, self.busy, self.filled, self.drawn = 0.0, 0.0, 0.0, 0
        self.live: list[tuple[int, int, int]] = []  # end, key, begin, by steps
        self._steps, self._positions = 0, 0.0
        self._seen: set[int] = set()
        self._versions = [(0, 0)]  # since which step

    def _seconds(self, steps: int) -> float:
        """Of so many steps from now on; each lengthens all texts by a position."""
        s, live = self._sampling, len(self.live)
        read = steps * self._positions + live * steps * (steps - 1) / 2
        return steps * s.fixed + s.position * read

    @property
    def ends(self) -> float:
        """When the next completion does."""
        if not self.live:
            return math.inf
        return self.clock + self._seconds(self.live[0][0] - self._steps)

    def decode(self, until: float) -> None:
        """Whole steps up to a moment or beyond, and not beyond a completion's end."""
        if until <= self.clock:
            return
        if not self.live:
            self.clock = until
            return
        s, live = self._sampling, len(self.live)
        # fixed k + position (positions k + live k (k - 1) / 2) = until - clock
        square = s.position * live / 2
        line = s.fixed + s.position * self._positions - square
        root = math.sqrt(line**2 + 4 * square * (until - self.clock))
        steps = 2 * (until - self.clock) / (line + root)
        self._decode(min(math.ceil(steps - 1e-9), self.live[0][0] - self._steps))

    def _decode(self, steps: int) -> None:
        seconds, live = self._seconds(steps), len(self.live)
        self._spend(seconds)
        self.filled += seconds * live
        self.drawn += steps * live
        self._steps += steps
        self._positions += steps * live

    def _spend(self, seconds: float) -> None:
        self.clock += seconds
        self.busy += seconds

    def begin(self, asked: _Asked, now: float) -> None:
        self.decode(now)
        if asked.prompt not in self._seen:
            self._seen.add(asked.prompt)
            self._spend(self._prompt * self._sampling.prefill)
        self._positions += self._prompt
        heapq.heappush(self.live, (self._steps + asked.tokens, asked.key, self._steps))

    def end(self) -> Ended:
        """Decodes up to the next completion's end."""
        self._decode(self.live[0][0] - self._steps)
        end, key, begin = heapq.heappop(self.live)
        self._positions -= self._prompt + end - begin
        return Ended(key, self._drawn(begin, end))

    def _drawn(self, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        first = bisect.bisect_right(self._versions, (begin, math.inf)) - 1
        spans, following = self._versions[first:], self._versions[first + 1 :]
        stops = [min(step, end) for step, _ in following] + [end]
        found = [
            (version, stop - max(since, begin))
            for (since, version), stop in zip(spans, stops, strict=True)
        ]
        return tuple((version, count) for version, count in found if count > 0)

    def rest(self, until: float) -> None:
        self.clock = max(self.clock, until)

    def switch(self, version: int, seconds: float) -> None:
        """Stands still, then goes on under other weights, all texts read anew."""
        self.clock += seconds
        self._spend(self._positions * self._sampling.prefill)
        self._seen.clear()
        self._versions.append((self._steps, version))


class Servers:
    """All of them, and what waits for a slot; `now` is as far as anything was seen."""

    def __init__(self, sampling: Sampling, *, prompt: float):
        """
        Args:
          sampling: how fast each is.
          prompt: tokens of a prompt.
        """
        self.now = 0.0
        self._servers = [_Server(sampling, prompt) for _ in range(sampling.samplers)]
        self._slots = sampling.slots
        self._waiting: collections.deque[_Asked] = collections.deque()
        self._switches: collections.deque[tuple[float, float, int]] = (
            collections.deque()
        )

    @property
    def busy(self) -> float:
        """Seconds of work, the mean over servers."""
        return sum(s.busy for s in self._servers) / len(self._servers)

    @property
    def filled(self) -> float:
        """Seconds for which slots were taken, the mean over all slots."""
        slots = len(self._servers) * self._slots
        return sum(s.filled for s in self._servers) / slots

    @property
    def drawn(self) -> int:
        """Tokens, of completions that have not ended too."""
        return sum(s.drawn for s in self._servers)

    def ask(self, prompt: int, keys: Sequence[int], tokens: Sequence[int]) -> None:
        """Asks for completions of a prompt, which will have so many tokens."""
        self._waiting += map(_Asked, keys, [prompt] * len(keys), tokens)

    def next(self) -> Ended:
        """Goes on to the next completion that ends."""
        while True:
            self._fill()
            server = min(self._servers, key=lambda s: s.ends)
            if self._switches and self._switches[0][0] < server.ends:
                self._switch()
                continue
            ended = server.end()
            self.now = max(self.now, server.clock)
            return ended

    def _fill(self) -> None:
        while self._waiting:
            server = min(self._servers, key=lambda s: len(s.live))
            if len(server.live) == self._slots:
                return
            server.begin(self._waiting.popleft(), self.now)

    def rest(self, until: float) -> None:
        """Draws nothing until a moment; what has begun goes on from there."""
        if until <= self.now:
            return
        for server in self._servers:
            server.decode(self.now)
        while self._switches and self._switches[0][0] < until:
            self._switch(resting=True)
        for server in self._servers:
            server.rest(until)
        self.now = until

    def publish(self, version: int, *, at: float, pause: float) -> None:
        """All will stand still from `at` on for `pause` seconds, and serve `version`.

        Args:
          version: higher than those before.
          at: not before `now`, nor before an earlier one.
          pause: in which nothing is drawn.
        """
        self._switches.append((at, pause, version))

    def _switch(self, *, resting: bool = False) -> None:
        at, pause, version = self._switches.popleft()
        for server in self._servers:
            if resting:
                server.rest(at)
            else:
                server.decode(at)
            server.switch(version, pause)

    def withdraw(self) -> set[int]:
        """Takes back what waits for a slot; its keys."""
        keys = {asked.key for asked in self._waiting}
        self._waiting.clear()
        return keys
