"""`glasspool lab …`: the allocators compared, on the command line."""

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from engine.core.config import ConfigError
from engine.lab import (
    SHAPES,
    DynamicRun,
    KvShape,
    LabSettings,
    block_size_sweep,
    lab_requests,
    read_attention,
    read_lengths,
    run_all,
    static_usage,
)
from engine.lab.report import print_dynamic, print_sample, print_static, print_sweep
from engine.lab.rows import Row, dynamic_rows, map_rows, static_rows, sweep_rows

app = typer.Typer(
    help="The idea of paged memory, in exact numbers, without a model.", no_args_is_help=True
)

_MAP_LINES = 4


@app.callback()
def lab() -> None:
    """Keeps `fragmentation` a command of its own name."""


@app.command()
def fragmentation(
    lengths: Annotated[
        str,
        typer.Option(
            help="sample; fixed:PROMPT,OUTPUT; uniform:A-B,C-D; lognormal:MEAN,MEAN,SIGMA; a public "
            "trace (Azure, BurstGPT, Mooncake); or a recorded .jsonl.zst."
        ),
    ] = "sample",
    count: Annotated[int, typer.Option(help="Most sequences.")] = 2_000,
    max_model_len: Annotated[
        int, typer.Option(help="Most tokens of a sequence; what naive takes for each.")
    ] = 4_096,
    block_size: Annotated[int, typer.Option(help="Slots in a block of the paged one.")] = 16,
    block_sizes: Annotated[
        str, typer.Option(help="Block sizes of the sweep, a list.")
    ] = "1,8,16,32,128",
    memory: Annotated[
        int, typer.Option(help="Slots of memory that requests come to and leave.")
    ] = 16_384,
    requests: Annotated[
        int, typer.Option(help="So many of the sequences come and leave, the first ones.")
    ] = 500,
    every: Annotated[
        float, typer.Option(help="Steps between two arrivals, on average, of any lengths.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of lengths and arrivals.")] = 0,
    model_shape: Annotated[
        str,
        typer.Option(
            help="What a 2 MiB page holds: a model's name, or KV_HEADS,HEAD_DIM,LAYERS,BYTES."
        ),
    ] = "Llama-3.1-8B",
    attention: Annotated[
        Path | None,
        typer.Option(help="Times of attention, as glasspool bench attention --out writes them."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the data and pictures.")] = None,
) -> None:
    """Naive, buddy, exact, mapped and paged memory on the same lengths: who wastes what."""
    settings = LabSettings(max_model_len, block_size, _shape(model_shape))
    if requests < 1:
        raise ConfigError(f"requests is {requests}; ask for at least 1")
    measured = read_attention(attention) if attention else None
    errors = Console(stderr=True)
    with errors.status("reading lengths") as status:
        sample = read_lengths(lengths, count, seed).up_to(max_model_len)
        status.update("storing all at once")
        usages = static_usage(sample.totals, settings)
        points = block_size_sweep(
            sample.totals,
            settings,
            _numbers(block_sizes),
            lambda size: status.update(f"storing all at once, block size {size}"),
        )
        coming = lab_requests(sample.lengths[:requests], every, seed)
        runs = run_all(
            coming,
            memory,
            settings,
            progress=lambda kind: status.update(f"requests come and leave, {kind}"),
        )
    tables = {
        "static": static_rows(usages),
        "sweep": sweep_rows(points, measured),
        "dynamic": dynamic_rows(runs),
    }
    if json:
        made_with = {
            "lengths": sample.name,
            "sequences": len(sample.lengths),
            "tokens": sum(sample.totals),
            "left_out": sample.left_out,
            "settings": settings,
            "memory": memory,
            "every": every,
            "seed": seed,
            "attention": measured.origin if measured else None,
        }
        data = {**made_with, **tables}
        print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    else:
        console = _console()
        print_sample(console, sample, settings)
        print_static(console, usages, settings)
        print_sweep(console, points, measured)
        print_dynamic(console, runs, every)
    if out is not None:
        for path in _save(out, tables, runs):
            errors.print(f"wrote {path}")


def _save(folder: Path, tables: dict[str, list[Row]], runs: list[DynamicRun]) -> list[Path]:
    # Imported here: needs altair, which the tables do without.
    try:
        from engine.bench.report import save
        from engine.lab import charts
    except ImportError:
        raise ConfigError("--out needs altair: install glasspool[bench]") from None
    middle = len(runs[0].moments) // 2
    memory = [row for run in runs for row in map_rows(run, middle, _MAP_LINES)]
    pictures: dict[str, tuple[list[Row], Any]] = {
        "static": (tables["static"], charts.static_chart(tables["static"])),
        "sweep": (tables["sweep"], charts.sweep_chart(tables["sweep"])),
        "dynamic": (tables["dynamic"], charts.dynamic_chart(tables["dynamic"])),
        "memory": (memory, charts.map_chart(memory, runs[0].moments[middle].step)),
    }
    try:
        return [
            path
            for name, (rows, chart) in pictures.items()
            for path in save(folder, name, rows, chart)
        ]
    except OSError as error:
        raise ConfigError(
            f"can't write {error.filename}: {error.strerror}; choose another place with --out"
        ) from None


def _shape(text: str) -> KvShape:
    if text in SHAPES:
        return SHAPES[text]
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 4:
        raise ConfigError(
            f"{text or 'an empty text'} is no known shape: use one of {', '.join(SHAPES)}, or write "
            "kv_heads,head_dim,layers,bytes like 8,128,32,2"
        )
    return KvShape(*numbers)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"{text!r} is no list of numbers above 0: write it like 1,8,32")
    return numbers


def _console() -> Console:
    """Standard output; where that is no terminal, wide enough that no figure is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120, soft_wrap=False)
