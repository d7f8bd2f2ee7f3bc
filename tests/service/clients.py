"""A reader of the event stream, for tests."""

import time

from websockets.sync.client import connect

from engine.events import PoolState, decode
from engine.events.records import Gap, Header, Heartbeat, Keyframe, Step


class StreamReader:
    """Connects, and folds what comes. `records` keeps all but the header."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url, max_size=None)
        self.socket = self._connection.__enter__()
        self._lines: list[str] = []
        self.records: list[Keyframe | Step | Gap] = []
        header = self._next()
        assert isinstance(header, Header)
        self.header = header
        self.state = PoolState(header)

    def __enter__(self) -> "StreamReader":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def _next(self, timeout: float = 20):
        if not self._lines:
            self._lines = self.socket.recv(timeout).split("\n")
        return decode(self._lines.pop(0))

    def read(self, timeout: float = 20) -> Keyframe | Step | Gap:
        """The next record that tells something, folded. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while isinstance(record := self._next(deadline - time.monotonic()), Heartbeat):
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing but heartbeats for {timeout} s")
        self.records.append(record)
        self.state.apply(record)
        return record

    def read_until_idle(self) -> PoolState:
        """Read until no request is unfinished."""
        while not self.state.complete or self.state.requests:
            self.read()
        return self.state
