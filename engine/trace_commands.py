"""`glasspool check`, `stats`, `export`, `diff`: what can be done with a recorded trace, without a model."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from engine.core.config import ConfigError
from engine.events.checking import check_trace
from engine.events.diff import diff_traces
from engine.events.index import Progress as Tell
from engine.events.stats import measure_trace
from engine.events.trace import TraceError
from engine.trace_report import print_check, print_diff, print_stats

app = typer.Typer()

Trace = Annotated[Path, typer.Argument(help="A recorded .jsonl.zst file.", metavar="TRACE")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


class Target(StrEnum):
    """What `glasspool export` writes."""

    PERFETTO = "perfetto"
    PARQUET = "parquet"
    CSV = "csv"


@app.command()
def check(trace: Trace) -> None:
    """Check every rule that the trace can show. Exit code 1 at the first that does not hold."""
    with _bar("checking") as tell:
        report = check_trace(trace, tell)
    print_check(_console(), trace, report)
    if report.fault is not None:
        raise typer.Exit(1)


@app.command()
def stats(trace: Trace, json: Json = False) -> None:
    """The figures of a trace: work, memory, latencies, preemptions."""
    with _bar("reading") as tell:
        figures = measure_trace(trace, tell)
    if json:
        print(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())
    else:
        print_stats(_console(), trace, figures)


@app.command()
def export(
    trace: Trace,
    to: Annotated[Target, typer.Option(help="Perfetto timeline, Parquet tables, or CSV tables.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File (perfetto) or folder (parquet, csv); by default beside the trace."),
    ] = None,
) -> None:
    """Write a trace for Perfetto, or as tables of its steps, events and requests."""
    # Imported here: each needs what the other commands do without.
    from engine.export.perfetto import export_perfetto
    from engine.export.table_files import TableFormat, export_tables

    console = _console()
    stem = trace.name.removesuffix(".zst").removesuffix(".jsonl")
    try:
        if to is Target.PERFETTO:
            target = out or trace.with_name(f"{stem}.perfetto.json.gz")
            with _bar("exporting") as tell:
                count = export_perfetto(trace, target, tell)
            console.print(f"{target}: {count:,} trace events. Open it on https://ui.perfetto.dev")
            return
        folder = out or trace.with_name(f"{stem}.{to}")
        with _bar("exporting") as tell:
            rows = export_tables(trace, folder, TableFormat(to), tell)
    except ImportError:
        raise ConfigError(
            f"--to {to} needs pyarrow: install glasspool[export], or use --to csv"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"can't write {error.filename}: {error.strerror}; choose another place with --out"
        ) from None
    for path, count in rows.items():
        console.print(f"{path}: {count:,} rows")


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(help="A recorded .jsonl.zst file.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another one.", metavar="B")],
    json: Json = False,
) -> None:
    """Where two runs part, and how their figures differ. Exit code 0 same, 1 different, 2 trouble."""
    try:
        with _bar("comparing") as tell:
            found = diff_traces(a, b, tell)
    except TraceError as error:
        print(f"glasspool: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    if json:
        data = {"same": found.same, **msgspec.to_builtins(found)}
        print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    else:
        print_diff(_console(), a, b, found)
    if not found.same:
        raise typer.Exit(1)


def _console() -> Console:
    """Standard output; where that is no terminal, wide enough that no figure is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 100, soft_wrap=False)


@contextmanager
def _bar(what: str) -> Iterator[Tell]:
    """A progress bar on standard error, gone when the work is done; none where that is no terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=1)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(1, total))

        yield tell
