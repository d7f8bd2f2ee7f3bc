"""Traces: records on disk as `.jsonl.zst`, one JSON line a record.

    | header, keyframe, step, step, ... | keyframe, step, ... | keyframe, ... | seek table |
    `------------- frame -------------' `------ frame ------' `--- frame ---'

Each keyframe starts a new zstd frame in the seekable format, so that a reader can jump to it (seek.py);
a plain `zstd -d` still reads the file. A trace that a crash cut off reads up to its last whole record.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyzstd

from engine.events.codec import append_line
from engine.events.lines import MAX_LINE_BYTES, LineReader, TraceError
from engine.events.pool_contents import FoldError
from engine.events.pool_state import PoolState
from engine.events.records import Gap, Header, Keyframe, Record, Step

__all__ = ["MAX_LINE_BYTES", "KeyframePolicy", "TraceError", "TraceReader", "TraceWriter"]

EVENTS_PER_KEYFRAME = 8192
EVENTS_A_RECORD = 5
"""To read and decode one more record costs a reader as much as this many events in it."""

GATHERED_BYTES = 64 * 1024
"""Lines are compressed so many bytes at a time: a call for each short line costs more than its work."""

_FORMAT = {pyzstd.CParameter.compressionLevel: 1, pyzstd.CParameter.checksumFlag: 1}
"""With a checksum a reader notices every flipped bit of a finished frame. Higher levels take several
times as long and save a tenth at best: records are short and alike."""


class KeyframePolicy:
    """When a recorder writes the next keyframe: after 8,192 events, or one for every two blocks.

    To reach a record, a reader loads the keyframe before it and folds the events since, and the two
    cost about the same for each block and each event. So events bound the time of a seek, whatever
    a step holds; and a pool of more blocks gets fewer keyframes, so that these stay a bounded share
    of a recording. Each record counts as some events more, for decoding it. Whoever would rather have
    a small file, quickly written, than quick seeks asks for more `events_per_block`.
    """

    def __init__(self, num_blocks: int, events_per_block: float = 0.5) -> None:
        self._most = max(EVENTS_PER_KEYFRAME, int(num_blocks * events_per_block))
        self._events = 0

    def count(self, events: int) -> None:
        """A step record with so many events was written."""
        self._events += events + EVENTS_A_RECORD

    @property
    def due(self) -> bool:
        """A keyframe is to be written now."""
        return self._events >= self._most

    def restart(self) -> None:
        """A keyframe was written."""
        self._events = 0


class TraceWriter:
    """Writes one trace. Not thread-safe: it belongs to whoever steps the engine."""

    def __init__(self, path: Path, header: Header, keyframe: Keyframe) -> None:
        """Creates or replaces `path`. Raises OSError where it can't be written."""
        self._disk = path.open("wb")
        self._file = pyzstd.SeekableZstdFile(self._disk, "w", level_or_option=_FORMAT)
        self._lines = bytearray()
        append_line(header, self._lines)
        self.write_record(keyframe)

    def write(self, line: bytes) -> None:
        """Append one encoded record."""
        self._lines += line
        self._lines += b"\n"
        self._compress_much()

    def write_record(self, record: Record) -> None:
        """Append one record that nobody has encoded."""
        append_line(record, self._lines)
        self._compress_much()

    def write_keyframe(self, keyframe: Keyframe) -> None:
        """Append a keyframe in a frame of its own, for readers that seek."""
        self._compress()
        self._file.flush(self._file.FLUSH_FRAME)
        self.write_record(keyframe)

    def flush(self, *, sync: bool = False) -> None:
        """Hand everything so far to the operating system: a crash of this process keeps it.

        With `sync`, wait for the disk: a crash of the machine keeps it too.
        """
        self._compress()
        self._file.flush(self._file.FLUSH_BLOCK)
        self._disk.flush()
        if sync:
            os.fsync(self._disk.fileno())

    @property
    def size(self) -> int:
        """Bytes of the file, as of the last flush."""
        return self._disk.tell()

    def close(self) -> None:
        self._compress()
        self._file.close()
        self._disk.close()

    def _compress_much(self) -> None:
        if len(self._lines) >= GATHERED_BYTES:
            self._compress()

    def _compress(self) -> None:
        if self._lines:
            self._file.write(self._lines)
            self._lines.clear()


class TraceReader:
    """Reads one trace from start to end in bounded memory.

    `header` is there at once. Iterating yields the records after it. Where the file was cut off,
    iteration ends at the last whole record and `cut_off` then says so; anything else that is wrong
    raises TraceError.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lines = LineReader(self.path)
        try:
            self.header = read_header(self._lines)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "TraceReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()

    def __iter__(self) -> Iterator[Keyframe | Step | Gap]:
        while (record := self._lines.record()) is not None:
            if isinstance(record, Header):
                raise TraceError(f"{self.where}: a second header")
            yield record

    def fold(self) -> Iterator[tuple[Keyframe | Step | Gap, PoolState]]:
        """Each record with the state after it: one state, that moves on.

        It is folded from one keyframe up to the end, or to a gap; the keyframes between are passed
        over. Raises TraceError also for a record that cannot follow from those before it.
        """
        state = PoolState(self.header)
        for record in self:
            try:
                if not (isinstance(record, Keyframe) and state.complete):
                    state.apply(record)
            except FoldError as error:
                raise TraceError(f"{self.where}: {error}") from None
            if isinstance(record, Keyframe) and record.seq != state.seq:
                raise TraceError(
                    f"{self.where}: a keyframe of record {record.seq} follows record {state.seq}"
                )
            yield record, state

    @property
    def where(self) -> str:
        """File and number of the last line that was read, for messages."""
        return self._lines.where

    @property
    def line(self) -> int:
        """Lines read so far, the header's among them."""
        return self._lines.count

    @property
    def position(self) -> int:
        """Bytes of the file that were read so far, for progress bars."""
        return self._lines.position

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    @property
    def cut_off(self) -> str | None:
        """What is missing at the end, as a sentence; None while nothing is known to be."""
        if not self._lines.cut_off:
            return None
        return (
            f"{self.path} was cut off: it reads up to line {self._lines.count}, the rest is missing"
        )


def read_header(lines: LineReader) -> Header:
    """The header of a trace whose lines are read from its start. Raises TraceError for any other."""
    first = lines.record()
    if first is None:
        raise TraceError(
            f"{lines.path} is not a Glasspool trace: it is empty or cut off in its header"
        )
    if not isinstance(first, Header):
        raise TraceError(f"{lines.path} is not a Glasspool trace: it does not begin with a header")
    return first
