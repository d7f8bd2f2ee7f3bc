"""The canvas: one inline Components-v2 component with player, heatmap, figures and ticker.

It knows cells and colours, not events. The JavaScript is kept in files of one subject each and
joined into the one module that Streamlit takes: an inline component cannot import.
"""

from pathlib import Path

import streamlit as st

from dashboard.pool_socket import SOCKET_PATH

_HERE = Path(__file__).resolve().parent
_SCRIPTS = (
    *("dom.js", "theme.js", "readings.js", "grid.js", "paint.js", "flashes.js", "cells.js"),
    *("socket.js", "tooltip.js", "panel.js", "figures.js", "ticker.js"),
    *("scrubber.js", "player.js", "keys.js", "legend.js", "choice.js", "overlay.js"),
    *("hover.js", "pointing.js", "pool.js", "glass.js"),
)
_STYLES = ("glass.css", "player.css", "pool.css", "side.css")


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "glasspool_pool",
    html=_read("pool.html"),
    css="\n".join(map(_read, _STYLES)),
    js="\n".join(map(_read, _SCRIPTS)),
)


def pool_canvas(token: str, with_pool: bool, beside: bool = False) -> None:
    """Mount it for the session of `token`; without the pool it is the player alone.

    `beside` is for a page that tells what is to be seen: player and heatmap only, in a column, and
    the address stays the page's. It fetches everything itself, over the WebSocket of the same origin.
    """
    data = {"path": SOCKET_PATH, "session": token, "with_pool": with_pool, "beside": beside}
    _component(key="glasspool", data=data)
