"""What `glasspool simulate` prints: one run's figures, or a line a run."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.simulate.figures import Spread
from engine.simulate.runs import Outcome


def print_outcome(console: Console, outcome: Outcome) -> None:
    """The figures of one run."""
    figures = outcome.figures
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in (
        ("pool", f"{outcome.num_blocks:,} blocks of {outcome.block_size} slots"),
        ("simulated time", f"{_seconds(figures.seconds)}, {figures.steps:,} steps"),
        ("requests", f"{figures.finished:,} finished, {figures.refused:,} refused"),
        (
            "active blocks / pool",
            f"{_share(figures.utilisation_mean)} mean by time, "
            f"{_share(figures.utilisation_peak)} at most",
        ),
        (
            "preemptions",
            f"{figures.preemptions:,}; {_share(figures.recompute_share)} of all computed tokens "
            "were recomputed",
        ),
        ("prefix hits", f"{_share(figures.prefix_hit_rate)} of the tokens looked up"),
        (
            "throughput",
            f"{_number(figures.output_tokens_per_second)} output, "
            f"{_number(figures.computed_tokens_per_second)} computed tokens/s, idle included",
        ),
        ("first token", f"p50 / p95 {_spread(figures.first_token_seconds)}"),
        ("between tokens", f"p50 / p95 {_spread(figures.inter_token_seconds)}"),
        ("request", f"p50 / p95 {_spread(figures.request_seconds)}"),
    ):
        table.add_row(name, value)
    console.print(table)
    _print_refusals(console, outcome)


def print_outcomes(console: Console, outcomes: Sequence[Outcome]) -> None:
    """A line a run, then what was refused, and why."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for title, justify in (
        ("run", "left"),
        ("blocks", "right"),
        ("active\nmean", "right"),
        ("active\nmost", "right"),
        ("preemp-\ntions", "right"),
        ("recom-\nputed", "right"),
        ("prefix\nhits", "right"),
        ("output\ntokens/s", "right"),
        ("first token\np50 / p95", "right"),
        ("between tokens\np50 / p95", "right"),
        ("request\np50 / p95", "right"),
        ("re-\nfused", "right"),
    ):
        table.add_column(title, justify=justify, overflow="fold")
    for outcome in outcomes:
        figures = outcome.figures
        table.add_row(
            escape(outcome.name.replace(", ", "\n")),
            f"{outcome.num_blocks:,}",
            _share(figures.utilisation_mean),
            _share(figures.utilisation_peak),
            f"{figures.preemptions:,}",
            _share(figures.recompute_share),
            _share(figures.prefix_hit_rate),
            _number(figures.output_tokens_per_second),
            _spread(figures.first_token_seconds),
            _spread(figures.inter_token_seconds),
            _spread(figures.request_seconds),
            f"{figures.refused:,}",
        )
    console.print(table)
    for outcome in outcomes:
        _print_refusals(console, outcome)


def _print_refusals(console: Console, outcome: Outcome) -> None:
    if outcome.refusals:
        counts = ", ".join(f"{count:,} {why}" for why, count in outcome.refusals.items())
        console.print(f"\n{escape(outcome.name)}: refused {counts}. The first was told:")
        console.print(f"  {escape(outcome.first_refusal or '')}")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _spread(value: Spread | None) -> str:
    return "–" if value is None else f"{_seconds(value.p50)} / {_seconds(value.p95)}"


def _seconds(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f} s"
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
