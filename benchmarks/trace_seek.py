"""How long it takes to stand anywhere in a trace, and what the keyframes for that cost.

    python -m benchmarks.trace_seek

64 running sequences on a pool of 16,384 blocks; the state is asked for at random records, one after
another, as somebody does who drags a time line. Keyframes are spaced by KeyframePolicy, then by twice
and by half of its events. The times are of one machine; the bytes are not.
"""

import random
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.trace_traffic import Traffic, record_run
from engine.events import KeyframePolicy, SeekableTrace
from engine.events.trace import EVENTS_PER_KEYFRAME

TRAFFIC = Traffic(running=64, num_blocks=16384, system=256, prompt=512, output=200)
STEPS = 6000
SEEKS = 100


class EveryEvents(KeyframePolicy):
    """The same policy with another number."""

    def __init__(self, events: int) -> None:
        super().__init__(1)
        self._most = events


def seek_times(trace: SeekableTrace) -> list[float]:
    """Milliseconds of SEEKS random seeks, in the second half: there the pool is full.

    CPU time of the thread, and each seek is the best of five: so other work on the machine weighs
    little.
    """
    draw = random.Random(0)
    took = []
    for _ in range(SEEKS):
        seq = draw.randint(trace.last_seq // 2, trace.last_seq)
        tries = []
        for _ in range(5):
            start = time.thread_time()
            trace.state_at(seq)
            tries.append(time.thread_time() - start)
        took.append(min(tries) * 1000)
    return sorted(took)


def main() -> None:
    table = Table(title=f"PoolState at a random record, {SEEKS} seeks, {STEPS:,} steps")
    for name in (
        "events/keyframe",
        "keyframes",
        "file MB",
        "open ms",
        "p50 ms",
        "p95 ms",
        "max ms",
    ):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        for events in (EVENTS_PER_KEYFRAME, 2 * EVENTS_PER_KEYFRAME, EVENTS_PER_KEYFRAME // 2):
            path = Path(folder) / f"{events}.jsonl.zst"
            record_run(path, TRAFFIC, STEPS, EveryEvents(events))
            start = time.thread_time()
            trace = SeekableTrace(path)
            opened = (time.thread_time() - start) * 1000
            took = seek_times(trace)
            p95 = statistics.quantiles(took, n=20)[-1]
            figures = (opened, statistics.median(took), p95, took[-1])
            size = path.stat().st_size / 1e6
            table.add_row(
                f"{events:,}", f"{len(trace.keyframes)}", f"{size:.1f}",
                *(f"{ms:.0f}" for ms in figures),
            )  # fmt: skip
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
