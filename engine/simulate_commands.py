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

from engine.core.config import ConfigError, EngineConfig, policy_named
from engine.core.runner import StepCost
from engine.simulate.cost import DEFAULT, described, parse_cost
from engine.simulate.fit import fit_trace
from engine.simulate.recorded import read_recorded, recorded_config
from engine.simulate.recording import Shape
from engine.simulate.runs import Outcome, Scene, distinct, recorded_outcome, run_one
from engine.simulate.settings import Variation, configured, variations
from engine.simulate.source import named_or_file, workload
from engine.simulate.table import print_outcome, print_outcomes
from engine.simulate.targets import Targets
from engine.workloads.named import WorkloadSettings, parameters_help, read_parameters

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
OF_WORKLOADS = (
    *("parameter", "input_len", "output_len", "range_ratio", "sigma", "request_rate", "scale_rate"),
    *("scale_length", "seconds", "num_requests", "seed"),
)
"""Options that say how to make requests."""


@app.command()
def simulate(
    context: typer.Context,
    workload_name: Annotated[
        str | None,
        typer.Option(
            "--workload",
            help="A file of a public trace (Azure, BurstGPT, Mooncake), or fixed, uniform, lognormal, "
            "shared-prompt, multi-turn, parallel, beam, long-context, bursts.",
        ),
    ] = None,
    from_trace: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A recorded .jsonl.zst file: ask again what it was asked, and what if.",
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help=f"name=value of the workload; again for more. {parameters_help()}"),
    ] = None,
    input_len: Annotated[int, typer.Option(help="Tokens of a prompt, or their mean.")] = 256,
    output_len: Annotated[int, typer.Option(help="Tokens of an answer, or their mean.")] = 128,
    range_ratio: Annotated[
        float, typer.Option(help="Uniform lengths lie within mean * (1 ± this).")
    ] = 0.5,
    sigma: Annotated[
        float, typer.Option(help="Spread of lognormal lengths: of their logarithm.")
    ] = 1.0,
    request_rate: Annotated[
        float | None,
        typer.Option(help="Requests a second on average; a public trace has its own times."),
    ] = None,
    scale_rate: Annotated[float, typer.Option(help="Requests come so many times as often.")] = 1.0,
    scale_length: Annotated[
        float, typer.Option(help="Prompts and answers are so many times as long.")
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
            "step=0.015,prefill=1e-4,decode=5e-5,key=5e-8. By default gpu-32b, or fitted to --from."
        ),
    ] = None,
    cost_from: Annotated[
        Path | None, typer.Option(help="Fit the cost to the steps of a recorded .jsonl.zst file.")
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
        typer.Option(
            help="A .jsonl.zst file for the run's trace; or a folder for a table and a chart."
        ),
    ] = None,
    keep_traces: Annotated[
        bool, typer.Option("--keep-traces", help="Write every run's trace to that folder too.")
    ] = False,
) -> None:
    """Run the engine without a model on a virtual clock: what would come of a workload."""
    changes = {
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
        "scheduling_policy": None if scheduling_policy is None else policy_named(scheduling_policy),
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if (workload_name is None) == (from_trace is None):
        raise ConfigError(
            "give --workload (a file or a name), or --from a recorded run: one of them"
        )
    if from_trace is not None:
        _refuse_workload_options(context)
    if cost is not None and cost_from is not None:
        raise ConfigError("give --cost or --cost-from, not both")
    console = _console()
    if from_trace is None:
        kind, file = named_or_file(workload_name)
        settings = WorkloadSettings(
            workload=kind,
            input_len=input_len,
            output_len=output_len,
            range_ratio=range_ratio,
            sigma=sigma,
            trace=file,
            scale_rate=scale_rate,
            scale_length=scale_length,
            request_rate=request_rate,
            seed=seed,
            parameters=read_parameters(kind, parameter or []),
        )
        source = workload(settings, seconds, num_requests)
        named = None if cost_from else cost or DEFAULT
        step_cost = _cost(console, named, cost_from)
        shape = Shape(named or f"cost of {cost_from.name}")
        scene = Scene(source, configured(BASE, changes), step_cost, shape)
        recorded = []
    else:
        with _bar("reading", 1.0):
            source = read_recorded(from_trace)
        step_cost = _cost(console, cost, cost_from or from_trace)
        config = recorded_config(source.header, changes)
        scene = Scene(source, config, step_cost, source.shape, source.anchor)
        recorded = [recorded_outcome(source)]
    runs = distinct(scene, variations(vary or []))
    console.print(f"[bold]{escape(source.description)}[/bold]: {source.count:,} requests")
    for note in source.notes:
        console.print(f"  {escape(note)}")
    console.print(f"a step takes {described(step_cost)}\n")
    targets = Targets(out, keep_traces, len(runs))
    outcomes = _run_all(scene, runs, targets)
    if recorded or len(outcomes) > 1:
        print_outcomes(console, [*recorded, *outcomes])
    else:
        print_outcome(console, outcomes[0])
    for path in targets.save([*recorded, *outcomes], source.description):
        print(f"wrote {path}", file=sys.stderr)


def _refuse_workload_options(context: typer.Context) -> None:
    """A recorded run has its own requests: what says how to make some would change nothing."""
    for name in OF_WORKLOADS:
        if context.get_parameter_source(name).name == "COMMANDLINE":
            raise ConfigError(
                f"--{name.replace('_', '-')} is for --workload: --from asks what was recorded, as it "
                "was; leave it out, or see --vary scale_rate=2 for more of it at once"
            )


def _cost(console: Console, cost: str | None, trace: Path | None) -> StepCost:
    """By its name or numbers; without any, fitted to a trace, and how well is told."""
    if cost is not None:
        return parse_cost(cost)
    fit = fit_trace(trace)
    console.print(f"cost of {escape(trace.name)}: {fit}")
    return fit.cost


def _run_all(scene: Scene, runs: list[Variation], targets: "Targets") -> list[Outcome]:
    outcomes = []
    for number, variation in enumerate(runs, 1):
        name = f"run {number} of {len(runs)}" if len(runs) > 1 else "simulating"
        span = (scene.source.last - scene.source.start) / variation.scale_rate
        with _bar(name, span) as tell:
            outcomes.append(run_one(scene, variation, targets.trace(variation.name), tell))
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
