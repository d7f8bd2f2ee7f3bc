"""How many sequences fit, over their length: a curve on two logarithmic axes, and chosen lengths."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import as_spec, coloured
from engine.lab.capacity import Sizing

ANY, CHOSEN = "any length", "chosen lengths"
_KINDS = {ANY: "used", CHOSEN: "preempted"}
_STEPS_PER_DOUBLING = 4
_LONGEST = 1 << 17


@st.cache_resource(show_spinner=False)
def capacity_spec() -> dict[str, Any]:
    """Expects the rows of `capacity_rows`."""
    base = alt.Chart(alt.NamedData("fits")).encode(
        x=alt.X(
            "length:Q",
            title="tokens of a sequence",
            scale=alt.Scale(type="log", base=2, nice=False),
            axis=alt.Axis(format=",", grid=False, labelOverlap=True),
        ),
        y=alt.Y(
            "sequences:Q",
            title="sequences that fit",
            scale=alt.Scale(type="log", nice=True),
            axis=alt.Axis(format=",", labelOverlap=True, values=[10**n for n in range(9)]),
        ),
        color=coloured("kind", _KINDS),
        tooltip=[
            alt.Tooltip("length:Q", title="tokens", format=","),
            alt.Tooltip("blocks:Q", title="blocks of each", format=","),
            alt.Tooltip("sequences:Q", title="sequences", format=","),
        ],
    )
    curve = base.transform_filter(f"datum.kind == '{ANY}'").mark_line(strokeWidth=2)
    points = base.transform_filter(f"datum.kind == '{CHOSEN}'").mark_point(
        filled=True, size=70, opacity=1
    )
    return as_spec(alt.layer(curve, points).properties(height=280))


def capacity_rows(sizing: Sizing, lengths: Sequence[int]) -> pd.DataFrame:
    """The curve from one block up, and the chosen lengths; those of which not one fits are left out."""
    longest = min(sizing.tokens, max(_LONGEST, *lengths))
    curve, length = [], float(sizing.block_size)
    while length < longest:
        curve.append(round(length))
        length *= 2 ** (1 / _STEPS_PER_DOUBLING)
    rows = [
        {
            "kind": kind,
            "length": row.length,
            "blocks": row.blocks,
            "sequences": row.sequences,
        }
        for kind, of in ((ANY, [*curve, longest]), (CHOSEN, lengths))
        for row in sizing.rows(of)
        if row.sequences
    ]
    return pd.DataFrame(rows, columns=["kind", "length", "blocks", "sequences"])


def capacity_chart(sizing: Sizing, lengths: Sequence[int]) -> None:
    st.vega_lite_chart(
        capacity_rows(sizing, lengths),
        capacity_spec(),
        key="capacity-chart",
        width="stretch",
        alt="Sequences that fit over their length",
    )
