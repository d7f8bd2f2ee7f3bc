"""The lab's results as tables for a terminal."""

from rich.console import Console
from rich.table import Table

from engine.lab.allocators import LabSettings
from engine.lab.attention_times import Measured
from engine.lab.dynamic import DynamicRun
from engine.lab.kv_shape import PAGE_BYTES
from engine.lab.moment import Use
from engine.lab.samples import Sample
from engine.lab.static import StaticUsage
from engine.lab.sweep import SweepPoint

HEADS = {
    Use.STORED: "stored",
    Use.RESERVED: "over-\nreserved",
    Use.INTERNAL: "internal\nwaste",
    Use.EXTERNAL: "external\n(holes)",
    Use.USABLE: "free,\nusable",
}


def print_sample(console: Console, sample: Sample, settings: LabSettings) -> None:
    """What is compared, in two lines."""
    left_out = f", {sample.left_out:,} longer ones left out" if sample.left_out else ""
    console.print(
        f"{len(sample.lengths):,} sequences ({sample.name}), {sum(sample.totals):,} tokens; "
        f"max_model_len {settings.max_model_len:,}{left_out}"
    )
    shape = settings.shape
    console.print(
        f"mapped: pages of {PAGE_BYTES >> 20} MiB hold {shape.tokens_per_page:,} tokens of one layer's "
        f"K or V, {shape.pages_at_a_time} pages at a time"
    )


def print_static(console: Console, usages: list[StaticUsage], settings: LabSettings) -> None:
    table = Table(title=f"All stored at once; paged in blocks of {settings.block_size}")
    _columns(
        table, "allocator", "slots taken", "utilisation", "wasted a\nsequence", "table\nentries"
    )
    for usage in usages:
        table.add_row(usage.kind.value, *_usage(usage))
    console.print(table)


def print_sweep(console: Console, points: list[SweepPoint], measured: Measured | None) -> None:
    table = Table(title="Paged, over the block size")
    _columns(
        table,
        *("block\nsize", "slots taken", "utilisation", "wasted a\nsequence", "table\nentries"),
        *("attention, paged /\ncontiguous", "least – most"),
    )
    for point in points:
        ratio = measured.ratio(point.block_size) if measured else None
        time = (
            (f"{ratio.median:.2f} ×", f"{ratio.least:.2f} – {ratio.most:.2f}")
            if ratio
            else ("not measured", "–")
        )
        table.add_row(f"{point.block_size:,}", *_usage(point.usage), *time)
    console.print(table)
    if measured is None:
        console.print(
            "Attention's time: not measured. `glasspool bench attention --out FOLDER` measures it here; "
            "then add --attention FOLDER/attention.json"
        )
    else:
        console.print(f"Attention's time, median over the shapes measured: {measured.origin}")


def print_dynamic(console: Console, runs: list[DynamicRun], every: float) -> None:
    requests, memory = runs[0].requests, runs[0].memory
    table = Table(
        title=f"{requests:,} requests, one in {every:g} steps, over {memory:,} slots: shares of memory"
    )
    _columns(table, "allocator", *HEADS.values(), "running\nmean", "running\nmost")
    for run in runs:
        shares = (f"{100 * run.mean.share(use):.1f} %" for use in Use)
        table.add_row(run.kind.value, *shares, f"{run.mean_running:.1f}", f"{run.peak_running:,}")
    console.print(table)
    fate = Table(title="What became of the requests; waits in steps")
    _columns(
        fate,
        *("allocator", "waited", "mean\nwait", "could not\nbe placed"),
        *("although enough\nmemory was free", "although enough\nslots were empty", "never\nfit"),
        *("preempted", "stored\nagain", "all done\nat step"),
    )
    for run in runs:
        fate.add_row(
            run.kind.value,
            f"{run.waited:,}",
            f"{run.mean_wait:,.0f}",
            f"{run.refused:,}",
            f"{run.refused_with_free:,}",
            f"{run.refused_with_empty:,}",
            f"{run.never_fit:,}",
            f"{run.preemptions:,}",
            f"{run.recomputed:,}",
            f"{run.steps:,}",
        )
    console.print(fate)
    console.print(
        "could not be placed: at some step, when it was their turn to start or to grow; each counts "
        "once. memory was free: as much as it would have taken, no sequence had it. slots were empty: "
        "without a token, also where other sequences had them; enough for all its tokens"
    )


def _columns(table: Table, first: str, *others: str) -> None:
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")


def _usage(usage: StaticUsage) -> tuple[str, ...]:
    return (
        f"{usage.taken:,}",
        f"{100 * usage.utilisation:.1f} %",
        f"{usage.wasted_per_sequence:,.1f}",
        f"{usage.table_entries:,}",
    )
