"""A measurement as a table on the screen, as JSON and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table


def show(title: str, rows: Sequence[dict[str, Any]], units: dict[str, str]) -> None:
    """Print rows as a table. `units` names each column's unit; a column without one has none."""
    table = Table(title=title)
    columns = list(rows[0])
    for column in columns:
        unit = units.get(column)
        table.add_column(f"{column}\n[dim]{unit}[/dim]" if unit else column, justify="right")
    for row in rows:
        table.add_row(*(_text(row[column]) for column in columns))
    Console().print(table)


def save(folder: Path, name: str, rows: Sequence[dict[str, Any]], chart: Any) -> list[Path]:
    """Write `name`.json and `name`.svg (an Altair chart) into the folder; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, picture = folder / f"{name}.json", folder / f"{name}.svg"
    data.write_bytes(msgspec.json.format(msgspec.json.encode(list(rows)), indent=1))
    chart.save(picture)
    return [data, picture]


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
