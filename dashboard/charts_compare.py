"""Utilisation and queues of two runs over each other."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import as_spec, coloured, ink, panel_x
from dashboard.timeline_rows import Axis

A, B = "A", "B"
_RUNS = {A: "used", B: "preempted"}
_PANELS = (
    ("utilisation", "active blocks (%)", [0, 100], 150),
    ("running", "running", None, 105),
    ("queued", "waiting, preempted", None, 105),
)
_EXTENT = {"minExtent": 52, "maxExtent": 52, "titleX": -42}


@st.cache_resource(show_spinner=False)
def compare_spec(axis: Axis, ink: str) -> dict[str, Any]:
    """Expects the rows of comparison.curves for both runs, and one with run "parts" and x, if any."""
    title = (
        "steps since its first record" if axis is Axis.STEP else "seconds since its first record"
    )
    charts = []
    for number, (column, name, domain, height) in enumerate(_PANELS):
        last = number == len(_PANELS) - 1
        x = panel_x(title, alt.Scale(nice=False, zero=True), last=last)
        scale = alt.Scale(domain=domain) if domain else alt.Scale(zero=True)
        y = alt.Y(f"{column}:Q", title=name, scale=scale, axis=alt.Axis(tickCount=4, **_EXTENT))
        colour = coloured("run", _RUNS, legend=number == 0)
        runs = alt.Chart(alt.NamedData("runs")).transform_filter("datum.run != 'parts'")
        spread = runs.mark_bar(opacity=0.22, stroke=None).encode(
            x=x,
            x2="x2:Q",
            y=alt.Y(f"{column}_min:Q", title=name, scale=scale),
            y2=f"{column}_max:Q",
            color=colour,
        )
        lines = runs.mark_line(interpolate="step-after", strokeWidth=1.6).encode(
            x=x,
            y=y,
            color=colour,
            detail="line:N",
            strokeDash=alt.StrokeDash(
                "run:N", scale=alt.Scale(domain=[A, B], range=[[1, 0], [5, 3]]), legend=None
            ),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("step:Q", title="its step", format=","),
                alt.Tooltip(f"{column}:Q", title=f"{name}, mean", format=",.1f"),
                alt.Tooltip(f"{column}_min:Q", title="least", format=",.1f"),
                alt.Tooltip(f"{column}_max:Q", title="most", format=",.1f"),
                alt.Tooltip("records:Q", title="records put together", format=","),
            ],
        )
        part = (
            alt.Chart(alt.NamedData("runs"))
            .transform_filter("datum.run == 'parts'")
            .mark_rule(strokeDash=[2, 3], strokeWidth=1.5, color=ink)
            .encode(x=x)
        )
        charts.append(alt.layer(spread, lines, part).properties(height=height))
    return as_spec(alt.vconcat(*charts, spacing=6))


def compare_chart(runs: list[pd.DataFrame], parts_at: float | None, axis: Axis) -> None:
    """Draw both runs; a dotted line where they part."""
    frames = [frame for frame in runs if len(frame)]
    if parts_at is not None:
        frames.append(pd.DataFrame({"run": ["parts"], "x": [parts_at]}))
    st.vega_lite_chart(
        pd.concat(frames, ignore_index=True),
        compare_spec(axis, ink()),
        key=f"compare-{axis.value}",
        width="stretch",
        alt="Active blocks, running and queued sequences of both runs",
    )
