"""What stands above every page: the source, and the canvas component with player and banners."""

import streamlit as st

from dashboard.canvas import pool_canvas
from dashboard.markdown import escape
from dashboard.readable import size
from dashboard.session import Session
from dashboard.sessions import SOURCE_KEY, TOKEN_KEY, catalog, current_session, watch
from dashboard.source import TRACE_SUFFIX, SourceError
from dashboard.standing import in_a_line, small
from engine.events.records import Header

# Wide pages have a margin of 5 rem that no setting narrows, and the pool wants the room.
_NARROW_MARGINS = """
<style>
  .stMainBlockContainer { padding-left: 1.2rem; padding-right: 1.2rem; }
</style>
"""
PATH_KEY = "glasspool-trace-path"


def narrow_margins() -> None:
    """Give a page, whatever it shows, the whole width."""
    st.html(_NARROW_MARGINS)


def top_of_page(with_pool: bool) -> Session | None:
    """Draw the top of a page; `with_pool` adds figures, heatmap and ticker to the player.

    None where there is nothing to watch: then it has said why, and what to do.
    """
    try:
        names = catalog().names
        session = current_session()
    except SourceError as error:
        st.error(str(error), icon=":material/error:")
        return None
    if session is None:
        _nothing_to_watch()
        return None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="sources"):
        st.selectbox(
            "Source",
            names,
            key=SOURCE_KEY,
            on_change=_chosen,
            label_visibility="collapsed",
            width=300,
            help="What is watched: a live engine by its address, or a recorded run by its file.",
        )
        _open_trace()
        _about(session)
        _caption(session)
    pool_canvas(st.session_state[TOKEN_KEY], with_pool=with_pool)
    return session


@st.fragment(run_every=2.0)
def _caption(session: Session) -> None:
    """The model and the pool in a line: it appears once the source has said who it is."""
    header = session.feed.header
    if header is not None:
        small(in_a_line(header))


def _chosen() -> None:
    watch(st.session_state[SOURCE_KEY])


def _nothing_to_watch() -> None:
    st.markdown("### Nothing to watch yet")
    st.markdown(
        "Glasspool shows the KV-cache blocks of a running engine, or of a recorded run.\n\n"
        "- **A live engine:** start one with `glasspool serve`, then this dashboard with "
        "`glasspool dashboard --engine http://127.0.0.1:8000`.\n"
        "- **A recorded run:** `glasspool dashboard --trace run.jsonl.zst`, or open a file of this "
        "machine below.\n"
        "- **Everything at once:** `glasspool demo` starts an engine, traffic and this page."
    )
    with st.container(width=520):
        _trace_form()


def _open_trace() -> None:
    with st.popover(
        "Open",
        icon=":material/folder_open:",
        help="Watch a recorded run that is a file on the dashboard's machine.",
    ):
        _trace_form()


def _trace_form() -> None:
    st.text_input(
        "Trace file on the dashboard's machine",
        key=PATH_KEY,
        placeholder=f"/path/to/run{TRACE_SUFFIX}",
        on_change=_open_path,
        help="`glasspool serve --record FILE` writes one.",
    )
    if error := st.session_state.pop("glasspool-path-error", None):
        st.error(escape(error), icon=":material/error:")


def _open_path() -> None:
    try:
        name = catalog().add_trace(st.session_state[PATH_KEY].strip())
    except SourceError as error:
        st.session_state["glasspool-path-error"] = str(error)
        return
    st.session_state[SOURCE_KEY] = name
    if TOKEN_KEY in st.session_state:
        watch(name)


def _about(session: Session) -> None:
    with st.popover(
        "About", icon=":material/info:", help="What the source says of itself: model, pool, engine."
    ):
        header = session.feed.header
        if header is None:
            st.caption("Nothing has come from this source yet.")
        else:
            st.markdown(_describe(header, session.feed.source_name))


def _describe(header: Header, source: str) -> str:
    pool = header.num_blocks * header.bytes_per_block
    producer = header.producer
    rows = {
        "Source": source,
        "Engine": f"{header.engine_name} ({header.engine_id})",
        "Producer": f"{producer.name} {producer.version}",
        "Model": f"{header.model}, {header.dtype}",
        "Pool": f"{header.num_blocks:,} blocks of {header.block_size} slots",
        "Memory": f"{size(pool)}, {size(header.bytes_per_block)} a block",
        "Withheld": ", ".join(name.replace("_", " ") for name in header.redacted) or "nothing",
    }
    if header.simulated:
        rows["Simulated"] = "no model ran; lengths were given, times are those of a cost model"
    lines = [f"| {name} | {escape(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])
