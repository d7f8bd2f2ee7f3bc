"""The recorder: every record of a run, to a trace on disk."""

import time
from pathlib import Path

from engine.events.records import Header, Keyframe
from engine.events.trace import TraceWriter

RECORDS_PER_KEYFRAME = 512
SECONDS_PER_FLUSH = 1.0


class Recorder:
    """Writes in the engine's thread, so that it can neither lag nor lose a record.

    What was written is handed to the operating system at least once a second while records come,
    and when `flush` is called: a crash of the engine loses no more than that.
    """

    def __init__(self, path: Path, header: Header, keyframe: Keyframe) -> None:
        self.path = path
        self._writer = TraceWriter(path, header, keyframe)
        self._since_keyframe = 0
        self._flushed = time.monotonic()
        self.flush()

    def write(self, line: bytes) -> None:
        """Append one encoded record."""
        self._writer.write(line)
        self._since_keyframe += 1
        if time.monotonic() - self._flushed > SECONDS_PER_FLUSH:
            self.flush()

    @property
    def wants_keyframe(self) -> bool:
        return self._since_keyframe >= RECORDS_PER_KEYFRAME

    def write_keyframe(self, keyframe: Keyframe) -> None:
        self._writer.write_keyframe(keyframe)
        self._since_keyframe = 0

    def flush(self) -> None:
        self._writer.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self._writer.close()
