"""Lines of a zstd file, read from the start of any of its frames on, in bounded memory."""

from pathlib import Path
from typing import BinaryIO

import pyzstd

from engine.events.codec import RecordError, decode, one_line
from engine.events.records import Record

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longest line that is read. A keyframe of 65,536 blocks is about 2 MB."""
CHUNK_BYTES = 1 << 20


class TraceError(ValueError):
    """The file is no trace, or is damaged before its end. One line that names the file."""


class LineReader:
    """Reads line by line. `cut_off` is set once the file turned out to end within a frame or a line.

    `offset` is where a frame starts; lines are counted from there, and only `where` looks further.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        """Raises TraceError where the file can't be opened."""
        self.path = path
        self.offset = offset
        self.count = 0
        self.cut_off = False
        self._file: BinaryIO = open_trace(path)
        self._file.seek(offset)
        self._lines = pyzstd.ZstdFile(self._file)

    def __enter__(self) -> "LineReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._file.close()

    @property
    def position(self) -> int:
        """Compressed bytes read so far, from the file's start."""
        return self._file.tell()

    def line(self) -> bytes | None:
        """The next whole line, without its end; None where there is no more.

        Raises TraceError where the file is damaged.
        """
        try:
            line = self._lines.readline(MAX_LINE_BYTES)
        except EOFError:
            self.cut_off = True
            return None
        except (pyzstd.ZstdError, OSError) as error:
            after = self._number(self.count)
            place = f"after line {after}" if after else "at its start"
            raise TraceError(
                f"{self.path} is not a readable Glasspool trace (.jsonl.zst), {place}: "
                f"{one_line(error)}"
            ) from None
        if not line:
            return None
        if not line.endswith(b"\n"):
            if len(line) == MAX_LINE_BYTES:
                self.count += 1
                raise TraceError(f"{self.where}: longer than {MAX_LINE_BYTES} bytes")
            self.cut_off = True
            return None
        self.count += 1
        return line[:-1]

    def record(self) -> Record | None:
        """The record in the next line; None where there is no more."""
        line = self.line()
        if line is None:
            return None
        try:
            return decode(line)
        except RecordError as error:
            raise TraceError(f"{self.where}: {error}") from None

    @property
    def where(self) -> str:
        """File and number of the last line that was read, for messages."""
        return f"{self.path}, line {self._number(self.count)}"

    def _number(self, count: int) -> int:
        """From the file's start. Only messages ask, so nobody else pays for counting."""
        return count if self.offset == 0 else _lines_before(self.path, self.offset) + count


def open_trace(path: Path) -> BinaryIO:
    """The file, open for reading. Raises TraceError where that fails."""
    try:
        return path.open("rb")
    except OSError as error:
        raise TraceError(f"cannot open trace {path}: {error.strerror}") from None


def _lines_before(path: Path, offset: int) -> int:
    """Line ends in the frames before a compressed offset."""
    decompressor, count = pyzstd.EndlessZstdDecompressor(), 0
    with path.open("rb") as file:
        while offset > 0 and (chunk := file.read(min(offset, CHUNK_BYTES))):
            offset -= len(chunk)
            count += decompressor.decompress(chunk, CHUNK_BYTES).count(b"\n")
            while not decompressor.needs_input and not decompressor.at_frame_edge:
                count += decompressor.decompress(b"", CHUNK_BYTES).count(b"\n")
    return count
