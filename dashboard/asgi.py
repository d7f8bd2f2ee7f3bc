"""The server: Streamlit's own routes, the pool's WebSocket, and the feed that starts with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.routing import WebSocketRoute

from dashboard.feeds import close_feeds, feed_of
from dashboard.pool_socket import SOCKET_PATH, pool_socket
from dashboard.source import source_from_environment


@asynccontextmanager
async def lifespan(app: st.App) -> AsyncIterator[None]:
    """The feed runs from the server's start, so that the first page has a past to show."""
    feed_of(source_from_environment())
    yield
    close_feeds()


app = st.App(
    Path(__file__).resolve().parent / "app.py",
    routes=[WebSocketRoute(SOCKET_PATH, pool_socket)],
    lifespan=lifespan,
)
