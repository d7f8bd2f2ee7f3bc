"""The sessions of all browsers in this server process, by a token that only its browser knows."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from dashboard.feeds import feed_of
from dashboard.selection import Selection
from dashboard.session import Session
from dashboard.source import DEMO_DATA, Catalog, SourceError, sources_from_environment

IDLE_SECONDS = 15 * 60
"""A session that nobody has asked about for so long is forgotten."""
TOKEN_KEY = "glasspool-session"
SOURCE_KEY = "glasspool-source"


@dataclass
class _Entry:
    session: Session
    asked: float


class Sessions:
    """Token -> Session. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, session: Session) -> str:
        """Keep a session; gives its token."""
        token = secrets.token_urlsafe(18)
        with self._lock:
            now = self._clock()
            for old in [t for t, e in self._entries.items() if now - e.asked > IDLE_SECONDS]:
                del self._entries[old]
            self._entries[token] = _Entry(session, now)
        return token

    def get(self, token: str) -> Session | None:
        """The session of a token, kept alive by asking; None where there is none (any more)."""
        with self._lock:
            entry = self._entries.get(token)
            if entry is None:
                return None
            entry.asked = self._clock()
            return entry.session


@st.cache_resource(show_spinner=False)
def sessions() -> Sessions:
    """The one registry of this process."""
    return Sessions()


@st.cache_resource(show_spinner=False)
def catalog() -> Catalog:
    """The sources of this process. Raises SourceError where the launcher handed over nonsense."""
    return Catalog(sources_from_environment(), DEMO_DATA)


def current_session() -> Session | None:
    """The session of the browser whose script runs; None while there is no source to watch.

    A new one begins where the link says: query parameters source, seq, request, block.
    Raises SourceError.
    """
    token = st.session_state.get(TOKEN_KEY)
    session = None if token is None else sessions().get(token)
    names = catalog().names
    if session is not None or not names:
        return session
    if st.session_state.get(SOURCE_KEY) not in names:
        asked = st.query_params.get("source")
        if asked is not None and asked not in names:
            raise SourceError(
                f"this link is about {asked!r}, which is not among the sources of this dashboard"
            )
        st.session_state[SOURCE_KEY] = asked or names[0]
    feed = feed_of(catalog()[st.session_state[SOURCE_KEY]])
    selection = Selection(st.query_params.get("request"), _number(st.query_params.get("block")))
    session = Session(feed, seq=_number(st.query_params.get("seq")), selection=selection)
    st.session_state[TOKEN_KEY] = sessions().add(session)
    return session


def watch(name: str) -> None:
    """The session of the browser whose script runs goes over to another source of the catalog."""
    session = sessions().get(st.session_state[TOKEN_KEY])
    if session is not None:
        session.open(feed_of(catalog()[name]))


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
