"""One preemption told in sentences: victim, who needed the block, resuming, cost."""

import streamlit as st

from dashboard.links import page_link
from dashboard.markdown import escape
from dashboard.preemption_log import Preemption
from dashboard.readable import plural, seconds, shortened
from dashboard.session import Look, Session


def preemption_story(session: Session, look: Look, story: Preemption) -> None:
    """Draw it with links to its steps and requests."""
    with st.container(border=True):
        st.markdown("\n\n".join(_sentences(look, story)))
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.button(
                f"Go to step {story.step:,}",
                key="preemption-go",
                icon=":material/my_location:",
                on_click=session.go,
                args=(story.seq,),
                help="Moves this moment to the step that preempted; all pages follow.",
            )
            if story.resumed_seq is not None:
                st.button(
                    f"Go to step {story.resumed_step:,}",
                    key="preemption-resumed",
                    icon=":material/redo:",
                    on_click=session.go,
                    args=(story.resumed_seq,),
                    help="Moves this moment to the step that resumed the victim.",
                )
            for what, request in (("victim", story.request), ("needy", story.needy)):
                st.button(
                    f"Select {shortened(request)}",
                    key=f"preemption-{what}",
                    icon=":material/person_search:",
                    on_click=session.select,
                    kwargs={"request": request},
                    help="Selects the request that lost the blocks, here and on the other pages."
                    if what == "victim"
                    else "Selects the request that needed a block.",
                )
            page_link("pool", "Pool", ":material/grid_view:", "The pool at this moment.")
            if look.selection.request is not None:
                page_link(
                    "requests",
                    f"Request {shortened(look.selection.request)}",
                    ":material/list_alt:",
                    "The selected request in detail.",
                )


def _sentences(look: Look, story: Preemption) -> list[str]:
    victim, needy = escape(story.request), escape(story.needy)
    at = story.time - look.header.monotonic
    if story.needy_sequence == story.sequence:
        why = f"Sequence {story.sequence} of request **{victim}** needed a block itself, found none"
    elif story.needy == story.request:
        why = f"Request **{victim}** needed a block for its sequence {story.needy_sequence}"
    else:
        why = f"Request **{needy}** (sequence {story.needy_sequence}) needed a block"
    lines = [
        f"**Step {story.step:,}**, second {at:,.2f}: {why}; sequence {story.sequence} of request "
        f"**{victim}** was preempted: {plural(story.blocks_released, 'block')} released, "
        f"{plural(story.tokens_lost, 'token')} lost."
    ]
    if story.resumed_step is None:
        lines.append(f"By this moment it is still without blocks ({story.outcome.value}).")
        return lines
    found = (
        "nobody looked into the prefix cache"
        if story.found is None
        else f"{plural(story.found, 'token')} were still cached"
        if story.found != 1
        else "1 token was still cached"
    )
    lines.append(
        f"**Step {story.resumed_step:,}**: it got blocks again after {seconds(story.away_seconds)}; "
        f"{found}."
    )
    if "recompute" not in look.header.knows:
        lines.append("What was computed again is unknown: this source does not tell.")
        return lines
    cost = (
        f"{plural(story.recomputed, 'token')} computed again, "
        f"{seconds(story.work_seconds)} of model work"
    )
    if story.delay_seconds is not None:
        lines.append(f"**Cost**: {cost}; back where it was {seconds(story.delay_seconds)} later.")
    else:
        lines.append(f"**Cost so far**: {cost}; {story.outcome.value}.")
    return lines
