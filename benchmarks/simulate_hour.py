"""How fast an hour of real traffic is simulated: with its trace written, and without.

    taskset -c 0 python -m benchmarks.simulate_hour AzureLLMInferenceTrace_conv.csv [REPEATS]

19,366 requests on a pool of 32,768 blocks of 16, at the estimated cost of a 32B model on four GPUs
(`gpu-32b`). With and without a trace in turns. CPU is the process's user time, which a busy neighbour
stretches less than the wall clock; the best run of each kind says most about the program.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from engine.core.config import EngineConfig
from engine.simulate.cost import NAMED, described
from engine.simulate.recording import Shape
from engine.simulate.runs import Outcome, Scene, run_one
from engine.simulate.settings import Variation
from engine.simulate.source import workload
from engine.simulate.table import print_outcome
from engine.workloads.named import Workload, WorkloadSettings

COST = "gpu-32b"
CONFIG = EngineConfig(
    block_size=16,
    num_blocks=32_768,
    max_model_len=16_384,
    max_num_seqs=256,
    max_num_batched_tokens=2048,
    watermark=0.01,
)


class Taken(msgspec.Struct):
    """Seconds of one run, and the bytes of its trace."""

    user: float
    wall: float
    size: int


def measure(scene: Scene, trace: Path | None) -> tuple[Taken, Outcome]:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()
    outcome = run_one(scene, Variation({}), trace)
    wall = time.perf_counter() - start
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    return Taken(user, wall, trace.stat().st_size if trace else 0), outcome


def main() -> None:
    file, repeats = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    settings = WorkloadSettings(workload=Workload.TRACE, trace=Path(file))
    scene = Scene(workload(settings), CONFIG, NAMED[COST], Shape(COST))
    console = Console(width=100)
    console.print(f"{scene.source.count:,} requests; a step takes {described(scene.cost)}")
    runs: dict[str, list[Taken]] = {"with its trace": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats):
            for kind, taken in runs.items():
                path = Path(folder) / "hour.jsonl.zst" if kind == "with its trace" else None
                took, outcome = measure(scene, path)
                taken.append(took)
                print(f"run {number + 1}, {kind}: {took.user:.1f} s of CPU", file=sys.stderr)
    table = Table(title=f"{outcome.figures.seconds:,.0f} simulated seconds")
    for name in ("run", "CPU s, best", "all", "wall s, best", "all", "simulated s / CPU s", "MB"):
        table.add_column(name, justify="left" if name == "run" else "right")
    for kind, taken in runs.items():
        best = min(t.user for t in taken)
        table.add_row(
            kind,
            f"{best:.1f}",
            " ".join(f"{t.user:.1f}" for t in taken),
            f"{min(t.wall for t in taken):.1f}",
            " ".join(f"{t.wall:.1f}" for t in taken),
            f"{outcome.figures.seconds / best:,.0f}",
            f"{taken[0].size / 1e6:.0f}" if taken[0].size else "",
        )
    console.print(table)
    print_outcome(console, outcome)


if __name__ == "__main__":
    main()
