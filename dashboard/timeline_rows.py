"""History rows made few enough for a chart, without hiding what happened: mean, least and most.

rows      ▂▂▃▃▅▅█▅  ▃▃▂▂       one a record
buckets   [▂▃]▅[██]  [▃▂]      equal stretches; none spans a hole in the records
"""

from enum import StrEnum

import numpy as np
import pandas as pd

from dashboard.history import EVENTS

LEVELS = ("free", "used", "cached", "shared", "slots_filled", "waiting", "running", "preempted")
"""Columns that hold a level: a bucket has their mean, `_min` and `_max`; so has it of `active` blocks
(used or shared) and `queued` sequences (waiting or preempted)."""
TIMES = ("schedule", "model", "sample")
"""Seconds of a step, in milliseconds here: a bucket has their mean a step, `step_ms_max` the longest."""
COUNTS = (*EVENTS, "prefill", "decode", "recompute")
"""Columns that are summed."""


class Axis(StrEnum):
    """What a chart's x is."""

    STEP = "step"
    TIME = "time"


def places(rows: np.ndarray, axis: Axis, zero: float) -> np.ndarray:
    """Where each row lies on the axis: its step, or seconds since `zero` on the producer's clock."""
    return rows["step"].astype(float) if axis is Axis.STEP else rows["time"] - zero


def bucketed(rows: np.ndarray, axis: Axis, zero: float, most: int) -> pd.DataFrame:
    """At most about `most` buckets of the rows (see history.ROW), each from `x` to `x2`.

    `records` are in a bucket, `seq` and `step` are its last one's, `first_step` the first one's. A
    bucket lasts until the next one, but not across missing records (`segment`).
    """
    if not len(rows):
        return pd.DataFrame({name: [] for name in ("x", "x2", "seq", "step", "segment", "records")})
    at = places(rows, axis, zero)
    distinct = 1 + np.count_nonzero(np.diff(at))
    width = (at[-1] - at[0]) / most if distinct > most else 0.0
    key = np.floor((at - at[0]) / width) if width > 0 else at
    new = (np.diff(key) != 0) | (np.diff(rows["segment"]) != 0)
    starts = np.concatenate(([0], np.flatnonzero(new) + 1))
    ends = np.concatenate((starts[1:], [len(rows)]))
    sizes = ends - starts
    last = rows[ends - 1]
    frame = {
        "x": at[starts],
        "x2": _ends(rows, at, starts, ends, axis),
        "seq": last["seq"],
        "step": last["step"],
        "first_step": rows["step"][starts],
        "segment": last["segment"],
        "records": sizes,
    }
    levels = {name: rows[name] for name in LEVELS}
    levels["active"] = rows["used"] + rows["shared"]
    levels["queued"] = rows["waiting"] + rows["preempted"]
    for name, values in levels.items():
        frame[name] = np.add.reduceat(values, starts, dtype=float) / sizes
        frame[f"{name}_min"] = np.minimum.reduceat(values, starts)
        frame[f"{name}_max"] = np.maximum.reduceat(values, starts)
    for name in COUNTS:
        frame[name] = np.add.reduceat(rows[name], starts, dtype=np.int64)
    # A record in which the model did not run has no duration to average.
    ran = (rows["prefill"] + rows["decode"] + rows["recompute"]) > 0
    steps = np.add.reduceat(ran, starts, dtype=np.int64)
    whole = np.zeros(len(rows))
    for name in TIMES:
        values = 1000.0 * np.where(ran, rows[name], 0.0)
        whole += values
        frame[f"{name}_ms"] = np.add.reduceat(values, starts) / np.maximum(steps, 1)
    frame["steps"] = steps
    frame["step_ms_max"] = np.maximum.reduceat(whole, starts)
    return pd.DataFrame(frame)


def within(rows: np.ndarray, axis: Axis, zero: float, low: float, high: float) -> np.ndarray:
    """The rows that lie in [low, high], and the one before: its levels last into the range."""
    at = places(rows, axis, zero)
    start = max(0, int(np.searchsorted(at, low, side="left")) - 1)
    return rows[start : int(np.searchsorted(at, high, side="right"))]


def _ends(
    rows: np.ndarray, at: np.ndarray, starts: np.ndarray, ends: np.ndarray, axis: Axis
) -> np.ndarray:
    last = rows[ends - 1]
    if axis is Axis.STEP:
        own = at[ends - 1] + 1.0
    else:
        own = at[ends - 1] + last["schedule"] + last["model"] + last["sample"]
    following = np.concatenate((at[starts[1:]], [own[-1]]))
    joined = np.concatenate((np.diff(rows["segment"][starts]) == 0, [False]))
    return np.where(joined, following, own)
