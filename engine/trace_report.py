"""What the trace commands print: pages of text that fit 100 columns. Computes nothing."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.events.checking import Report
from engine.events.diff import IGNORED, Figure, TraceDiff
from engine.events.rules.broken import RULES
from engine.events.stats import TraceStats
from engine.events.summaries import Level, Percentiles

UNKNOWN = "unknown"
_MORE = (".count", ".p90", ".max", ".min", ".mean_by_step")
"""Parts of a figure that are left out where two runs are compared."""


def print_check(console: Console, trace: Path, report: Report) -> None:
    """One sentence for a good trace, one for the first fault of a bad one, and what was not checked."""
    if report.fault is not None:
        console.print(f"[red]broken[/red]  {escape(str(trace))}, {escape(str(report.fault))}.")
        return
    console.print(
        f"[green]ok[/green]  {escape(str(trace))}: {report.records:,} records "
        f"({_counted(report.steps, 'step')}, {_counted(report.events, 'event')}, "
        f"{_counted(report.keyframes, 'keyframe')}) over "
        f"{seconds(report.seconds)} keep all {len(report.checked)} rules that were checked."
    )
    if report.left_out:
        console.print(f"    {report.left_out:,} step records were left out in gaps: not checked.")
    if report.missing:
        console.print(f"    {escape(report.missing)}.")
    for lacking in dict.fromkeys(report.unchecked.values()):
        for rule in (rule for rule, why in report.unchecked.items() if why == lacking):
            console.print(
                f"    not checked, the trace has no {lacking}: rule {rule}, {RULES[rule]}"
            )


def print_stats(console: Console, trace: Path, stats: TraceStats) -> None:
    """The figures of one trace, by subject."""
    totals, size = stats.totals, stats.block_size
    console.print(
        f"[bold]{escape(trace.name)}[/bold]  {escape(stats.model)}, {stats.num_blocks:,} blocks of "
        f"{size} tokens"
    )
    if stats.simulated:
        console.print("Simulated: no model ran; times are those of a cost model.")
    if stats.before.steps:
        console.print(
            f"The trace begins after step {stats.before.steps - 1:,} of the engine: counters count "
            "from the engine's start."
        )
    console.print()
    _print_run(console, stats)
    _print_memory(console, stats)
    finished = totals.requests_finished
    outcomes = ", ".join(f"{count:,} {name}" for name, count in sorted(finished.items()))
    _lines(
        console,
        "requests",
        ("added", f"{totals.requests_added:,}"),
        ("ended", outcomes or "none"),
        ("unfinished", f"{stats.unfinished:,}"),
    )
    _print_latencies(console, stats)
    if stats.left_out or stats.missing:
        console.print()
    if stats.left_out:
        console.print(
            f"{stats.left_out:,} step records are missing in {stats.gaps} gaps, "
            f"{seconds(stats.unseen_seconds)} in all: no mean counts that time."
        )
    if stats.missing:
        console.print(escape(stats.missing))


def _print_run(console: Console, stats: TraceStats) -> None:
    totals = stats.totals
    work = [("prefill", totals.prefill_tokens), ("decode", totals.decode_tokens),
            ("recompute", totals.recompute_tokens)]  # fmt: skip
    tokens = ", ".join(f"{count:,} {name}" for name, count in work)
    rate = stats.per_second(stats.computed_tokens)
    output = stats.per_second(stats.output_tokens)
    _lines(
        console,
        "run",
        ("lasts", f"{seconds(stats.seconds)}, {stats.steps:,} steps, {stats.events:,} events"),
        ("tokens computed", tokens),
        ("throughput", f"{_number(rate)} computed, {_number(output)} output tokens/s, idle included"),
        ("recompute tax", f"{_share(stats.recompute_tax)} of all computed tokens"),
        ("prefix hits", f"{_share(stats.prefix_hit_rate)} of {totals.prefix_queried_tokens:,} tokens "
         "looked up"),
    )  # fmt: skip


def _print_memory(console: Console, stats: TraceStats) -> None:
    totals = stats.totals
    console.print("[bold]memory[/bold]")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "mean by time", "mean by step", "least", "most"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row("active blocks / pool", *_level(stats.utilisation, _share))
    table.add_row("filled / allocated slots", *_level(stats.fill, _share))
    table.add_row("references / active block", *_level(stats.sharing, lambda x: f"{x:.2f}"))
    console.print(table)
    known = stats.utilisation is not None
    preempted = sum(totals.preemptions.values())
    victims = ", ".join(f"{victim.request} ({victim.preemptions}x)" for victim in stats.victims)
    _lines(
        console,
        None,
        ("handed out", _known(
            known, f"{totals.allocated_free:,} free, {totals.allocated_evicted:,} evicted blocks")),
        ("evictions", _known(known, f"{totals.evicted:,}")),
        ("copies on write", _known(known, f"{totals.cow_copies:,}")),
        ("failed allocations", _known(known, f"{totals.allocation_failures:,}")),
        ("preemptions", f"{preempted:,} of {stats.preempted_requests:,} requests"),
        ("most often", victims or "none"),
    )  # fmt: skip


def _print_latencies(console: Console, stats: TraceStats) -> None:
    console.print("[bold]latencies[/bold]")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "count", "mean", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="left" if not name else "right")
    rows = (
        ("in the queue", stats.queue_seconds),
        ("first token", stats.first_token_seconds),
        ("between tokens", stats.inter_token_seconds),
        ("request", stats.request_seconds),
        ("step", stats.step_seconds),
        ("  schedule", stats.schedule_seconds),
        ("  model", stats.model_seconds),
        ("  sample", stats.sample_seconds),
    )
    for name, values in rows:
        table.add_row(name, *_percentiles(values))
    console.print(table)


def print_diff(console: Console, a: Path, b: Path, diff: TraceDiff) -> None:
    """Where two runs part, then their figures side by side."""
    console.print(f"A  {escape(str(a))}\nB  {escape(str(b))}\n")
    if diff.first is None:
        console.print("[green]same[/green]  every event of every step is equal")
    else:
        first = diff.first
        console.print(
            f"[yellow]different[/yellow]  from step {first.step}, record {first.seq} on: "
            f"{escape(first.text)}"
        )
    console.print(f"[dim]not compared: {IGNORED}[/dim]\n")
    _print_figures(console, "settings that differ", diff.settings)
    shown = [figure for figure in diff.figures if not figure.name.endswith(_MORE)]
    _print_figures(console, "figures that differ, times included (all of them: --json)", shown)


def _print_figures(console: Console, title: str, figures: list[Figure]) -> None:
    if not figures:
        return
    console.print(f"[bold]{title}[/bold]")
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in ("A", "B", "B - A"):
        table.add_column(name, justify="right")
    for figure in figures:
        table.add_row(figure.name, _cell(figure.a), _cell(figure.b), _change(figure))
    console.print(table)


def seconds(value: float) -> str:
    """A duration in the unit that it is read best in."""
    if value >= 120:
        return f"{value / 60:,.1f} min"
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1000:.2f} ms" if value >= 0.001 else f"{value * 1e6:.0f} µs"


def _lines(console: Console, title: str | None, *rows: tuple[str, str]) -> None:
    if title:
        console.print(f"[bold]{title}[/bold]")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=18)
    table.add_column()
    for name, value in rows:
        table.add_row(name, escape(value))
    console.print(table)
    console.print()


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _known(known: bool, text: str) -> str:
    return text if known else UNKNOWN


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}"


def _level(level: Level | None, show: Callable[[float], str]) -> tuple[str, ...]:
    if level is None:
        return (UNKNOWN,) * 4
    return tuple(map(show, (level.mean_by_time, level.mean_by_step, level.min, level.max)))


def _percentiles(values: Percentiles | None) -> tuple[str, ...]:
    if values is None:
        return (UNKNOWN,) * 6
    parts = (values.mean, values.p50, values.p90, values.p99, values.max)
    return (f"{values.count:,}", *map(seconds, parts))


def _cell(value: int | float | str | None) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else escape(value)


def _change(figure: Figure) -> str:
    if isinstance(figure.a, int | float) and isinstance(figure.b, int | float):
        change = figure.b - figure.a
        return f"{change:+,}" if isinstance(change, int) else f"{change:+,.4g}"
    return ""
