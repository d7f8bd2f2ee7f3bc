"""The lab's results as flat rows, for tables, files and charts alike. Shares are 0..1."""

from collections.abc import Iterable
from typing import Any

from engine.lab.attention_times import Measured
from engine.lab.dynamic import DynamicRun
from engine.lab.moment import Account, Use
from engine.lab.static import StaticUsage
from engine.lab.sweep import SweepPoint

Row = dict[str, Any]


def static_rows(usages: Iterable[StaticUsage]) -> list[Row]:
    """A row an allocator."""
    return [{"allocator": usage.kind.value, **_usage(usage)} for usage in usages]


def sweep_rows(points: Iterable[SweepPoint], measured: Measured | None) -> list[Row]:
    """A row a block size; the ratios of attention's time are None where it was not measured."""
    rows = []
    for point in points:
        ratio = measured.ratio(point.block_size) if measured else None
        rows.append(
            {
                "block size": point.block_size,
                **_usage(point.usage),
                "attention paged / contiguous": ratio.median if ratio else None,
                "least": ratio.least if ratio else None,
                "most": ratio.most if ratio else None,
            }
        )
    return rows


def dynamic_rows(runs: Iterable[DynamicRun]) -> list[Row]:
    """A row an allocator: mean shares of memory by use, then what became of the requests."""
    return [
        {
            "allocator": run.kind.value,
            **{use.value: run.mean.share(use) for use in Use},
            "mean running": run.mean_running,
            "peak running": run.peak_running,
            "steps": run.steps,
            "waited": run.waited,
            "mean wait": run.mean_wait,
            "could not be placed": run.refused,
            "although enough memory was free": run.refused_with_free,
            "although enough slots were empty": run.refused_with_empty,
            "never fit": run.never_fit,
            "preemptions": run.preemptions,
            "recomputed tokens": run.recomputed,
        }
        for run in runs
    ]


def time_rows(runs: Iterable[DynamicRun]) -> list[Row]:
    """A row for each allocator, moment and use: slots, and running and waiting requests."""
    return [
        {
            "allocator": run.kind.value,
            "step": moment.step,
            "use": use.value,
            "slots": moment.account.of(use),
            "running": moment.running,
            "waiting": moment.waiting,
        }
        for run in runs
        for moment in run.moments
        for use in Use
    ]


def account_rows(kind: str, account: Account) -> list[Row]:
    """A row for each use: slots, and share of the memory."""
    return [
        {
            "allocator": kind,
            "use": use.value,
            "slots": account.of(use),
            "share": account.share(use),
        }
        for use in Use
    ]


def map_rows(run: DynamicRun, moment: int, lines: int) -> list[Row]:
    """Rectangles of an address map at one moment, the memory wrapped into `lines` lines.

    from, to: slots within the line; start, end: slots of memory of the whole segment.
    """
    width = -(-run.memory // lines)
    rows = []
    for segment in run.moments[moment].address_map():
        first, last = segment.start // width, (segment.end - 1) // width
        for line in range(first, last + 1):
            rows.append(
                {
                    "allocator": run.kind.value,
                    "line": line,
                    "from": max(segment.start, line * width) - line * width,
                    "to": min(segment.end, (line + 1) * width) - line * width,
                    "use": segment.use.value,
                    "sequence": segment.sequence,
                    "start": segment.start,
                    "end": segment.end,
                    "slots": segment.end - segment.start,
                }
            )
    return rows


def _usage(usage: StaticUsage) -> Row:
    return {
        "sequences": usage.sequences,
        "stored": usage.stored,
        "taken": usage.taken,
        "utilisation": usage.utilisation,
        "wasted": usage.wasted,
        "wasted per sequence": usage.wasted_per_sequence,
        "table entries": usage.table_entries,
    }
