"""One feed and one pump thread per source and server process, whoever asks first."""

import threading

import streamlit as st

from dashboard.feed import Feed
from dashboard.live import follow_engine
from dashboard.replay import read_trace
from dashboard.source import EngineSource, Source, parse_source, source_text


class RunningFeed:
    """A feed with the thread that fills it."""

    def __init__(self, source: Source) -> None:
        self.feed = Feed(source.name, live=isinstance(source, EngineSource))
        self._stop = threading.Event()
        if isinstance(source, EngineSource):
            target, what = follow_engine, source
        else:
            target, what = read_trace, source.path
        self._thread = threading.Thread(
            target=target, args=(self.feed, what, self._stop), name="glasspool-feed", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join(timeout=5)


@st.cache_resource(show_spinner=False, on_release=RunningFeed.close)
def _running_feed(text: str) -> RunningFeed:
    return RunningFeed(parse_source(text))


def feed_of(source: Source) -> Feed:
    """The feed of a source; the first call starts it. Any thread may ask."""
    return _running_feed(source_text(source)).feed


def close_feeds() -> None:
    """End every feed of this process."""
    _running_feed.clear()
