"""The server: Streamlit's own routes, the pool's WebSocket, and the feeds that start with it."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.routing import WebSocketRoute

from dashboard.feeds import close_feeds, feed_of
from dashboard.pool_socket import SOCKET_PATH, pool_socket
from dashboard.source import SourceError, sources_from_environment


@asynccontextmanager
async def lifespan(app: st.App) -> AsyncIterator[None]:
    """The feeds run from the server's start, so that the first page has a past to show."""
    with contextlib.suppress(SourceError):  # every page says it
        for source in sources_from_environment():
            feed_of(source)
    yield
    close_feeds()


app = st.App(
    Path(__file__).resolve().parent / "app.py",
    routes=[WebSocketRoute(SOCKET_PATH, pool_socket)],
    lifespan=lifespan,
)
