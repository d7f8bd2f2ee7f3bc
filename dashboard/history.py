"""The past as numbers: one row a record, for rates, charts, the scrubber and jumps. Bounded."""

from typing import Any

import numpy as np
import pandas as pd

from dashboard.cells import CellState, Grid
from engine.events.records import (
    Allocate,
    CopyOnWrite,
    Evict,
    Fork,
    Preempt,
    PrefixLookup,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    Step,
)

MAX_ROWS = 1 << 18
"""Rows that are kept; beyond, the oldest quarter goes."""

ROW = np.dtype(
    [
        ("seq", "i8"),
        ("segment", "i4"),
        ("step", "i8"),
        ("time", "f8"),
        # blocks by state, and slots with KV in active blocks, after the record
        ("free", "i4"),
        ("used", "i4"),
        ("cached", "i4"),
        ("shared", "i4"),
        ("slots_filled", "i4"),
        # sequences after the record
        ("waiting", "i4"),
        ("running", "i4"),
        ("preempted", "i4"),
        # tokens computed
        ("prefill", "i4"),
        ("decode", "i4"),
        ("recompute", "i4"),
        # seconds
        ("schedule", "f4"),
        ("model", "f4"),
        ("sample", "f4"),
        # events counted
        ("preemptions", "i4"),
        ("copies", "i4"),
        ("evictions", "i4"),
        ("allocations", "i4"),
        ("forks", "i4"),
        ("arrivals", "i4"),
        ("finishes", "i4"),
        ("rejections", "i4"),
        ("prefix_queried", "i4"),
        ("prefix_hit", "i4"),
    ]
)
"""`segment` grows where records are missing: a chart must not join rows across it."""

EVENTS = {
    "preemptions": Preempt,
    "copies": CopyOnWrite,
    "evictions": Evict,
    "allocations": Allocate,
    "forks": Fork,
    "arrivals": RequestAdded,
    "finishes": RequestFinished,
    "rejections": RequestRejected,
}
"""Column -> the event that it counts."""
_SUMMED = ("prefill", "decode", "recompute", "schedule", "model", "sample", *EVENTS)
_SUMMED += ("prefix_queried", "prefix_hit")


class History:
    """Rows by `seq`, ascending. One thread writes; a view that `rows` gave stays as it was."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows = np.empty(1024, ROW)
        self._count = 0
        self._segment = 0

    def __len__(self) -> int:
        return self._count

    def interrupt(self) -> None:
        """Records are missing here: what comes is not joined to what was."""
        self._segment += 1

    def add(self, grid: Grid, step: Step) -> None:
        """Append the pool after `step`, which `grid` has just followed."""
        kinds = list(map(type, step.events))
        queried = hit = 0
        for event in step.events:
            if type(event) is PrefixLookup and not event.resumed:
                queried += event.queried
                hit += event.hit
        counts, queues, tokens = grid.counts, step.queues, step.tokens
        spent = step.durations
        if self._count == len(self._rows):
            self._make_room()
        self._rows[self._count] = (
            *(step.seq, self._segment, step.step, step.time),
            *(counts[CellState.FREE], counts[CellState.USED]),
            *(counts[CellState.CACHED], counts[CellState.SHARED], grid.slots_filled),
            *(queues.waiting, queues.running, queues.preempted),
            *(tokens.prefill, tokens.decode, tokens.recompute),
            *(spent.schedule, spent.model, spent.sample),
            *(kinds.count(kind) for kind in EVENTS.values()),
            *(queried, hit),
        )
        self._count += 1

    def _make_room(self) -> None:
        # Into a new array each time: whoever holds a view of the old one keeps what it saw.
        keep = self._count if self._count < self._max_rows else self._max_rows * 3 // 4
        size = min(2 * self._count, self._max_rows)
        rows = np.empty(max(size, keep + 1), ROW)
        rows[:keep] = self._rows[self._count - keep : self._count]
        self._rows, self._count = rows, keep

    def rows(self, upto: int | None = None) -> np.ndarray:
        """All rows as a structured array (see ROW), or those with seq <= `upto`. Not to be written."""
        rows = self._rows[: self._count]
        if upto is None:
            return rows
        return rows[: int(np.searchsorted(rows["seq"], upto, side="right"))]

    def jump(self, seq: int, column: str, forward: bool) -> int | None:
        """The seq of the next (or previous) row whose event column is above 0."""
        rows = self.rows()
        if forward:
            start = int(np.searchsorted(rows["seq"], seq, side="right"))
            found = np.flatnonzero(rows[column][start:])
            return int(rows["seq"][start + found[0]]) if len(found) else None
        end = int(np.searchsorted(rows["seq"], seq, side="left"))
        found = np.flatnonzero(rows[column][:end])
        return int(rows["seq"][found[-1]]) if len(found) else None

    def table(self, steps: int, upto: int | None = None) -> pd.DataFrame:
        """The last `steps` engine steps, one row each: records of one step are put together."""
        rows = self.rows(upto)[-2 * steps :]
        frame = pd.DataFrame({name: rows[name] for name in ROW.names})
        if frame["step"].duplicated().any():
            how: dict[str, Any] = {
                name: "sum" if name in _SUMMED else "last"
                for name in ROW.names
                if name not in ("segment", "step")
            }
            frame = frame.groupby(["segment", "step"], as_index=False, sort=False).agg(how)
        return frame.tail(steps).reset_index(drop=True)


def last_seconds(rows: np.ndarray, now: float, seconds: float) -> np.ndarray:
    """The rows of producer time (now - seconds, now], of the newest segment only."""
    start = int(np.searchsorted(rows["time"], now - seconds, side="right"))
    rows = rows[start:]
    return rows[rows["segment"] == rows["segment"][-1]] if len(rows) else rows
