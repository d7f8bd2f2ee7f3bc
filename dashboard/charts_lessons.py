"""The small charts that stand below a lesson's answer."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import as_spec, coloured, ink
from dashboard.lessons.lesson import Bars, Lines

_BAR = 26
"""Pixels that a row of bars is high."""
_FONT = 13
_LEGEND = 3
"""Entries in a row of the legend: the charts stand in a column of a third of a small window."""


@st.cache_resource(show_spinner=False)
def bars_spec(
    unit: str, rows: int, most: float, colours: tuple[tuple[str, str], ...], ink: str
) -> Any:
    """`most` is the longest row's total.

    Expects columns row, part, value, start and end (of the part), total (text; of a row's last part).
    """
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelLimit=190, labelFontSize=_FONT))
    ends = alt.Chart(alt.NamedData("rows")).encode(y=y)
    bars = ends.mark_bar(height=alt.RelativeBandSize(0.62), stroke=ink, strokeWidth=0.4).encode(
        # Room for the total that stands behind the longest bar.
        x=alt.X(
            "start:Q",
            title=unit,
            scale=alt.Scale(domain=[0, 1.18 * most], nice=False),
            axis=alt.Axis(tickCount=5),
        ),
        x2="end:Q",
        color=coloured("part", dict(colours), legend=len(colours) > 1, columns=_LEGEND),
        tooltip=[
            alt.Tooltip("row:N", title="of"),
            alt.Tooltip("part:N", title="what"),
            alt.Tooltip("value:Q", title=unit, format=",.4~g"),
        ],
    )
    totals = (
        ends.transform_filter("datum.total != ''")
        .mark_text(align="left", dx=5, color=ink, fontSize=_FONT)
        .encode(x="end:Q", text="total:N")
    )
    return as_spec(alt.layer(bars, totals).properties(height=_BAR * rows))


@st.cache_resource(show_spinner=False)
def lines_spec(x: str, y: str, colours: tuple[tuple[str, str], ...]) -> Any:
    """Expects columns curve, x and y."""
    lines = (
        alt.Chart(alt.NamedData("rows"))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("x:Q", title=x, scale=alt.Scale(nice=False), axis=alt.Axis(grid=False)),
            y=alt.Y("y:Q", title=y, axis=alt.Axis(tickCount=4)),
            color=coloured("curve", dict(colours), legend=len(colours) > 1, columns=_LEGEND),
            tooltip=[
                alt.Tooltip("curve:N"),
                alt.Tooltip("x:Q", title=x, format=",.4~g"),
                alt.Tooltip("y:Q", title=y, format=",.4~g"),
            ],
        )
    )
    return as_spec(lines.properties(height=150))


def bars_chart(bars: Bars, key: str) -> None:
    """Draw it; each row ends with its total."""
    parts: list[dict[str, Any]] = []
    ends: dict[str, float] = {}
    for row, part, value in bars.rows:
        start = ends.get(row, 0.0)
        ends[row] = start + value
        parts.append(
            {
                "row": row,
                "part": part,
                "value": value,
                "start": start,
                "end": ends[row],
                "total": "",
            }
        )
    # The last part of each row comes last in this, and carries its total.
    for part in {part["row"]: part for part in parts}.values():
        total = ends[part["row"]]
        part["total"] = f"{total:,.3g}" if total < 1000 else f"{total:,.0f}"
    spec = bars_spec(bars.unit, len(ends), max(ends.values()), tuple(bars.colours.items()), ink())
    st.vega_lite_chart(
        pd.DataFrame(parts), spec, key=key, width="stretch", alt=f"Bars: {bars.unit}"
    )


def lines_chart(lines: Lines, key: str) -> None:
    """Draw it."""
    frame = pd.DataFrame(lines.rows, columns=["curve", "x", "y"])
    spec = lines_spec(lines.x, lines.y, tuple(lines.colours.items()))
    st.vega_lite_chart(frame, spec, key=key, width="stretch", alt=f"{lines.y} over {lines.x}")
