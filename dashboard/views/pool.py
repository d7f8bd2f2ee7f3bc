"""The page "Pool": what the source is, its figures, the canvas, the recent past, the requests."""

import re

import pandas as pd
import streamlit as st

from dashboard.canvas import pool_canvas
from dashboard.charts import STEPS, composition_chart
from dashboard.feed import Feed, Phase, Snapshot
from dashboard.feeds import feed_of
from dashboard.figures import cards
from dashboard.journal import Line, LineKind
from dashboard.readable import plural, size
from dashboard.source import SourceError, source_from_environment
from engine.events.records import Header

TICKER_LINES = 14
FIGURE_WIDTH = 168
"""Pixels. Seven figures stand beside each other in a window of 1400."""
_BADGES = {
    Phase.CONNECTING: (":material/hourglass_empty:", "gray"),
    Phase.LIVE: (":material/sensors:", "green"),
    Phase.REPLAY: (":material/history:", "blue"),
    Phase.GAP: (":material/warning:", "orange"),
    Phase.LOST: (":material/link_off:", "red"),
    Phase.FAILED: (":material/error:", "red"),
}
_ICONS = {
    LineKind.PREEMPTED: "eject",
    LineKind.RESUMED: "resume",
    LineKind.COPIED: "content_copy",
    LineKind.FORKED: "call_split",
    LineKind.FINISHED: "check",
    LineKind.REJECTED: "block",
    LineKind.MISSING: "warning",
}


def pool_page() -> None:
    """Draws the page. The canvas stands between the ticking fragments, never inside one."""
    try:
        feed = feed_of(source_from_environment())
    except SourceError as error:
        st.error(str(error), icon=":material/error:")
        return
    _overview(feed)
    pool_canvas(key="pool-canvas")
    _recent(feed)


@st.fragment(run_every=1.0)
def _overview(feed: Feed) -> None:
    snapshot = feed.snapshot()
    _heading(snapshot, feed.source_name)
    _banner(snapshot)
    _figures(snapshot)


@st.fragment(run_every=1.0)
def _recent(feed: Feed) -> None:
    snapshot = feed.snapshot()
    if snapshot.header is None:
        return
    chart, ticker = st.columns([3, 2], gap="medium")
    with chart:
        st.markdown(f"**Blocks by state, last {STEPS} steps**")
        composition_chart(feed.history(STEPS), snapshot.header.num_blocks, key="composition")
    with ticker:
        st.markdown("**What happened**")
        with st.container(height=250, border=False, key="ticker"):
            st.markdown(_ticker(snapshot.lines))
    st.markdown("**Requests**")
    _requests(snapshot)


def _heading(snapshot: Snapshot, source: str) -> None:
    header = snapshot.header
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"### {escape(header.model) if header else 'Glasspool'}", width="content")
        icon, colour = _BADGES[snapshot.status.phase]
        if snapshot.status.current:
            st.badge(escape(snapshot.status.text), icon=icon, color=colour)
        else:
            word = "not connected" if snapshot.status.phase is Phase.LOST else snapshot.status.phase
            st.badge(word, icon=icon, color=colour)
        if snapshot.figures is not None:
            if snapshot.faults:
                st.badge(
                    f"books do not balance: {plural(len(snapshot.faults), 'fault')}",
                    icon=":material/error:",
                    color="red",
                )
            else:
                st.badge(
                    "books balance",
                    icon=":material/check_circle:",
                    color="green",
                    help="Conservation check of this state: free, cached and active blocks sum to "
                    "the pool, every ref count is the number of table entries, every table fits "
                    "its tokens.",
                )
    if header is not None:
        st.caption(_describe(header, source))


def _describe(header: Header, source: str) -> str:
    pool = header.num_blocks * header.bytes_per_block
    producer = header.producer
    parts = (
        escape(source),
        f"engine {escape(header.engine_id)}",
        f"{escape(header.engine_name)}, {escape(producer.name)} {escape(producer.version)}",
        escape(header.dtype),
        f"{header.num_blocks:,} blocks of {header.block_size} slots",
        f"{size(header.bytes_per_block)} a block, {size(pool)} in all",
    )
    return " · ".join(parts)


def _banner(snapshot: Snapshot) -> None:
    status = snapshot.status
    if status.phase in (Phase.LOST, Phase.FAILED):
        st.error(escape(status.text), icon=":material/link_off:")
    elif status.phase in (Phase.GAP, Phase.CONNECTING):
        st.warning(escape(status.text), icon=":material/hourglass_empty:")
    if status.warning:
        st.warning(escape(status.warning), icon=":material/warning:")
    if snapshot.faults:
        more = len(snapshot.faults) - 3
        text = "; ".join(snapshot.faults[:3]) + (f"; and {more} more" if more > 0 else "")
        st.error(f"Broken rules at step {snapshot.step}: {escape(text)}.", icon=":material/error:")


def _figures(snapshot: Snapshot) -> None:
    if snapshot.figures is None:
        st.caption("No figures: nothing here is known as of now.")
        return
    with st.container(border=True, key="figures"), st.container(horizontal=True, gap="xsmall"):
        for card in cards(snapshot.figures):
            st.metric(card.label, card.value, help=card.help, width=FIGURE_WIDTH)


def _ticker(lines: tuple[Line, ...]) -> str:
    if not lines:
        return ":gray[Nothing yet: preemptions, copies, forks and finished requests are told here.]"
    rows = []
    for line in lines[:TICKER_LINES]:
        where = "" if line.step is None else f":gray[step {line.step:,}]  "
        rows.append(f":material/{_ICONS[line.kind]}: {where}{escape(line.text)}")
    return "  \n".join(rows)


def _requests(snapshot: Snapshot) -> None:
    rows = [
        {
            "request": line.request,
            "state": line.state,
            "sequences": line.n,
            "prompt tokens": line.prompt_tokens,
            "blocks held": line.blocks,
            "computed tokens": line.computed,
            "preemptions": line.preemptions,
            "recomputed tokens": line.recomputed_tokens,
        }
        for line in snapshot.unfinished
    ]
    rows += [
        {
            "request": ended.request,
            "state": ended.outcome,
            "sequences": ended.n,
            "prompt tokens": ended.prompt_tokens,
            "output tokens": ended.output_tokens,
            "preemptions": ended.preemptions,
            "recomputed tokens": ended.recomputed_tokens,
            "first token (s)": ended.first_token_seconds,
            "duration (s)": ended.duration_seconds,
        }
        for ended in snapshot.ended
    ]
    st.dataframe(
        pd.DataFrame(rows, columns=list(_COLUMNS)),
        column_config=_COLUMNS,
        hide_index=True,
        height=300,
        key="requests",
        placeholder="–",
    )


_COLUMNS = {
    "request": st.column_config.TextColumn("request", width="medium"),
    "state": st.column_config.TextColumn("state", width="medium"),
    "sequences": st.column_config.NumberColumn("sequences", help="n: completions asked for"),
    "prompt tokens": st.column_config.NumberColumn("prompt tokens", format="localized"),
    "blocks held": st.column_config.NumberColumn(
        "blocks held",
        help="Block table entries of all its sequences; a shared block counts for each",
    ),
    "computed tokens": st.column_config.NumberColumn(
        "computed tokens",
        format="localized",
        help="Tokens of all its sequences that have KV now",
    ),
    "output tokens": st.column_config.NumberColumn("output tokens", format="localized"),
    "preemptions": st.column_config.NumberColumn("preemptions"),
    "recomputed tokens": st.column_config.NumberColumn("recomputed tokens", format="localized"),
    "first token (s)": st.column_config.NumberColumn(
        "first token", format="%.3f s", help="From the request's arrival to its first token"
    ),
    "duration (s)": st.column_config.NumberColumn(
        "duration", format="%.2f s", help="From the request's arrival to its end"
    ),
}


def escape(text: str) -> str:
    """Text from a record as Markdown that shows it letter for letter."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text.replace("\n", " "))
