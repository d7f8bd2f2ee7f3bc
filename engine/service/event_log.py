"""The last records, for whoever reads: written by the engine's thread, read by any number of readers.

    seq % size ->  | 4096 | 4097 | 4098 |  ...  | 4094 | 4095 |
                                    ^ last           ^ a reader's cursor: 4 records behind

There is one ring for all, and each reader (a client of the stream, the recorder) has only a cursor in
it. So a slow reader costs nothing but its own lag: when the ring has overwritten its place it has missed
records, and is told how many. A record is encoded when the first reader wants it, and once.
"""

import asyncio

from engine.events.codec import encode
from engine.events.records import Step


class Entry:
    """A record, and its line of JSON once somebody wanted that."""

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
        self._ring: list[Entry | None] = [None] * size
        self._waiters: set[asyncio.Event] = set()

    def append(self, record: Step) -> None:
        """Add the next record. Called by one thread only; seq may jump where records are missing."""
        self._ring[record.seq % self.size] = Entry(record)
        self.last = record.seq

    def begin_after(self, seq: int) -> None:
        """Records up to `seq` will never be here; readers that wait for them find a gap."""
        self.last = seq

    @property
    def waited_for(self) -> bool:
        """Whether somebody in the event loop waits for the next record: then call `wake` there."""
        return bool(self._waiters)

    def wake(self, _: object = None) -> None:
        """Let those go on who wait for a record. Called in the event loop."""
        for waiter in self._waiters:
            waiter.set()

    def holds(self, seq: int) -> bool:
        """Can a reader go on that has seen everything up to `seq`?"""
        return max(-1, self.last - self.size) <= seq <= self.last

    def read(self, after: int, most: int) -> list[Entry] | None:
        """Up to `most` records that follow record `after`; None where some are not here any more."""
        entries = []
        for seq in range(after + 1, min(self.last, after + most) + 1):
            entry = self._ring[seq % self.size]
            # The engine's thread may overtake this loop: an entry is only ours if its number is.
            if entry is None or entry.record.seq != seq:
                return None
            entries.append(entry)
        return entries

    async def wait_beyond(self, seq: int) -> None:
        """Return once a record after `seq` is here."""
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            while self.last <= seq:
                await waiter.wait()
                waiter.clear()
        finally:
            self._waiters.discard(waiter)
