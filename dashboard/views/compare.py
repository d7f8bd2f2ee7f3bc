"""The page "Compare": two runs over each other, the figures that differ, and where they part."""

from pathlib import Path

import pandas as pd
import streamlit as st

from dashboard.charts_compare import A, B, compare_chart
from dashboard.comparison import Comparisons, compared, curves, place_of
from dashboard.feed import Feed, Phase
from dashboard.feeds import feed_of
from dashboard.markdown import escape
from dashboard.readable import UNKNOWN, plural, seconds
from dashboard.session import Session
from dashboard.sessions import catalog
from dashboard.source import TRACE_SUFFIX, SourceError, TraceSource
from dashboard.standing import in_a_line, small
from dashboard.table_columns import config_of, decimal, frame_of, text
from dashboard.timeline_rows import Axis
from engine.events import TraceDiff, TraceError
from engine.events.diff import Figure

KEY_A, KEY_B = "compare-a", "compare-b"
AXIS_KEY = "compare-axis"
PATH_KEY = "compare-path"
_KEPT = "compare-kept"
_ERROR = "compare-path-error"
_AXES = {"by step": Axis.STEP, "by time": Axis.TIME}
_SHOWN_RAW = 400


@st.cache_resource(show_spinner=False)
def comparisons() -> Comparisons:
    """The comparisons of this process."""
    return Comparisons()


def compare_page(session: Session) -> None:
    """Draws the page."""
    names = catalog().names
    _choose_first(session, names)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for key, run in ((KEY_A, A), (KEY_B, B)):
            st.selectbox(
                f"Run {run}",
                names,
                key=key,
                width=300,
                on_change=_keep,
                help="A recorded run, or a live engine's past as far as it is kept.",
            )
        st.radio(
            "Aligned",
            list(_AXES),
            key=AXIS_KEY,
            horizontal=True,
            help="By step: the same number of engine steps after each run's first record. By time: the "
            "same seconds after it.",
        )
        st.text_input(
            "Add a trace file",
            key=PATH_KEY,
            placeholder=f"/path/to/run{TRACE_SUFFIX}",
            on_change=_add_path,
            width=300,
            help="A recorded run on the dashboard's machine: it becomes run B.",
        )
    if error := st.session_state.pop(_ERROR, None):
        st.error(escape(error), icon=":material/error:")
    chosen = [st.session_state[KEY_A], st.session_state[KEY_B]]
    if chosen[0] == chosen[1]:
        st.info(
            "Both runs are the same one. Choose another for B, or add a trace file: "
            "`glasspool serve --record run.jsonl.zst` records one.",
            icon=":material/compare_arrows:",
        )
        return
    small("Both runs are shown whole, as far as they are recorded, whatever the moment above.")
    _curves(*chosen, _AXES[st.session_state[AXIS_KEY]])
    _difference(*chosen)


def choose_runs(a: str, b: str) -> None:
    """From another page: these two, by their names in the catalog, are what Compare shows next."""
    st.session_state[_KEPT] = {KEY_A: a, KEY_B: b}


def _choose_first(session: Session, names: list[str]) -> None:
    kept = st.session_state.setdefault(_KEPT, {})
    here = session.feed.source_name
    first = next((name for name in names if name == here), names[0])
    other = next((name for name in names if name != first), first)
    for key, name in ((KEY_A, first), (KEY_B, other)):
        wanted = kept.get(key, name)
        st.session_state.setdefault(key, wanted if wanted in names else name)
    st.session_state.setdefault(AXIS_KEY, "by step")


def _keep() -> None:
    # A widget's own state is dropped while another page is shown.
    st.session_state[_KEPT] = {key: st.session_state[key] for key in (KEY_A, KEY_B)}


def _add_path() -> None:
    try:
        name = catalog().add_trace(st.session_state[PATH_KEY].strip())
    except SourceError as error:
        st.session_state[_ERROR] = str(error)
        return
    st.session_state[KEY_B] = name
    _keep()


# -- curves ---------------------------------------------------------------------------------------


@st.fragment(run_every=2.0)
def _curves(a: str, b: str, axis: Axis) -> None:
    feeds = [feed_of(catalog()[name]) for name in (a, b)]
    frames = []
    for feed, run in zip(feeds, (A, B), strict=True):
        _standing(feed, run)
        if feed.header is not None:
            frames.append(curves(feed.history.rows(), axis, feed.header.num_blocks, run))
    if not any(len(frame) for frame in frames):
        st.info("Neither run has any step yet.", icon=":material/hourglass_empty:")
        return
    compare_chart(frames, _parts_at(feeds[0], a, b, axis), axis)
    if any((frame["records"] > 1).any() for frame in frames if len(frame)):
        small("Lines are means of the records put together; shades go from least to most.")


def _standing(feed: Feed, run: str) -> None:
    header, status = feed.header, feed.status
    name = escape(feed.source_name)
    if header is None or status.phase in (Phase.FAILED, Phase.CONNECTING):
        small(f"**{run}** {name}: {escape(status.text)}")
        return
    rows = feed.history.rows()
    length = float(rows["time"][-1] - rows["time"][0]) if len(rows) else 0.0
    reading = f" ({escape(status.text)})" if status.phase is Phase.READING else ""
    broken = f" {escape(status.warning)}." if status.warning else ""
    small(
        f"**{run}** {name}: {in_a_line(header)}, {plural(len(rows), 'record')} over "
        f"{seconds(length)}{reading}.{broken}"
    )


def _parts_at(feed: Feed, a: str, b: str, axis: Axis) -> float | None:
    paths = _paths(a, b)
    if paths is None or not all(path.is_file() for path in paths):
        return None
    diff = comparisons().known(*paths)
    if diff is None or diff.first is None:
        return None
    return place_of(feed.history.rows(), diff.first.seq, axis)


def _paths(a: str, b: str) -> tuple[Path, Path] | None:
    sources = [catalog()[name] for name in (a, b)]
    if not all(isinstance(source, TraceSource) for source in sources):
        return None
    return sources[0].path, sources[1].path


# -- figures --------------------------------------------------------------------------------------


def _difference(a: str, b: str) -> None:
    paths = _paths(a, b)
    if paths is None:
        st.info(
            "Figures and the first difference need two recorded runs. Record the live engine with "
            "`glasspool serve --record run.jsonl.zst`.",
            icon=":material/fiber_manual_record:",
        )
        return
    diff = _diff(*paths)
    if diff is None:
        return
    st.markdown(
        "**Where they part**",
        help="The first record that differs. Times, durations, engine ids, names of requests and "
        "salts of hashes are left out: two equal runs never share them.",
    )
    if diff.same:
        st.success("Nothing that is compared differs.", icon=":material/check_circle:")
    else:
        st.markdown(
            f"Step **{diff.first.step:,}** (record {diff.first.seq:,}): {escape(diff.first.text)}"
        )
    for run, stats in ((A, diff.a), (B, diff.b)):
        if stats.gaps or stats.missing:
            lack = stats.missing or f"{stats.left_out:,} records are left out"
            st.warning(f"Run {run} is not whole: {escape(lack)}.", icon=":material/broken_image:")
    _figures_table(diff)
    _rest(diff)


def _diff(a: Path, b: Path) -> TraceDiff | None:
    place = st.empty()
    bar = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        share = min(1.0, done / max(1, total))
        text = f"Reading both traces: {100 * share:.0f} %"
        bar = place.progress(share, text) if bar is None else bar
        bar.progress(share, text)

    try:
        diff = comparisons().of(a, b, progress)
    except (TraceError, OSError) as error:
        place.error(escape(str(error)), icon=":material/error:")
        return None
    place.empty()
    return diff


def _figures_table(diff: TraceDiff) -> None:
    st.markdown(
        "**Figures**", help="Of both whole traces. An empty cell: the run does not tell it."
    )
    st.dataframe(
        frame_of(_COLUMNS, compared(diff.a, diff.b)),
        hide_index=True,
        height="content",
        key="compare-figures",
        placeholder=UNKNOWN,
        column_config=config_of(_COLUMNS),
        alt="Figures of both runs and their differences",
    )


_NUMBER = {"format": "%.4g", "width": "small"}
_COLUMNS = (
    text("figure", lambda row: row.name, pinned=True, width=190),
    text("unit", lambda row: row.unit, width="small"),
    decimal("A", lambda row: row.a, "Of run A, in the row's unit", **_NUMBER),
    decimal("B", lambda row: row.b, "Of run B, in the row's unit", **_NUMBER),
    decimal(
        "B - A", lambda row: row.difference, "What B has more than A, in the row's unit", **_NUMBER
    ),
    text(
        "change",
        lambda row: row.change,
        "The difference in percent of A",
        width="small",
        alignment="right",
    ),
    text("meaning", lambda row: row.help, width="large"),
)


def _rest(diff: TraceDiff) -> None:
    if diff.settings:
        st.markdown("**Settings that differ**", help="What the two runs were made with.")
        st.dataframe(
            _pairs("setting", diff.settings),
            hide_index=True,
            key="compare-settings",
            alt="Settings that differ",
        )
    with st.expander(f"Every figure that differs ({len(diff.figures):,})"):
        st.dataframe(
            _pairs("figure", diff.figures[:_SHOWN_RAW]),
            hide_index=True,
            key="compare-raw",
            alt="Every figure that differs, as `glasspool diff` names it",
        )


def _pairs(name: str, figures: list[Figure]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: [figure.name for figure in figures],
            "A": [_text(figure.a) for figure in figures],
            "B": [_text(figure.b) for figure in figures],
        }
    )


def _text(value: object) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.6g}" if isinstance(value, float) else f"{value}"
