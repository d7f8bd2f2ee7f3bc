"""Two runs side by side: their curves on one axis, and the figures in which their traces differ."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from dashboard.readable import UNKNOWN
from dashboard.timeline_rows import Axis, bucketed
from engine.events import TraceDiff, TraceStats, diff_traces

MAX_KEPT = 8
MOST_BUCKETS = 300
Progress = Callable[[int, int], None]


def curves(rows: np.ndarray, axis: Axis, num_blocks: int, run: str) -> pd.DataFrame:
    """A run's history rows as chart rows, both axes counted from its first record.

    Utilisation is in percent of the pool. `run` names it.
    """
    if not len(rows):
        return pd.DataFrame()
    zero = float(rows["time"][0])
    frame = bucketed(rows, axis, zero, MOST_BUCKETS)
    if axis is Axis.STEP:
        first = float(rows["step"][0])
        frame["x"], frame["x2"] = frame["x"] - first, frame["x2"] - first
    share = 100.0 / num_blocks
    return pd.DataFrame(
        {
            "run": run,
            "line": [f"{run}-{segment}" for segment in frame["segment"]],
            "x": frame["x"],
            "x2": frame["x2"],
            "step": frame["step"],
            "utilisation": frame["active"] * share,
            "utilisation_min": frame["active_min"] * share,
            "utilisation_max": frame["active_max"] * share,
            "running": frame["running"],
            "running_min": frame["running_min"],
            "running_max": frame["running_max"],
            "queued": frame["queued"],
            "queued_min": frame["queued_min"],
            "queued_max": frame["queued_max"],
            "records": frame["records"],
        }
    )


def place_of(rows: np.ndarray, seq: int, axis: Axis) -> float | None:
    """Where record `seq` lies on the axis of `curves`; None where it is not among the rows."""
    at = int(rows["seq"].searchsorted(seq))
    if at >= len(rows) or rows["seq"][at] != seq:
        return None
    if axis is Axis.STEP:
        return float(rows["step"][at] - rows["step"][0])
    return float(rows["time"][at] - rows["time"][0])


class Comparisons:
    """Differences of traces that were made, the last MAX_KEPT; a file that changed is read anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple, TraceDiff] = OrderedDict()

    def known(self, a: Path, b: Path) -> TraceDiff | None:
        """The difference where it is at hand."""
        with self._lock:
            return self._made.get((*_identity(a), *_identity(b)))

    def of(self, a: Path, b: Path, progress: Progress) -> TraceDiff:
        """The difference, read from both traces where it is not at hand. Raises TraceError, OSError."""
        key = (*_identity(a), *_identity(b))
        found = self.known(a, b)
        if found is None:
            found = diff_traces(a, b, progress)
            with self._lock:
                self._made[key] = found
                while len(self._made) > MAX_KEPT:
                    self._made.popitem(last=False)
        return found


def _identity(path: Path) -> tuple[str, int, int]:
    facts = path.stat()
    return str(path), facts.st_mtime_ns, facts.st_size


@dataclass(frozen=True)
class Compared:
    """One figure of both runs, in `unit`; None where a run does not tell it."""

    name: str
    unit: str
    a: float | None
    b: float | None
    help: str

    @property
    def difference(self) -> float | None:
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def change(self) -> str:
        """B's difference from A in percent of A; a dash where A is 0, of which there is no share."""
        if self.difference is None:
            return UNKNOWN
        return f"{100 * self.difference / self.a:+,.1f} %" if self.a else "–"


def compared(a: TraceStats, b: TraceStats) -> list[Compared]:
    """The figures that tell two runs apart, in the order in which one asks for them."""
    return [
        Compared(name, unit, _value(read, a), _value(read, b), help)
        for name, unit, read, help in _FIGURES
    ]


def _value(read: Callable[[TraceStats], float | None], stats: TraceStats) -> float | None:
    try:
        value = read(stats)
    except AttributeError:  # a group of figures that this run does not tell is None
        return None
    return None if value is None else float(value)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


_FIGURES: list[tuple[str, str, Callable[[TraceStats], float | None], str]] = [
    ("Length", "s", lambda s: s.seconds, "From the first keyframe to the last step's end"),
    ("Steps", "steps", lambda s: s.steps, "Steps that ran the model"),
    (
        "Output",
        "tokens",
        lambda s: s.output_tokens,
        "Tokens drawn for requests that ended",
    ),
    (
        "Output rate",
        "tokens/s",
        lambda s: s.per_second(s.output_tokens),
        "Output over the time that was seen",
    ),
    ("Computed", "tokens", lambda s: s.computed_tokens, "Tokens run through the model"),
    (
        "Recompute tax",
        "%",
        lambda s: _percent(s.recompute_tax),
        "Recomputed tokens in computed ones, since the engine's start",
    ),
    (
        "Preemptions",
        "times",
        lambda s: sum(s.totals.preemptions.values()) - sum(s.before.preemptions.values()),
        "How often a sequence lost its blocks",
    ),
    (
        "Requests preempted",
        "requests",
        lambda s: s.preempted_requests,
        "Requests that lost blocks at least once",
    ),
    (
        "Prefix hit rate",
        "%",
        lambda s: _percent(s.prefix_hit_rate),
        "Prompt tokens found in the prefix cache, of those looked up",
    ),
    (
        "Utilisation, mean",
        "%",
        lambda s: _percent(s.utilisation.mean_by_time),
        "Active blocks in the pool, over time",
    ),
    (
        "Utilisation, most",
        "%",
        lambda s: _percent(s.utilisation.max),
        "The highest share of the pool that was active",
    ),
    (
        "Fill, mean",
        "%",
        lambda s: _percent(s.fill.mean_by_time),
        "Filled slots of active blocks; the rest is fragmentation",
    ),
    (
        "Sharing, mean",
        "×",
        lambda s: s.sharing.mean_by_time,
        "Table entries for each active block",
    ),
    (
        "Queue, median",
        "s",
        lambda s: s.queue_seconds.p50,
        "From arrival to the first schedule",
    ),
    ("Queue, 99th percentile", "s", lambda s: s.queue_seconds.p99, "The same, of the slowest 1 %"),
    (
        "First token, median",
        "s",
        lambda s: s.first_token_seconds.p50,
        "From arrival to the first token",
    ),
    (
        "First token, 99th percentile",
        "s",
        lambda s: s.first_token_seconds.p99,
        "The same, of the slowest 1 %",
    ),
    (
        "Between tokens, median",
        "s",
        lambda s: s.inter_token_seconds.p50,
        "From a token to the next of its sequence",
    ),
    (
        "Between tokens, 99th percentile",
        "s",
        lambda s: s.inter_token_seconds.p99,
        "The same, of the slowest 1 %",
    ),
    ("Request, median", "s", lambda s: s.request_seconds.p50, "From arrival to the end"),
    (
        "Step, median",
        "ms",
        lambda s: 1000 * s.step_seconds.p50,
        "Schedule, model and sample together",
    ),
    (
        "Step, 99th percentile",
        "ms",
        lambda s: 1000 * s.step_seconds.p99,
        "The same, of the slowest 1 %",
    ),
]
