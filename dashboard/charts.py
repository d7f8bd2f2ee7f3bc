"""The composition of the pool over the last steps, as a Vega-Lite spec that is built once."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import STATES

STEPS = 400
_STACK = ("used", "shared", "cached", "free")
"""From the bottom up."""


@st.cache_resource(show_spinner=False, max_entries=16)
def composition_spec(num_blocks: int) -> dict[str, Any]:
    """Stacked blocks by state over steps; marks where a step preempted or copied.

    Expects columns step, segment, one for each state, preemptions and copies.
    """
    alt.data_transformers.disable_max_rows()
    # The theme colours the names in this order; a range of our own would not follow light and dark.
    colour = alt.Color(
        "state:N",
        scale=alt.Scale(domain=list(STATES)),
        legend=alt.Legend(title=None, orient="top", symbolType="square", columns=3),
    )
    x = alt.X(
        "step:Q",
        title="step",
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(tickMinStep=1),
    )
    y_scale = alt.Scale(domain=[0, num_blocks * 1.08], nice=False)
    base = alt.Chart(alt.NamedData("points"))
    areas = (
        base.transform_fold(list(_STACK), as_=["state", "blocks"])
        .transform_calculate(order=f"indexof({list(_STACK)}, datum.state)")
        .mark_area(interpolate="step-after", line=False)
        .encode(
            x=x,
            y=alt.Y("blocks:Q", stack="zero", title="blocks", scale=y_scale),
            color=colour,
            detail="segment:N",
            order="order:Q",
            tooltip=[
                alt.Tooltip("step:Q"),
                *(alt.Tooltip(f"{name}:Q", title=f"{name} blocks") for name in _STACK),
            ],
        )
    )
    marks = []
    for column, name, shape in (
        ("copies", "copied", "square"),
        ("preemptions", "preempted", "cross"),
    ):
        marks.append(
            base.transform_calculate(state=f"'{name}'", height=str(num_blocks * 1.04))
            .mark_point(shape=shape, filled=True, opacity=1, angle=45)
            .encode(
                x=x,
                y=alt.Y("height:Q", scale=y_scale, title="blocks"),
                color=colour,
                # Not a filter: a layer without rows leaves its scale without an extent.
                size=alt.condition(f"datum.{column} > 0", alt.value(46), alt.value(0)),
                tooltip=[alt.Tooltip("step:Q"), alt.Tooltip(f"{column}:Q", title=column)],
            )
        )
    chart = (
        alt.layer(areas, *marks)
        .properties(height=230, usermeta={"embedOptions": {"renderer": "canvas"}})
        .configure_view(strokeWidth=0)
    )
    spec = chart.to_dict()
    # Streamlit puts its own data in.
    del spec["$schema"], spec["data"]
    return spec


def composition_chart(points: pd.DataFrame, num_blocks: int, key: str) -> None:
    """Draw the composition of the last steps."""
    st.vega_lite_chart(
        points,
        composition_spec(num_blocks),
        key=key,
        width="stretch",
        alt="Blocks by state over the last steps, with marks where sequences were preempted or "
        "blocks copied",
    )
