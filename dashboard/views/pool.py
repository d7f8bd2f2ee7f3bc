"""The page "Pool", below the canvas: who holds the blocks, and the recent past as a chart."""

import pandas as pd
import streamlit as st

from dashboard.charts import STEPS, composition_chart
from dashboard.holders import Holder, holders
from dashboard.session import Session


def pool_page(session: Session) -> None:
    """Draws what stands below the canvas, which is never inside a ticking fragment."""
    _below(session)


@st.fragment(run_every=2.0)
def _below(session: Session) -> None:
    look = session.look()
    if look.header is None or not look.current or not len(look.rows):
        return
    table, chart = st.columns([1, 1], gap="medium")
    with table:
        st.markdown(f"**Who holds the pool at step {max(0, look.step):,}**")
        _holders(look.read(holders) or [])
    with chart:
        st.markdown(f"**Blocks by state, the last {STEPS} steps up to it**")
        points = look.feed.history.table(STEPS, look.upto)
        composition_chart(points, look.header.num_blocks, key="composition")


def _holders(rows: list[Holder]) -> None:
    frame = pd.DataFrame(
        [
            {
                "request": row.request,
                "state": row.state,
                "blocks held": row.blocks,
                "only its own": row.own_blocks,
                "computed tokens": row.computed,
                "preemptions": row.preemptions,
                "recomputed tokens": row.recomputed_tokens,
            }
            for row in rows
        ],
        columns=list(_COLUMNS),
    )
    st.dataframe(
        frame,
        column_config=_COLUMNS,
        hide_index=True,
        height=260,
        key="holders",
        placeholder="–",
    )


_COLUMNS = {
    "request": st.column_config.TextColumn("request", width="medium"),
    "state": st.column_config.TextColumn("state", help="Of its sequences"),
    "blocks held": st.column_config.NumberColumn(
        "blocks held", help="Different blocks in the tables of all its sequences"
    ),
    "only its own": st.column_config.NumberColumn(
        "only its own",
        help="Of those, blocks that no other request shares: what its end would free",
    ),
    "computed tokens": st.column_config.NumberColumn(
        "computed tokens", format="localized", help="Tokens of all its sequences that have KV now"
    ),
    "preemptions": st.column_config.NumberColumn("preemptions"),
    "recomputed tokens": st.column_config.NumberColumn("recomputed tokens", format="localized"),
}
