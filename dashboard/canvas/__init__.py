"""The heatmap: one inline Components-v2 canvas. It knows cells and colours, not events.

The JavaScript is kept in files of one subject each and joined into the one module that Streamlit
takes: an inline component cannot import.
"""

from pathlib import Path

import streamlit as st

from dashboard.pool_socket import SOCKET_PATH

_HERE = Path(__file__).resolve().parent
_SCRIPTS = ("theme.js", "grid.js", "paint.js", "socket.js", "tooltip.js", "pool.js")


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "glasspool_pool",
    html=_read("pool.html"),
    css=_read("pool.css"),
    js="\n".join(map(_read, _SCRIPTS)),
)


def pool_canvas(key: str) -> None:
    """Mount the canvas. It fetches its cells itself, over the WebSocket of the same origin."""
    _component(key=key, data={"path": SOCKET_PATH})
