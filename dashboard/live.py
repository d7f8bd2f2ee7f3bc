"""The pump for a live engine: its event stream into a feed, with reconnects."""

import os
import threading
from collections.abc import Iterator

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from dashboard.feed import Feed, Phase, Status
from dashboard.source import EngineSource
from engine.events import FoldError, RecordError, decode
from engine.events.records import Gap, Header, Heartbeat, Keyframe, Record
from engine.events.trace import MAX_LINE_BYTES

KEY_VARIABLE = "GLASSPOOL_API_KEY"
FIRST_WAIT, LONGEST_WAIT = 0.25, 4.0
"""Seconds between two attempts to connect; doubled after each that failed."""


def follow_engine(feed: Feed, source: EngineSource, stop: threading.Event) -> None:
    """Runs until `stop` is set. Every loss is said; a new connection starts from a keyframe."""
    wait = FIRST_WAIT
    while not stop.is_set():
        try:
            with connect(
                source.events_url,
                max_size=MAX_LINE_BYTES,
                open_timeout=5,
                ping_interval=5,
                ping_timeout=10,
                close_timeout=1,
                proxy=None,
                additional_headers=_headers(),
            ) as socket:
                for record, line in _records(socket, stop):
                    _take(feed, source, record, line)
                    if isinstance(record, Keyframe):
                        wait = FIRST_WAIT
            reason = "the engine closed the stream"
        except FoldError as error:
            reason = f"the stream contradicts itself ({error})"
            feed.missing(f"{reason}: starting again from the engine's own state")
        except RecordError as error:
            reason = str(error)
        except ConnectionClosed:
            reason = "the connection broke"
        except (OSError, WebSocketException) as error:
            reason = _why(error)
        if stop.is_set():
            return
        feed.say(Status(Phase.LOST, f"Not connected to {source.name}: {reason}. Trying again."))
        stop.wait(wait)
        wait = min(2 * wait, LONGEST_WAIT)


def _records(socket: ClientConnection, stop: threading.Event) -> Iterator[tuple[Record, bytes]]:
    while not stop.is_set():
        try:
            message = socket.recv(timeout=0.5, decode=False)
        except TimeoutError:
            continue
        for line in message.splitlines():
            if line:
                yield decode(line), line


def _take(feed: Feed, source: EngineSource, record: Record, line: bytes) -> None:
    if isinstance(record, Header):
        feed.begin(record)
        return
    if isinstance(record, Heartbeat):
        feed.heard()
        return
    feed.apply(record, line)
    if isinstance(record, Gap):
        text = f"{record.count:,} step records from {source.name} are missing: {record.why}"
        feed.say(Status(Phase.GAP, f"{text}. Waiting for the engine's whole state."))
    elif isinstance(record, Keyframe):
        feed.say(Status(Phase.LIVE, f"live from {source.name}"))


def _headers() -> dict[str, str]:
    """The key that engines ask for, where the dashboard was started with one."""
    key = os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _why(error: Exception) -> str:
    if isinstance(error, InvalidStatus) and error.response.status_code == 401:
        return f"it asks for its API key; start the dashboard with it in {KEY_VARIABLE}"
    if isinstance(error, ConnectionRefusedError):
        return "nothing answers there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
