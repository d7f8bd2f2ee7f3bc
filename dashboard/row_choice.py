"""A table's marked row that stays with what it names, although rows come and go above it.

Streamlit knows a marked row by its number alone, and a browser also reports the marks that it was told
to make: those reports must not be taken for clicks.
"""

from collections import deque
from collections.abc import Hashable, Sequence

import streamlit as st

_REMEMBERED = 3
"""Tables shown last of which a report may still be on its way."""


def mark_row(key: str, names: Sequence[Hashable], chosen: Hashable | None) -> None:
    """Before the table of `key` is drawn: mark the row that is named `chosen`, or none."""
    rows = [names.index(chosen)] if chosen in names else []
    shown = st.session_state.setdefault(_shown(key), deque(maxlen=_REMEMBERED))
    if not shown or shown[-1] != (names, rows):
        shown.append((names, rows))
    st.session_state[key] = {"selection": {"rows": rows}}


def clicked_row(key: str) -> tuple[bool, Hashable | None]:
    """In the table's callback: whether it was a click, and what it chose (None: it took a mark away)."""
    rows = list(st.session_state[key].selection.rows)
    shown = st.session_state.get(_shown(key), ())
    if not shown or any(rows == marked for _, marked in shown):
        return False, None
    names, _ = shown[-1]
    if not rows:
        return True, None
    return (True, names[rows[0]]) if rows[0] < len(names) else (False, None)


def _shown(key: str) -> str:
    return f"{key}-shown"
