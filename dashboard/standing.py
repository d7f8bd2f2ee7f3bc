"""The line above a page's content that says as of when it is, and what stands there instead."""

import streamlit as st

from dashboard.markdown import escape
from dashboard.readable import seconds
from dashboard.session import Look
from engine.events.records import Header


def small(text: str) -> None:
    """A small remark. Streamlit's caption is too pale to be read by everybody."""
    st.markdown(f":small[{text}]")


def in_a_line(header: Header) -> str:
    """A run's model and pool, and whether no model ran: what stands wherever figures of it do."""
    pool = f"{header.num_blocks:,} blocks of {header.block_size} slots"
    badge = " :orange-badge[:material/science: simulated]" if header.simulated else ""
    return f"{escape(header.model)} · {pool}{badge}"


def shows(look: Look, what: str, later: str = "what came later is not shown") -> bool:
    """Say as of when `what` is shown; False where nothing may be shown, and why is said.

    `later` is what a rewound page says of the records after its moment.
    """
    if look.header is None:
        st.info(
            f"Nothing has come from {escape(look.feed.source_name)} yet: {escape(look.status.text)}.",
            icon=":material/hourglass_empty:",
        )
        return False
    if not look.current:
        st.warning(
            f"{what} cannot be shown: {escape(look.status.text)}. Rewind to an earlier step, or wait.",
            icon=":material/sync_problem:",
        )
        return False
    small(as_of(look, what, later))
    return True


def as_of(look: Look, what: str, later: str) -> str:
    """The sentence that `shows` says."""
    step = f"step {max(0, look.step):,}"
    if look.live:
        return f"{what} now, live at {step}."
    at_end = look.seq >= look.newest
    if not look.feed.live and at_end:
        return f"{what} at {step}, the end of this recording."
    ago = f", {seconds(look.ago)} before the {'newest' if look.feed.live else 'last'} record"
    return f"{what} as known at {step}{ago}: {later}."


def unknown(look: Look, *facts: str) -> list[str]:
    """Those of `facts` (words of header.knows) that the source does not tell."""
    knows = look.header.knows if look.header is not None else []
    return [fact for fact in facts if fact not in knows]
