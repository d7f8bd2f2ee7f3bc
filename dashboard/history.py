"""The recent past as points, one an engine step, for charts and rates. Bounded."""

from collections import deque
from dataclasses import dataclass, replace

import pandas as pd

from dashboard.cells import CellState, Grid
from engine.events import PoolState
from engine.events.records import CopyOnWrite, Preempt, Step

MAX_POINTS = 2000
RATE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Point:
    """The pool after one step. Blocks by state, slots, tokens computed, events counted.

    `segment` grows where records are missing: a chart must not join points across it.
    """

    segment: int
    step: int
    time: float
    free: int
    used: int
    cached: int
    shared: int
    slots_filled: int
    waiting: int
    running: int
    preempted: int
    tokens: int
    recomputed: int
    preemptions: int
    copies: int


class History:
    """The last MAX_POINTS steps."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=MAX_POINTS)
        self._segment = 0
        self._since: float | None = None

    def __len__(self) -> int:
        return len(self._points)

    def interrupt(self, time: float) -> None:
        """The source speaks (again) from producer time `time` on; what was before is not joined."""
        self._segment += 1
        self._since = time

    def add(self, state: PoolState, grid: Grid, step: Step) -> None:
        """Append the state after `step`. Records of one engine step make one point."""
        counts = grid.counts
        kinds = list(map(type, step.events))
        point = Point(
            segment=self._segment,
            step=step.step,
            time=step.time,
            free=counts[CellState.FREE],
            used=counts[CellState.USED],
            cached=counts[CellState.CACHED],
            shared=counts[CellState.SHARED],
            slots_filled=grid.slots_filled,
            waiting=step.queues.waiting,
            running=step.queues.running,
            preempted=step.queues.preempted,
            tokens=step.tokens.total,
            recomputed=step.tokens.recompute,
            preemptions=kinds.count(Preempt),
            copies=kinds.count(CopyOnWrite),
        )
        if self._points:
            last = self._points[-1]
            if (last.step, last.segment) == (point.step, point.segment):
                self._points.pop()
                point = replace(
                    point,
                    tokens=last.tokens + point.tokens,
                    recomputed=last.recomputed + point.recomputed,
                    preemptions=last.preemptions + point.preemptions,
                    copies=last.copies + point.copies,
                )
        self._points.append(point)

    def tokens_per_second(self, now: float) -> float | None:
        """Computed tokens a second over the last RATE_SECONDS before producer time `now`.

        None while less than half a second has been seen since the source began to speak.
        """
        if self._since is None:
            return None
        span = min(RATE_SECONDS, now - self._since)
        if span < 0.5:
            return None
        tokens = 0
        for point in reversed(self._points):
            if point.time < now - span:
                break
            tokens += point.tokens
        return tokens / span

    def table(self, steps: int) -> pd.DataFrame:
        """The last `steps` points, one row each."""
        points = list(self._points)[-steps:]
        names = Point.__slots__
        return pd.DataFrame(
            {name: [getattr(point, name) for point in points] for name in names},
            columns=list(names),
        )
