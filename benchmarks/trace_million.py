"""A trace of a million steps: recorded, indexed, entered, checked and counted, each in its own process.

    python -m benchmarks.trace_million [STEPS]

The model-free engine on a simulated clock: 4 running sequences on 64 blocks, prompts of 32 shared and
about 48 own tokens, about 64 output tokens, one request in ten with two completions. The pool is so
small that it runs dry now and then. Memory is the peak of each process, beside that of one that has
only imported the library.
"""

import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.trace_traffic import Traffic, record_run
from engine.events import KeyframePolicy, SeekableTrace
from engine.events.checking import check_trace
from engine.events.stats import measure_trace

TRAFFIC = Traffic(running=4, num_blocks=64, system=32, prompt=48, output=64)
SEEKS = 200


def record(path: Path, steps: int) -> str:
    with Progress(transient=True) as bar:
        task = bar.add_task("recording", total=steps)
        written = record_run(
            path, TRAFFIC, steps, KeyframePolicy(TRAFFIC.num_blocks),
            lambda step: bar.update(task, completed=step),
        )  # fmt: skip
    return f"{path.stat().st_size / 1e6:.0f} MB, {written / 1e6:,.0f} MB as JSON lines"


def build_index(path: Path, steps: int) -> str:
    trace = SeekableTrace(path)
    kept = sum(file.stat().st_size for file in path.parent.glob("*.index"))
    return f"{len(trace.keyframes):,} keyframes, index file {kept / 1e6:.1f} MB"


def open_again(path: Path, steps: int) -> str:
    trace = SeekableTrace(path)
    return f"records {trace.first_seq} to {trace.last_seq:,}"


def seek(path: Path, steps: int) -> str:
    trace, draw = SeekableTrace(path), random.Random(0)
    took = []
    for _ in range(SEEKS):
        seq = draw.randint(trace.first_seq, trace.last_seq)
        start = time.perf_counter()
        trace.state_at(seq)
        took.append(1000 * (time.perf_counter() - start))
    took.sort()
    return f"{SEEKS} seeks: p50 {took[SEEKS // 2]:.0f} ms, p95 {took[SEEKS * 95 // 100]:.0f} ms"


def check(path: Path, steps: int) -> str:
    report = check_trace(path)
    assert report.fault is None, report.fault
    assert report.steps == steps
    return f"{report.records:,} records, {report.events:,} events, {len(report.checked)} rules"


def stats(path: Path, steps: int) -> str:
    found = measure_trace(path)
    preempted = sum(found.totals.preemptions.values())
    return (
        f"{sum(found.totals.requests_finished.values()):,} requests, {preempted:,} preemptions, "
        f"{found.totals.evicted:,} evictions"
    )


def idle(path: Path, steps: int) -> str:
    return ""


def _run(phase: Callable[[Path, int], str], path: Path, steps: int, answers) -> None:
    start = time.perf_counter()
    said = phase(path, steps)
    took = time.perf_counter() - start
    answers.put((took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, said))


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    table = Table(title=f"{steps:,} steps")
    for name in ("phase", "seconds", "steps/s", "peak MB", "what came out"):
        table.add_column(name, justify="left" if name in ("phase", "what came out") else "right")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.jsonl.zst"
        for phase in (idle, record, build_index, open_again, seek, check, stats):
            answers = spawn.SimpleQueue()
            process = spawn.Process(target=_run, args=(phase, path, steps, answers))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{phase.__name__} failed")
            took, peak, said = answers.get()
            rate = f"{steps / took:,.0f}" if phase in (record, check, stats) else ""
            table.add_row(phase.__name__, f"{took:.2f}", rate, f"{peak:.0f}", said)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
