"""`glasspool simulate`: the engine on a virtual clock, over a workload or a recorded run."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from engine.core.config import ConfigError, EngineConfig
from engine.core.runner import StepCost
from engine.simulate.cost import DEFAULT, described, parse_cost
from engine.simulate.recording import Shape
from engine.simulate.runs import Outcome, Scene, check_all, run_one
from engine.simulate.settings import Variation, configured, variations
from engine.simulate.source import GENERATED, Source, WorkloadSettings, workload
from engine.simulate.table import print_outcome, print_outcomes

app = typer.Typer()

BASE = EngineConfig(
    block_size=16,
    num_blocks=32_768,
    max_model_len=16_384,
    max_num_seqs=256,
    max_num_batched_tokens=2048,
    watermark=0.01,
)
"""The engine that is simulated where nothing else is asked for: that of `serve`, on a larger pool."""


@app.command()
def simulate(
    workload_name: Annotated[
        str | None,
        typer.Option(
            "--workload",
            help=f"A public trace (Azure, BurstGPT, Mooncake), or {', '.join(GENERATED)}.",
        ),
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests a second of a generated workload.")] = 1.0,
    prompt_tokens: Annotated[
        str, typer.Option(help="Of a generated workload: 256, or 64-512 (uniform).")
    ] = "256",
    output_tokens: Annotated[str, typer.Option(help="The same of outputs.")] = "128",
    sigma: Annotated[float, typer.Option(help="Of lognormal: 0 gives the means.")] = 1.0,
    rate_scale: Annotated[float, typer.Option(help="Requests come so many times as often.")] = 1.0,
    length_scale: Annotated[
        float, typer.Option(help="Prompts and outputs are so many times as long.")
    ] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(help="Only requests that arrive within so many seconds.")
    ] = None,
    num_requests: Annotated[int | None, typer.Option(help="Only so many requests.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = 0,
    cost: Annotated[
        str | None,
        typer.Option(
            help="What a step takes: gpu-32b or cpu (estimates), or seconds like "
            "step=0.015,prefill=1e-4,decode=5e-5,key=5e-8."
        ),
    ] = None,
    block_size: Annotated[int | None, typer.Option(help="Slots in a block.")] = None,
    num_gpu_blocks_override: Annotated[int | None, typer.Option(help="Blocks in the pool.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Most tokens of a sequence.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Most running sequences.")] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="Most tokens run through the model in one step.")
    ] = None,
    enable_prefix_caching: Annotated[
        bool | None,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching",
            help="Share the blocks of equal prompts' beginnings.",
        ),
    ] = None,
    enable_chunked_prefill: Annotated[
        bool | None,
        typer.Option(
            "--enable-chunked-prefill/--no-enable-chunked-prefill",
            help="Compute a long prompt over several steps.",
        ),
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None, typer.Option(help="Most tokens of one sequence in a step; 0: no limit.")
    ] = None,
    watermark: Annotated[
        float | None, typer.Option(help="Share of the pool left free when a request starts.")
    ] = None,
    max_num_queued_reqs: Annotated[
        int | None, typer.Option(help="Most waiting requests; 0: no limit.")
    ] = None,
    scheduling_policy: Annotated[str | None, typer.Option(help="fcfs, or priority.")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="field=value,value: run again with each; of several fields, every combination."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the run's trace to this .jsonl.zst file."),
    ] = None,
) -> None:
    """Run the engine on a virtual clock, without a model: thousands of times faster than life."""
    options = {
        "block_size": block_size,
        "num_gpu_blocks_override": num_gpu_blocks_override,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "enable_prefix_caching": enable_prefix_caching,
        "enable_chunked_prefill": enable_chunked_prefill,
        "long_prefill_token_threshold": long_prefill_token_threshold,
        "watermark": watermark,
        "max_num_queued_reqs": max_num_queued_reqs,
        "scheduling_policy": scheduling_policy,
    }
    changes = {name: value for name, value in options.items() if value is not None}
    if workload_name is None:
        raise ConfigError("nothing to simulate: give --workload NAME or --workload FILE")
    source = workload(
        WorkloadSettings(
            name=workload_name,
            seed=seed,
            rate=rate,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            sigma=sigma,
            rate_scale=rate_scale,
            length_scale=length_scale,
            seconds=seconds,
            num_requests=num_requests,
        )
    )
    step_cost = parse_cost(cost or DEFAULT)
    scene = Scene(source, configured(BASE, changes), step_cost, Shape(cost or DEFAULT))
    runs = variations(vary or [])
    check_all(scene, runs)
    console = _console()
    _introduce(console, source, step_cost)
    outcomes = _run_all(scene, runs, out)
    if len(outcomes) == 1:
        print_outcome(console, outcomes[0])
    else:
        print_outcomes(console, outcomes)


def _introduce(console: Console, source: Source, cost: StepCost) -> None:
    console.print(f"[bold]{escape(source.description)}[/bold]: {source.count:,} requests")
    console.print(f"cost: {described(cost)}\n")


def _run_all(scene: Scene, runs: list[Variation], out: Path | None) -> list[Outcome]:
    outcomes = []
    for number, variation in enumerate(runs, 1):
        name = f"run {number} of {len(runs)}" if len(runs) > 1 else "simulating"
        span = (scene.source.last - scene.source.start) / variation.rate_scale
        with _bar(name, span) as tell:
            outcomes.append(run_one(scene, variation, out, tell))
    return outcomes


def _console() -> Console:
    """Standard output; where that is no terminal, wide enough that no figure is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 140, soft_wrap=False)


@contextmanager
def _bar(what: str, seconds: float) -> Iterator[Callable[[float], None]]:
    """A progress bar over simulated seconds, on standard error; none where that is no terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=max(seconds, 1e-9))
        yield lambda passed: bar.update(task, completed=min(passed, seconds))
