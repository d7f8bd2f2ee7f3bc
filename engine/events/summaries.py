"""Many numbers in few: percentiles of values, and the means of a level, in bounded memory.

Two kinds of mean are told apart: by time, each state counting as long as it lasted, idle time
included; and by step, each engine step counting once. Of no values there is no summary: None.
"""

import math

import msgspec

_STEP = math.log(1.01)
_ZERO = -(1 << 31)


class Percentiles(msgspec.Struct, frozen=True):
    """Of `count` values: mean and max are exact, the others within 0.5 % of the value of that rank."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class Level(msgspec.Struct, frozen=True):
    """A share or a ratio that changes over a run."""

    mean_by_time: float
    mean_by_step: float
    min: float
    max: float


class Values:
    """Numbers for percentiles, counted by size in steps of 1 %: bounded memory, however many come."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._count = 0
        self._sum = 0.0
        self._most = -math.inf

    def add(self, value: float | None, times: int = 1) -> None:
        """Count a value so many times; None is not counted."""
        if value is None:
            return
        size = round(math.log(value) / _STEP) if value > 0 else _ZERO
        self._counts[size] = self._counts.get(size, 0) + times
        self._count += times
        self._sum += value * times
        self._most = max(self._most, value)

    def summary(self) -> Percentiles | None:
        if not self._count:
            return None
        ranks = [math.ceil(share * self._count) for share in (0.5, 0.9, 0.99)]
        found, passed = [], 0
        for size in sorted(self._counts):
            passed += self._counts[size]
            while len(found) < len(ranks) and passed >= ranks[len(found)]:
                value = 0.0 if size == _ZERO else math.exp(size * _STEP)
                found.append(min(value, self._most))
        return Percentiles(self._count, self._sum / self._count, *found, self._most)


class LevelOverTime:
    """A level that is set at records' ends; while it is None, it has no value to average."""

    def __init__(self) -> None:
        self.now: float | None = None
        self._by_time = self._seconds = self._by_step = 0.0
        self._steps = 0
        self._least, self._most = math.inf, -math.inf

    def last(self, seconds: float) -> None:
        """It kept its value for so long."""
        if self.now is not None:
            self._by_time += self.now * seconds
            self._seconds += seconds

    def set(self, value: float | None, step: bool) -> None:
        """What it is from now on; `step`: at the end of an engine step, whose mean it counts for."""
        self.now = value
        if value is not None:
            self._least, self._most = min(self._least, value), max(self._most, value)
            if step:
                self._by_step += value
                self._steps += 1

    def summary(self) -> Level | None:
        if not self._steps:
            return None
        by_step = self._by_step / self._steps
        by_time = self._by_time / self._seconds if self._seconds else by_step
        return Level(by_time, by_step, self._least, self._most)
