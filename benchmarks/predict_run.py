"""What a run on another pool will be like, told from a recorded one; then that run, for real.

    python -m benchmarks.predict_run [--blocks-a 160] [--blocks-b 56] [--requests 40] [--model NAME]

One workload, drawn from a seed: prompts that begin alike, answers of given lengths, open arrivals
(clients do not wait for each other). It is served by the model twice, in this process and with real
time: on pool A, then on pool B. From A's trace alone the run on B is predicted, and A's own again, to
tell the simulation's errors from those of the fit. Times of a shared machine differ from run to run;
what they differ by between two real runs on A is printed too.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import msgspec
import torch
from rich.console import Console
from rich.table import Table

from engine.core.config import EngineConfig, SamplingParams
from engine.core.runner import StepCost
from engine.core.sequence import Request
from engine.llm import LLMEngine
from engine.model.runner import ModelRunner
from engine.model.weights import DEFAULT_MODEL, LoadedModel, load_model
from engine.simulate.figures import Figures
from engine.simulate.fit import fit_trace
from engine.simulate.recorded import read_recorded, recorded_config
from engine.simulate.recording import Anchor, RunRecorder, Shape, header_of
from engine.simulate.runs import Scene, run_one
from engine.simulate.settings import Variation

FIGURES = (
    "utilisation_mean", "utilisation_peak", "preemptions", "recompute_share", "prefix_hit_rate",
    "output_tokens_per_second", "seconds", "first_token_seconds.p50", "first_token_seconds.p95",
    "inter_token_seconds.p50", "inter_token_seconds.p95", "request_seconds.p50",
    "request_seconds.p95",
)  # fmt: skip


def asked(requests: int, rate: float, seed: int) -> list[tuple[float, list[int], int]]:
    """Seconds of arrival, prompt, and tokens of the answer."""
    draw = random.Random(seed)
    system = [draw.randrange(1000, 20000) for _ in range(32)]
    found, arrival = [], 0.0
    for _ in range(requests):
        arrival += draw.expovariate(rate)
        own = [draw.randrange(1000, 20000) for _ in range(draw.randint(8, 64))]
        found.append((arrival, system + own, draw.randint(20, 120)))
    return found


def config(blocks: int) -> EngineConfig:
    return EngineConfig(
        block_size=16,
        num_blocks=blocks,
        max_model_len=256,
        max_num_seqs=16,
        max_num_batched_tokens=256,
        watermark=0.01,
    )


def record(loaded: LoadedModel, blocks: int, requests: int, rate: float, path: Path) -> None:
    """Serve the workload in real time, and write its trace."""
    of = config(blocks)
    runner = ModelRunner(
        loaded.model, of.num_blocks, of.block_size, loaded.num_layers, loaded.num_kv_heads,
        loaded.head_dim,
    )  # fmt: skip
    engine = LLMEngine(of, runner)
    _warm_up(engine)
    coming = asked(requests, rate, seed=1)
    anchor = Anchor(time.time(), engine.clock())
    header = header_of(of, StepCost(), Shape(loaded.name), anchor, "predict_run")
    header = msgspec.structs.replace(header, simulated=False)
    recorder = RunRecorder(path, header, engine)
    engine.on_record = recorder.add
    start = engine.clock()
    while coming or engine.has_work:
        while coming and start + coming[0][0] <= engine.clock():
            arrival, prompt, output = coming.pop(0)
            params = SamplingParams(max_tokens=output, temperature=0, ignore_eos=True)
            engine.add(Request(f"r{len(coming)}", prompt, params, start + arrival))
        if engine.has_work:
            engine.step()
        else:
            time.sleep(max(0.0, start + coming[0][0] - engine.clock()))
    recorder.close()


def _warm_up(engine: LLMEngine) -> None:
    """The first steps of a process take longer than all others."""
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    engine.add(Request("warm up", list(range(1000, 1064)), params, engine.clock()))
    while engine.has_work:
        engine.step()
    engine.reset_prefix_cache()


def predicted(trace: Path, blocks: int) -> Figures:
    recorded = read_recorded(trace)
    scene = Scene(
        recorded, recorded_config(recorded.header, {}), fit_trace(trace).cost, recorded.shape
    )
    return run_one(scene, Variation({"num_gpu_blocks_override": blocks})).figures


def value(figures: Figures, path: str) -> float:
    for name in path.split("."):
        figures = getattr(figures, name)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks-a", type=int, default=160)
    parser.add_argument("--blocks-b", type=int, default=56)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rate", type=float, default=0.8)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    options = parser.parse_args()
    console = Console(width=130)
    loaded = load_model(options.model, torch.float32, console.print)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.jsonl.zst" for name in ("a", "a again", "b")}
        blocks = {"a": options.blocks_a, "a again": options.blocks_a, "b": options.blocks_b}
        for name, path in paths.items():
            console.print(f"serving for real on {blocks[name]} blocks")
            record(loaded, blocks[name], options.requests, options.rate, path)
        console.print(f"cost of the run on A: {fit_trace(paths['a'])}")
        real = {name: read_recorded(path).figures for name, path in paths.items()}
        told = {name: predicted(paths["a"], blocks[name]) for name in ("a", "b")}
    table = Table(
        title=f"A: {options.blocks_a} blocks, B: {options.blocks_b}; from A's trace alone"
    )
    for name in ("", "A real", "A real again", "A told", "B real", "B told", "B told / real"):
        table.add_column(name, justify="right" if name else "left")
    for path in FIGURES:
        values = [
            value(figures, path)
            for figures in (real["a"], real["a again"], told["a"], real["b"], told["b"])
        ]
        ratio = f"{values[4] / values[3]:.3f}" if values[3] else ""
        table.add_row(path, *(f"{number:,.4g}" for number in values), ratio)
    console.print(table)


if __name__ == "__main__":
    main()
