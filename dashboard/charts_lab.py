"""Charts of the lab: slots by what they are for, memory by address, and the sweep over block sizes."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import as_spec, coloured, ink
from engine.lab import Use

NAMES = {
    Use.STORED: "stored",
    Use.RESERVED: "over-reserved",
    Use.INTERNAL: "internal waste",
    Use.EXTERNAL: "external waste (holes)",
    Use.USABLE: "free, usable",
}
"""What the page calls the uses of a slot."""
_COLOURS = dict(zip(NAMES.values(), ("used", "cached", "shared", "preempted", "free"), strict=True))
LINES = 4
"""Lines that an address map is wrapped into."""
_GAP = 1


@st.cache_resource(show_spinner=False)
def _static_spec(kinds: tuple[str, ...], ink: str) -> dict[str, Any]:
    """Expects allocator, use, slots, order, and taken and label in the rows of stored slots."""
    base = alt.Chart(alt.NamedData("slots"))
    y = alt.Y("allocator:N", title=None, sort=list(kinds))
    bars = base.mark_bar().encode(
        x=alt.X(
            "slots:Q", title="slots taken", stack="zero", axis=alt.Axis(format="~s", tickCount=8)
        ),
        y=y,
        color=coloured("use", {name: _COLOURS[name] for name in ("stored", "internal waste")}),
        order="order:Q",
        tooltip=[
            alt.Tooltip("allocator:N"),
            alt.Tooltip("use:N", title="slots for"),
            alt.Tooltip("slots:Q", format=","),
        ],
    )
    text = base.mark_text(align="left", dx=5, color=ink).encode(
        x=alt.X("taken:Q", title="slots taken"), y=y, text="label:N"
    )
    return as_spec(alt.layer(bars, text).properties(height=150))


def static_chart(rows: pd.DataFrame, kinds: tuple[str, ...]) -> None:
    """Slots that each allocator takes to store the lengths, and what of them stores nothing."""
    st.vega_lite_chart(
        rows,
        _static_spec(kinds, ink()),
        key="lab-static",
        width="stretch",
        alt="Slots that each allocator takes, stored and wasted",
    )


@st.cache_resource(show_spinner=False)
def _shares_spec(kinds: tuple[str, ...]) -> dict[str, Any]:
    """Expects allocator, use, share (0..1), slots, order."""
    chart = (
        alt.Chart(alt.NamedData("shares"))
        .mark_bar()
        .encode(
            x=alt.X(
                "share:Q",
                title="share of the memory, mean over the arrivals",
                stack="zero",
                scale=alt.Scale(domain=[0, 1], nice=False),
                axis=alt.Axis(format="%", tickCount=10),
            ),
            y=alt.Y("allocator:N", title=None, sort=list(kinds)),
            color=coloured("use", _COLOURS),
            order="order:Q",
            tooltip=[
                alt.Tooltip("allocator:N"),
                alt.Tooltip("use:N", title="slots for"),
                alt.Tooltip("share:Q", format=".1%"),
                alt.Tooltip("slots:Q", title="slots, mean", format=",.0f"),
            ],
        )
        .properties(height=150)
    )
    return as_spec(chart)


def shares_chart(rows: pd.DataFrame, kinds: tuple[str, ...]) -> None:
    """What the memory is for, on average: one stacked bar an allocator."""
    st.vega_lite_chart(
        rows,
        _shares_spec(kinds),
        key="lab-shares",
        width="stretch",
        alt="Mean shares of memory by use, for each allocator",
    )


@st.cache_resource(show_spinner=False)
def _map_spec(kinds: tuple[str, ...], width: int, ink: str) -> dict[str, Any]:
    """Expects the rows of engine.lab.rows.map_rows with top and bottom, and use by its name here."""
    tall = LINES + _GAP
    hovered = alt.selection_point(
        name="hovered", fields=["allocator", "sequence"], on="pointerover", clear="pointerout"
    )
    centres = [number * tall + LINES / 2 for number in range(len(kinds))]
    names = f"{list(kinds)}[floor(datum.value / {tall})]"
    chart = (
        alt.Chart(alt.NamedData("segments"))
        .mark_rect(stroke=ink, strokeWidth=0.4, strokeOpacity=0.55)
        .encode(
            x=alt.X(
                "from:Q",
                title=f"slot within a line of {width:,}",
                scale=alt.Scale(domain=[0, width], nice=False),
                axis=alt.Axis(grid=False, format=",d", tickCount=8),
            ),
            x2="to:Q",
            y=alt.Y(
                "top:Q",
                title=None,
                scale=alt.Scale(domain=[0, len(kinds) * tall - _GAP], reverse=True, nice=False),
                axis=alt.Axis(
                    values=centres, labelExpr=names, ticks=False, domain=False, grid=False
                ),
            ),
            y2="bottom:Q",
            color=coloured("use", _COLOURS),
            opacity=alt.condition(hovered, alt.value(1), alt.value(0.3)),
            tooltip=[
                alt.Tooltip("allocator:N"),
                alt.Tooltip("use:N", title="slots for"),
                alt.Tooltip("owner:N", title="sequence"),
                alt.Tooltip("slots:Q", title="slots in a row", format=","),
                alt.Tooltip("start:Q", title="first slot", format=","),
            ],
        )
        .add_params(hovered)
        .properties(height=len(kinds) * tall * 15)
    )
    return as_spec(chart)


def map_chart(rows: pd.DataFrame, kinds: tuple[str, ...], width: int) -> None:
    """Memory by address at one moment, each allocator's wrapped into LINES lines of `width` slots."""
    number = rows["allocator"].map({kind: number for number, kind in enumerate(kinds)})
    top = number * (LINES + _GAP) + rows["line"]
    st.vega_lite_chart(
        rows.assign(
            top=top,
            bottom=top + 0.9,
            use=rows["use"].map({use.value: name for use, name in NAMES.items()}),
            owner=[_owner(sequence) for sequence in rows["sequence"]],
        ),
        _map_spec(kinds, width, ink()),
        key="lab-map",
        width="stretch",
        alt="Memory by address for each allocator: stored, over-reserved, wasted and free slots",
    )


def _owner(sequence: float | None) -> str:
    return "none" if pd.isna(sequence) else f"{int(sequence):,}"


@st.cache_resource(show_spinner=False)
def _sweep_spec(measured: bool, ink: str) -> dict[str, Any]:
    """Expects the rows of engine.lab.rows.sweep_rows, with `time` for the median and chosen (0, 1)."""
    base = alt.Chart(alt.NamedData("sizes"))
    tooltip = [
        alt.Tooltip("block size:O"),
        alt.Tooltip("utilisation:Q", format=".1%"),
        alt.Tooltip("wasted per sequence:Q", title="wasted slots a sequence", format=",.1f"),
        alt.Tooltip("table entries:Q", format=","),
        alt.Tooltip("time:Q", title="attention, paged / contiguous", format=".2f"),
    ]
    extent = {"minExtent": 52, "maxExtent": 52, "titleX": -42}

    def panel(column: str, title: str, scale: alt.Scale, axis: dict[str, Any], last: bool):
        x = alt.X(
            "block size:O",
            title="block size (slots)" if last else None,
            axis=alt.Axis(labelAngle=0, labels=last, ticks=last),
        )
        y = alt.Y(
            f"{column}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4, **axis, **extent)
        )
        line = base.mark_line(strokeWidth=1.6, color=ink).encode(x=x, y=y)
        points = base.mark_point(filled=True, opacity=1, color=ink).encode(
            x=x,
            y=y,
            size=alt.condition("datum.chosen > 0", alt.value(130), alt.value(45)),
            tooltip=tooltip,
        )
        layers = [line, points]
        if column == "time":
            layers.append(
                base.mark_rule(color=ink, opacity=0.5).encode(
                    x=x, y=alt.Y("least:Q", title=title, scale=scale), y2="most:Q"
                )
            )
        return alt.layer(*layers).properties(height=110)

    panels = [
        panel("utilisation", "utilisation", alt.Scale(zero=False), {"format": "%"}, False),
        panel(
            "table entries",
            "table entries",
            alt.Scale(type="log", nice=True),
            {"format": "~s", "grid": False},
            not measured,
        ),
    ]
    if measured:
        scale = alt.Scale(zero=False, nice=True)
        panels.append(panel("time", "attention's time, ×", scale, {"format": ".2~f"}, True))
    return as_spec(alt.vconcat(*panels, spacing=8))


def sweep_chart(rows: pd.DataFrame, measured: bool) -> None:
    """Utilisation, table entries and, where measured, attention's time over the block size."""
    st.vega_lite_chart(
        rows,
        _sweep_spec(measured, ink()),
        key=f"lab-sweep-{measured}",
        width="stretch",
        alt="Utilisation, block-table entries and attention's time over the block size",
    )
