"""The server: Streamlit's own routes, the pool's WebSocket, and the feeds that start with it."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route, WebSocketRoute

from dashboard.feeds import close_feeds, feed_of
from dashboard.links import START
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


async def to_start(request: Request) -> RedirectResponse:
    """From the start page's own name, which Streamlit does not serve, to where it is.

    Relative, so that it holds below any path that a proxy puts before it.
    """
    query = request.url.query
    return RedirectResponse(f"./?{query}" if query else "./")


app = st.App(
    Path(__file__).resolve().parent / "app.py",
    routes=[WebSocketRoute(SOCKET_PATH, pool_socket), Route(f"/{START}", to_start)],
    lifespan=lifespan,
)
