"""The page "Capacity": how many sequences a KV cache holds, and why the watched engine runs fewer."""

import pandas as pd
import streamlit as st

from dashboard.capacity_inputs import Asked, ask
from dashboard.charts_capacity import capacity_chart
from dashboard.links import page_link
from dashboard.markdown import escape
from dashboard.readable import count, plural, size
from dashboard.session import Look, Session
from dashboard.sessions import current_session
from dashboard.source import SourceError
from dashboard.standing import in_a_line, shows, small
from engine.lab.capacity import ConfigError, LengthRow, Sizing
from engine.lab.observation import Observation, fullest, observe
from engine.lab.reconciliation import Reconciliation, conclusion, own_sizing, reconcile

OWN, ABOVE = "its own pool", "the memory above"


def capacity_page() -> None:
    """Draws the page."""
    st.markdown("### Capacity: from a memory to sequences")
    try:
        asked = ask()
        rows = asked.sizing.rows(asked.lengths)
    except ConfigError as error:
        st.error(escape(str(error)), icon=":material/error:")
        return
    small(_terms(asked))
    _figures(asked)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _table(pd.DataFrame([_cells(row) for row in rows]))
    with right:
        capacity_chart(asked.sizing, asked.lengths)
    _watched(asked)


# -- the arithmetic -------------------------------------------------------------------------------


def _terms(asked: Asked) -> str:
    shape, sizing, budget = asked.shape, asked.sizing, asked.budget
    terms = (
        f"{escape(shape.name)}: K and V of {plural(shape.layers, 'layer')}, "
        f"{plural(shape.kv_heads, 'KV head')} of {shape.head_dim}, {asked.dtype} "
        f"({shape.attention}; {escape(shape.source)})."
    )
    if budget is not None:
        terms += (
            f" KV cache: {size(budget.gpu_memory)} × {budget.gpu_memory_utilization:g} "
            f"− {size(budget.weights)} weights − {size(budget.overhead)} overhead "
            f"= **{size(sizing.memory)}**."
        )
    return terms


def _figures(asked: Asked) -> None:
    sizing = asked.sizing
    figures = [
        ("Bytes per token", sizing.bytes_per_token, "K and V of one token in all layers."),
        (
            "Bytes per block",
            sizing.bytes_per_block,
            f"Of {plural(sizing.block_size, 'token')}, all layers.",
        ),
        ("Blocks", sizing.num_blocks, "That the memory makes, rounded down: num_gpu_blocks."),
        ("Cacheable tokens", sizing.tokens, "Blocks times the block size."),
    ]
    with st.container(horizontal=True, gap="small"):
        for label, value, help in figures:
            st.metric(label, count(value), help=help, width=170)


def _cells(row: LengthRow) -> dict[str, int]:
    return {
        "tokens": row.length,
        "blocks of each": row.blocks,
        "wasted slots": row.wasted_slots,
        "sequences": row.sequences,
    }


def _table(frame: pd.DataFrame) -> None:
    columns = {
        "tokens": "Of one sequence, that have KV",
        "blocks of each": "Entries of its block table",
        "wasted slots": "Of its last block",
        "sequences": "That fit at once; nothing is shared",
    }
    st.dataframe(
        frame,
        hide_index=True,
        height="content",
        key="capacity-table",
        column_config={
            name: st.column_config.NumberColumn(name, help=help, format="localized")
            for name, help in columns.items()
        },
        alt="Blocks and sequences for each length",
    )


# -- the watched engine ---------------------------------------------------------------------------


def _watched(asked: Asked) -> None:
    try:
        session = current_session()
    except SourceError as error:
        st.error(escape(str(error)), icon=":material/error:")
        return
    st.markdown(
        "#### Sized for so many, runs so many",
        help="The causes are taken in the order of the table, each on top of those before it: their "
        "differences sum exactly. In another order they would share the difference otherwise.",
    )
    if session is None:
        st.info(
            "Nothing is watched. With `glasspool dashboard --engine http://127.0.0.1:8000`, or a "
            "recorded run on the Pool page, this part tells why it runs other than the memory holds.",
            icon=":material/hourglass_empty:",
        )
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        base = st.radio(
            "Sized with",
            [OWN, ABOVE],
            key="capacity-base",
            horizontal=True,
            persist_state="session",
            help="Its own pool: as many blocks as it has. The memory above: what that holds of the "
            "model above.",
        )
        length = st.selectbox(
            "for sequences of (tokens)",
            asked.lengths,
            key="capacity-assumed",
            width=190,
            help="One of the lengths above.",
        )
    _account(session, asked.sizing if base == ABOVE else None, length)


@st.fragment(run_every=2.0)
def _account(session: Session, sizing: Sizing | None, length: int) -> None:
    # Asking keeps the session alive: no canvas does it on this page.
    current_session()
    look = session.look()
    _moment(session, look)
    if not shows(look, escape(look.feed.source_name)):
        return
    small(in_a_line(look.header))
    try:
        seen = look.read(observe)
    except ConfigError as error:
        st.info(escape(str(error)), icon=":material/info:")
        return
    if seen is None:
        return
    found = reconcile(sizing or own_sizing(seen), length, seen)
    _summary(found, seen)
    _effects(found)


def _moment(session: Session, look: Look) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "Go to its fullest moment",
            key="capacity-fullest",
            icon=":material/vertical_align_top:",
            on_click=_go_to_fullest,
            args=(session,),
            help="Where requests waited, the record with the median of running sequences; else the one "
            "with the most.",
        )
        if look.feed.live:
            st.button(
                "Live",
                key="capacity-live",
                icon=":material/sensors:",
                on_click=session.go_live,
                disabled=look.live,
                help="Follow the newest record.",
            )
        page_link(
            "pool", "Choose on the Pool page", ":material/grid_view:", "This moment's blocks."
        )


def _go_to_fullest(session: Session) -> None:
    rows = session.feed.history.rows()
    seq = fullest(
        zip(
            rows["seq"].tolist(),
            rows["running"].tolist(),
            (rows["waiting"] + rows["preempted"]).tolist(),
            strict=True,
        )
    )
    if seq is not None:
        session.go(seq)


def _summary(found: Reconciliation, seen: Observation) -> None:
    figures = [
        ("Sized for", count(found.sized_for), f"Sequences of {found.length:,} tokens."),
        ("Runs", count(found.runs), "Running sequences at this moment."),
        ("Wait", count(seen.waiting), "Sequences that wait, preempted ones too."),
        (
            "Mean length",
            f"{seen.mean_tokens:,.0f}" if seen.running else "–",
            "Tokens with KV of a running sequence.",
        ),
    ]
    with st.container(horizontal=True, gap="small"):
        for label, value, help in figures:
            st.metric(label, value, help=help, width=170)
    if seen.running and not seen.waiting and found.missing > 0:
        st.markdown(
            "Nothing waits at this moment: more could run if they were asked for. Its fullest moment "
            "tells what limits it."
        )
    for line in conclusion(found, seen)[1:]:
        st.markdown(escape(line))


def _effects(found: Reconciliation) -> None:
    # Markdown, as cells of a dataframe do not wrap: the reasons are what one comes for.
    left = found.sized_for
    lines = [
        "| cause, in this order | adds or takes | sequences | why |",
        "|:--|--:|--:|:--|",
        f"| **sized for** | | **{left:,}** | sequences of {found.length:,} tokens |",
    ]
    for effect in found.effects:
        left -= effect.missing
        change = f"{-effect.missing:+,}".replace("-", "−") if effect.missing else ""
        lines.append(f"| {escape(effect.cause)} | {change} | {left:,} | {escape(effect.why)} |")
    lines.append(f"| **runs** | | **{found.runs:,}** | |")
    st.markdown("\n".join(lines))
