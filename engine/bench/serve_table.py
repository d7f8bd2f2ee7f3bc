"""The figures of a `bench serve` run on the screen, in 100 columns."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.bench.serve_report import ServeFigures, Spread

ERRORS_SHOWN = 8


def show(console: Console, title: str, figures: ServeFigures) -> None:
    """Print totals, latencies, what failed, and what to know of the figures."""
    console.print(f"\n[bold]{escape(title)}[/bold]")
    console.print(_totals(figures))
    console.print(_latencies(figures))
    if figures.errors:
        console.print(_errors(figures))
    for note in figures.notes:
        console.print(f"[yellow]![/yellow] {escape(note)}")


def _totals(figures: ServeFigures) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_column(justify="right")
    cut_off = f", {figures.cut_off:,} cut off" if figures.cut_off else ""
    per_chunk = _ratio(figures.total_output_tokens, figures.chunks)
    for row in (
        ("requests ok", f"{figures.completed:,}", "requests/s", _text(figures.request_throughput)),
        (
            "requests failed",
            f"{figures.failed:,}{cut_off}",
            "output tokens/s",
            _text(figures.output_throughput),
        ),
        (
            "duration",
            f"{figures.duration:.2f} s",
            "input + output tokens/s",
            _text(figures.total_token_throughput),
        ),
        (
            "input tokens",
            _text(figures.total_input_tokens),
            "in flight, mean",
            _text(figures.mean_concurrent_requests),
        ),
        (
            "output tokens",
            _text(figures.total_output_tokens),
            "in flight, most",
            _text(figures.max_concurrent_requests),
        ),
        (
            "tokens a chunk",
            _text(per_chunk),
            "client: CPU of a core",
            "–" if figures.client_cpu is None else f"{figures.client_cpu:.0%}",
        ),
    ):
        table.add_row(row[0], row[1], f"   {row[2]}", row[3])
    return table


def _latencies(figures: ServeFigures) -> Table:
    table = Table(title="milliseconds", title_justify="left", title_style="dim")
    table.add_column("")
    for name in ("values", "mean", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="right")
    for name, spread in (
        ("time to first token (TTFT)", figures.ttft_ms),
        ("between chunks (ITL)", figures.itl_ms),
        ("per output token (TPOT)", figures.tpot_ms),
        ("end to end", figures.e2el_ms),
        ("sent late", figures.sent_late_ms),
        ("client's loop late", figures.client_lag_ms),
    ):
        if spread is None:
            table.add_row(name, "not measured", *["–"] * 5)
        else:
            table.add_row(name, f"{spread.count:,}", *_cells(spread))
    return table


def _cells(spread: Spread) -> list[str]:
    return [_text(value) for value in (spread.mean, spread.p50, spread.p90, spread.p99, spread.max)]


def _errors(figures: ServeFigures) -> Table:
    table = Table(title="failed", title_justify="left", title_style="dim")
    table.add_column("requests", justify="right")
    table.add_column("status")
    table.add_column("message of the first")
    for kind in figures.errors[:ERRORS_SHOWN]:
        status = "–" if kind.status is None else str(kind.status)
        table.add_row(f"{kind.count:,}", status, escape(kind.message))
    rest = figures.errors[ERRORS_SHOWN:]
    if rest:
        table.add_row(f"{sum(kind.count for kind in rest):,}", "", f"{len(rest)} other kinds")
    return table


def _ratio(amount: float | None, by: float) -> float | None:
    return amount / by if amount is not None and by else None


def _text(value: float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
