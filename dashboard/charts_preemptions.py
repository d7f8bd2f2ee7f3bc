"""Preemptions over a run: tokens lost, by what became of them. A click picks one."""

from collections.abc import Callable
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import as_spec, coloured
from dashboard.preemption_log import Preemption

CHART_KEY = "preemptions-chart"
MOST_POINTS = 1_500
_FATES = {"still cached": "cached", "recomputed": "shared", "not back yet": "preempted"}


@st.cache_resource(show_spinner=False)
def preemptions_spec() -> dict[str, Any]:
    """A bar for each step that preempted, stacked by fate. Expects step, next, fate, tokens ..."""
    picked = alt.selection_point(name="picked", fields=["step"], on="click", empty=False)
    chart = (
        alt.Chart(alt.NamedData("preempted"))
        .mark_bar(cursor="pointer", minBandSize=3, stroke="#8A94A6", strokeWidth=0.6, width=7)
        .encode(
            x=alt.X("step:Q", title="step", scale=alt.Scale(nice=False, zero=False, padding=12)),
            y=alt.Y("tokens:Q", title="tokens lost", stack="zero", axis=alt.Axis(tickMinStep=1)),
            color=coloured("fate", _FATES),
            order="order:Q",
            tooltip=[
                alt.Tooltip("step:Q", format=","),
                alt.Tooltip("count:Q", title="sequences preempted"),
                alt.Tooltip("blocks:Q", title="blocks released", format=","),
                alt.Tooltip("lost:Q", title="tokens lost", format=","),
                alt.Tooltip("fate:N", title="this part"),
                alt.Tooltip("tokens:Q", title="its tokens", format=","),
            ],
        )
        .add_params(picked)
        .properties(height=190)
    )
    return as_spec(chart)


def fates(stories: list[Preemption]) -> pd.DataFrame:
    """Rows for the chart: for each step that preempted, its lost tokens by what became of them."""
    rows: dict[int, dict[str, int]] = {}
    for story in stories:
        row = rows.setdefault(
            story.step,
            {**dict.fromkeys((*_FATES, "count", "blocks", "lost"), 0), "seq": story.seq},
        )
        found = min(story.found or 0, story.tokens_lost)
        again = min(story.recomputed, story.tokens_lost - found)
        row["still cached"] += found
        row["recomputed"] += again
        row["not back yet"] += story.tokens_lost - found - again
        row["count"] += 1
        row["blocks"] += story.blocks_released
        row["lost"] += story.tokens_lost
    return pd.DataFrame(
        [
            {
                "step": step,
                "fate": fate,
                "order": order,
                "tokens": row[fate],
                **{name: row[name] for name in ("count", "blocks", "lost")},
            }
            for step, row in sorted(rows.items())[-MOST_POINTS:]
            for order, fate in enumerate(_FATES)
            if row[fate]
        ],
        columns=["step", "fate", "order", "tokens", "count", "blocks", "lost"],
    )


def preemptions_chart(stories: list[Preemption], on_click: Callable[[], None]) -> None:
    """Draw them; `on_click` is called when a step is picked (selection "picked")."""
    st.vega_lite_chart(
        fates(stories),
        preemptions_spec(),
        key=CHART_KEY,
        width="stretch",
        on_select=on_click,
        selection_mode="picked",
        alt="Tokens that preemptions lost, by step: still cached on resuming, recomputed, or not "
        "back yet",
    )
