"""Distributions that can be added up: how many values fell below each bound, and their sum."""

from bisect import bisect_left
from functools import partial

import msgspec


class Histogram(msgspec.Struct, array_like=True):
    """`counts[i]` values lie above `bounds[i - 1]` and up to `bounds[i]`; the last ones above all."""

    bounds: list[float]
    counts: list[int]
    sum: float = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def copy(self) -> "Histogram":
        return Histogram(self.bounds, self.counts.copy(), self.sum)

    @property
    def count(self) -> int:
        return sum(self.counts)


def _empty(*bounds: float) -> partial[Histogram]:
    """A factory: a field's default is made anew for each owner."""
    return partial(_make, bounds)


def _make(bounds: tuple[float, ...]) -> Histogram:
    return Histogram(list(bounds), [0] * (len(bounds) + 1))


# Seconds. A decode step of a GPU takes milliseconds, one of a laptop's CPU a good part of a second.
first_token_seconds = _empty(
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250
)  # fmt: skip
inter_token_seconds = _empty(
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 25
)  # fmt: skip
request_seconds = _empty(
    0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000
)  # fmt: skip
queue_seconds = _empty(
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250
)  # fmt: skip
step_seconds = _empty(
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10
)  # fmt: skip
preemptions = _empty(0, 1, 2, 3, 4, 5, 10, 20, 50)
