"""Traces: records on disk as `.jsonl.zst`, one JSON line a record.

    | header, keyframe, step, step, ... | keyframe, step, ... | keyframe, ... | seek table |
    `------------- frame -------------' `------ frame ------' `--- frame ---'

Each keyframe starts a new zstd frame in the seekable format, so that a reader can jump to it; a plain
`zstd -d` still reads the file. A trace that a crash cut off reads up to its last whole record.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyzstd

from engine.events.codec import RecordError, decode, encode
from engine.events.records import Gap, Header, Keyframe, Step

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longest line that is read. A keyframe of 65,536 blocks is about 2 MB."""


class TraceError(ValueError):
    """The file is no trace, or is damaged before its end. One line that names the file."""


class TraceWriter:
    """Writes one trace. Not thread-safe: it belongs to whoever steps the engine."""

    def __init__(self, path: Path, header: Header, keyframe: Keyframe) -> None:
        """Creates or replaces `path`. Raises OSError where it can't be written."""
        self._file = pyzstd.SeekableZstdFile(path, "w", level_or_option=6)
        self._line(encode(header))
        self._line(encode(keyframe))

    def write(self, line: bytes) -> None:
        """Append one encoded record."""
        self._line(line)

    def write_keyframe(self, keyframe: Keyframe) -> None:
        """Append a keyframe in a frame of its own, for readers that seek."""
        self._file.flush(self._file.FLUSH_FRAME)
        self._line(encode(keyframe))

    def flush(self) -> None:
        """Hand everything so far to the operating system: a crash of this process keeps it."""
        self._file.flush(self._file.FLUSH_BLOCK)

    def close(self) -> None:
        self._file.close()

    def _line(self, line: bytes) -> None:
        self._file.write(line + b"\n")


class TraceReader:
    """Reads one trace from start to end in bounded memory.

    `header` is there at once. Iterating yields the records after it. Where the file was cut off,
    iteration ends at the last whole record and `cut_off` then says so; anything else that is wrong
    raises TraceError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_off: str | None = None
        self._line_number = 0
        try:
            self._file = pyzstd.ZstdFile(path)
        except OSError as error:
            raise TraceError(f"cannot open trace {path}: {error.strerror}") from None
        try:
            first = self._read()
            if not isinstance(first, Header):
                raise TraceError(
                    f"{path} is not a Glasspool trace: it does not begin with a header"
                )
        except BaseException:
            self._file.close()
            raise
        self.header = first

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
        self._file.close()

    def __iter__(self) -> Iterator[Keyframe | Step | Gap]:
        while (record := self._read()) is not None:
            if isinstance(record, Header):
                raise TraceError(f"{self.path}, line {self._line_number}: a second header")
            yield record

    def _read(self) -> Header | Keyframe | Step | Gap | None:
        try:
            line = self._file.readline(MAX_LINE_BYTES)
        except EOFError:
            line = b""
            self._cut_off()
        except (pyzstd.ZstdError, OSError) as error:
            where = f"after line {self._line_number}" if self._line_number else "at its start"
            raise TraceError(
                f"{self.path} is not a readable Glasspool trace (.jsonl.zst), {where}: {error}"
            ) from None
        if not line:
            if not self._line_number:
                raise TraceError(
                    f"{self.path} is not a Glasspool trace: it is empty or cut off in its header"
                )
            return None
        if not line.endswith(b"\n"):
            if len(line) == MAX_LINE_BYTES:
                raise TraceError(
                    f"{self.path}, line {self._line_number + 1}: longer than {MAX_LINE_BYTES} bytes"
                )
            self._cut_off()
            return None
        self._line_number += 1
        try:
            return decode(line)
        except RecordError as error:
            raise TraceError(f"{self.path}, line {self._line_number}: {error}") from None

    def _cut_off(self) -> None:
        self.cut_off = (
            f"{self.path} was cut off: it reads up to line {self._line_number}, the rest is missing"
        )
