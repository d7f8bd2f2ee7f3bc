"""A capacity calculation as tables on the screen and as JSON."""

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from engine.lab.capacity import GpuBudget, LengthRow, Sizing
from engine.lab.model_shapes import ModelShape
from engine.lab.observation import Observation
from engine.lab.reconciliation import Reconciliation, conclusion


class CapacityReport(msgspec.Struct, frozen=True):
    """All that one call worked out. shape: None for an engine without a model."""

    shape: ModelShape | None
    dtype: str | None
    budget: GpuBudget | None
    sizing: Sizing
    rows: list[LengthRow]
    seen: Observation | None
    reconciliation: Reconciliation | None


def as_data(report: CapacityReport) -> dict[str, Any]:
    """For JSON: what was given and what follows from it, bytes and tokens as numbers."""
    sizing, seen = report.sizing, report.seen
    data = {
        "model": msgspec.to_builtins(report.shape),
        "dtype": report.dtype,
        "budget": None,
        **msgspec.to_builtins(sizing),
        "bytes_per_block": sizing.bytes_per_block,
        "num_blocks": sizing.num_blocks,
        "tokens": sizing.tokens,
        "lengths": msgspec.to_builtins(report.rows),
        "observed": None,
        "reconciliation": None,
    }
    if report.budget is not None:
        data["budget"] = {
            **msgspec.to_builtins(report.budget),
            "usable": report.budget.usable,
            "kv_memory": report.budget.kv_memory,
        }
    if seen is not None:
        data["observed"] = {**msgspec.to_builtins(seen), "running": seen.running}
        data["reconciliation"] = {
            **msgspec.to_builtins(report.reconciliation),
            "missing": report.reconciliation.missing,
        }
    return data


def print_report(console: Console, report: CapacityReport) -> None:
    console.print(_figures(report))
    console.print()
    console.print(_lengths(report.rows))
    if report.reconciliation is not None and report.seen is not None:
        console.print()
        console.print(_account(report.reconciliation))
        for line in conclusion(report.reconciliation, report.seen):
            console.print(line)


def _figures(report: CapacityReport) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    shape, sizing, budget = report.shape, report.sizing, report.budget
    if shape is not None:
        dims = f"{shape.layers} layers, {shape.kv_heads} KV heads of {shape.head_dim}"
        table.add_row("model", shape.name, f"{dims}; {shape.attention}; {shape.source}")
    if budget is not None:
        share = f"{budget.gpu_memory:,} x {budget.gpu_memory_utilization:g}"
        table.add_row("usable GPU memory", f"{budget.usable:,}", f"bytes = {share}")
        table.add_row("- weights", f"{budget.weights:,}", "bytes of the checkpoint, or as given")
        table.add_row("- overhead", f"{budget.overhead:,}", "bytes: activations, graphs, others")
    if shape is not None:
        table.add_row("KV cache memory", f"{sizing.memory:,}", "bytes")
        parts = f"2 x {shape.layers} x {shape.kv_heads} x {shape.head_dim} numbers, {report.dtype}"
        table.add_row("bytes per token", f"{sizing.bytes_per_token:,}", f"K and V: {parts}")
        block = f"of {sizing.block_size} tokens"
        table.add_row("bytes per block", f"{sizing.bytes_per_block:,}", block)
    table.add_row("blocks", f"{sizing.num_blocks:,}", "rounded down")
    table.add_row("cacheable tokens", f"{sizing.tokens:,}", f"blocks x {sizing.block_size}")
    return table


def _lengths(rows: list[LengthRow]) -> Table:
    table = Table()
    for name, unit in (
        ("length", "tokens with KV"),
        ("blocks", "of a sequence"),
        ("wasted", "slots of its last block"),
        ("sequences", "that fit at once"),
    ):
        table.add_column(f"{name}\n[dim]{unit}[/dim]", justify="right")
    for row in rows:
        cells = (row.length, row.blocks, row.wasted_slots, row.sequences)
        table.add_row(*(f"{value:,}" for value in cells))
    return table


def _account(found: Reconciliation) -> Table:
    table = Table()
    table.add_column("cause, in this order")
    table.add_column("sequences", justify="right")
    table.add_column("why")
    table.add_row("sized for", f"{found.sized_for:,}", f"sequences of {found.length:,} tokens")
    for effect in found.effects:
        style = "bold" if effect is found.largest else None
        change = f"{-effect.missing:+,}" if effect.missing else "0"
        table.add_row(effect.cause.value, change, effect.why, style=style)
    table.add_section()
    table.add_row("runs", f"{found.runs:,}", "")
    return table
