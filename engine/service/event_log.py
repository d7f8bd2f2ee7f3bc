"""The last records, for whoever reads: written by the engine's thread, read by any number of clients.

    seq % size ->  | 4096 | 4097 | 4098 |  ...  | 4094 | 4095 |
                                    ^ last           ^ a client's cursor: 4 records behind

There is one ring for all, and each client has only a cursor in it. So a slow client costs nothing but
its own lag: when the ring has overwritten its place it has missed records, and is told how many.
A record is encoded when the first client, or the recorder, wants it, and once.
"""

import asyncio

from engine.events.codec import encode
from engine.events.records import Step


class _Entry:
    __slots__ = ("_line", "record")

    def __init__(self, record: Step) -> None:
        self.record = record
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        if self._line is None:
            self._line = encode(self.record)
        return self._line


class EventLog:
    """A ring of the last `size` step records."""

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self.last = -1
        self._ring: list[_Entry | None] = [None] * size
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def append(self, record: Step) -> _Entry:
        """Add the next record. Called by the engine's thread; does nothing else while nobody waits."""
        entry = _Entry(record)
        self._ring[record.seq % self.size] = entry
        self.last = record.seq
        if self._waiters:
            for loop, event in tuple(self._waiters):
                loop.call_soon_threadsafe(event.set)
        return entry

    def holds(self, seq: int) -> bool:
        """Can a client go on that has seen everything up to `seq`?"""
        return max(-1, self.last - self.size) <= seq <= self.last

    def read(self, after: int, most: int) -> list[bytes] | None:
        """Up to `most` encoded records that follow record `after`; None where some were overwritten."""
        lines = []
        for seq in range(after + 1, min(self.last, after + most) + 1):
            entry = self._ring[seq % self.size]
            # The engine's thread may overtake this loop: an entry is only ours if its number is.
            if entry is None or entry.record.seq != seq:
                return None
            lines.append(entry.line)
        return lines

    async def wait_beyond(self, seq: int) -> None:
        """Return once a record after `seq` is here."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        self._waiters.add(waiter)
        try:
            while self.last <= seq:
                await waiter[1].wait()
                waiter[1].clear()
        finally:
            self._waiters.discard(waiter)
