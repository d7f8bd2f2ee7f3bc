"""The page "Timeline": the pool, the queues, the events and the steps' durations over time."""

import streamlit as st

from dashboard.chart_spec import ink
from dashboard.charts_timeline import (
    PICKED,
    RANGE,
    timeline_chart,
    timeline_data,
    timeline_spec,
)
from dashboard.readable import plural
from dashboard.session import Look, Session
from dashboard.standing import shows, small, unknown
from dashboard.timeline_rows import Axis, bucketed, places, within

AXIS_KEY = "timeline-axis"
LATER_KEY = "timeline-later"
RESET_KEY = "timeline-reset"
_ROUND_KEY = "timeline-round"
_PICKED_KEY = "timeline-picked"
MOST_BUCKETS = 360
_PANELS = {
    "composition": "physical_blocks",
    "queues": "queues",
    "events": None,
    "durations": "durations",
}
"""Chart -> what the source must know to fill it."""
_AXES = {"by step": Axis.STEP, "by time": Axis.TIME}


def timeline_page(session: Session) -> None:
    """Draws the page; all of it refreshes together."""
    st.session_state.setdefault(AXIS_KEY, "by step")
    st.session_state.setdefault(LATER_KEY, False)
    st.session_state.setdefault(_ROUND_KEY, 0)
    _body(session)


@st.fragment(run_every=2.0)
def _body(session: Session) -> None:
    look = session.look()
    hidden, shown = "what came later is not shown", "what came later is right of the dashed line"
    if not shows(look, "The timeline", shown if st.session_state.get(LATER_KEY) else hidden):
        return
    axis = _controls(look)
    rows = look.feed.history.rows() if st.session_state.get(LATER_KEY) else look.rows
    if not len(rows):
        st.info(
            "No step has been recorded by this moment. Send the engine a request, or move on.",
            icon=":material/timeline:",
        )
        return
    key = f"timeline-{axis.value}-{st.session_state[_ROUND_KEY]}"
    low, high = _range(key) or (None, None)
    zero = look.header.monotonic
    overview = bucketed(rows, axis, zero, MOST_BUCKETS)
    near = rows if low is None else within(rows, axis, zero, low, high)
    detail = bucketed(near, axis, zero, MOST_BUCKETS)
    moment = None
    if rows["seq"][-1] > look.seq and len(look.rows):
        moment = float(places(look.rows[-1:], axis, zero)[0])
    panels = tuple(name for name, fact in _PANELS.items() if fact in (None, *look.header.knows))
    for fact in unknown(look, *filter(None, _PANELS.values())):
        small(f"This source does not know {fact.replace('_', ' ')}: its chart is left out.")
    timeline_chart(
        timeline_data(overview, detail, moment),
        timeline_spec(axis, look.header.num_blocks, panels, ink()),
        key,
        lambda: _clicked(session, key),
    )
    _notes(look, rows, near, len(detail))


def _controls(look: Look) -> Axis:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.radio(
            "Axis",
            list(_AXES),
            key=AXIS_KEY,
            horizontal=True,
            label_visibility="collapsed",
            help="By step: each engine step is as wide as any other. By time: as it passed, idle "
            "stretches included.",
        )
        st.button(
            "Show all",
            key=RESET_KEY,
            icon=":material/zoom_out_map:",
            on_click=_reset,
            help="Drops the range that is brushed.",
        )
        st.toggle(
            "Also what came later",
            key=LATER_KEY,
            disabled=look.live,
            help="Shows records after this moment too, so that a click can go on; a dashed line marks "
            "the moment.",
        )
    small(
        "Drag across the strip to zoom all charts; click into a chart to go to its step. Thin lines "
        "mark the most that records put together had; each kind of event is on a scale of its own."
    )
    return _AXES[st.session_state[AXIS_KEY]]


def _reset() -> None:
    # A selection cannot be set from here: a chart under another key starts without one.
    st.session_state[_ROUND_KEY] += 1


def _range(key: str) -> tuple[float, float] | None:
    """What is brushed on the strip."""
    state = st.session_state.get(key)
    found = state.selection.get(RANGE, {}).get("x") if state else None
    if not found or found[0] >= found[1]:
        return None
    return float(found[0]), float(found[1])


def _clicked(session: Session, key: str) -> None:
    """Go to the record that a click picked; brushing calls this too."""
    points = st.session_state[key].selection.get(PICKED) or []
    seqs = [point["seq"] for point in points if point.get("seq") is not None]
    if seqs != st.session_state.get(_PICKED_KEY, []):
        st.session_state[_PICKED_KEY] = seqs
        if seqs:
            session.go(int(seqs[0]))


def _notes(look: Look, rows: object, near: object, buckets: int) -> None:
    notes = []
    records = len(near)
    if buckets < records:
        notes.append(
            f"{plural(records, 'record')} in {plural(buckets, 'bucket')}: bars are means of levels "
            "and sums of events"
        )
    holes = len(set(rows["segment"].tolist())) - 1
    if holes:
        notes.append(f"records are missing in {plural(holes, 'place')}, left blank")
    oldest = int(rows["step"][0])
    if oldest > 1:
        notes.append(f"the oldest step kept is {oldest:,}")
    if notes:
        small(". ".join(note[0].upper() + note[1:] for note in notes) + ".")
