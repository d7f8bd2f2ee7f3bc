"""The recorder: every record of a run, to traces on disk.

It is one more reader of the event log, in a thread of its own: the engine's thread neither encodes,
compresses nor writes for it. What is written is handed to the operating system about once a second,
so that a crash of the process loses no more than that.

    run.jsonl.zst | run.2.jsonl.zst | run.3.jsonl.zst     with a size for rotation: each a whole trace
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from engine.core.snapshot import Snapshot
from engine.events.codec import encode
from engine.events.records import Gap, Header, Keyframe
from engine.events.trace import KeyframePolicy, TraceWriter
from engine.service.event_log import EventLog

log = logging.getLogger("glasspool")
SECONDS_BETWEEN_READS = 0.1
SECONDS_BETWEEN_FLUSHES = 1.0
RECORDS_AT_ONCE = 256
SUFFIX = ".jsonl.zst"


@dataclass(frozen=True)
class Recording:
    """Where to, and how. `max_bytes`: begin the next file beyond so many; None: never.
    `fsync`: wait for the disk at each flush, so that a crash of the machine loses no more either."""

    path: Path
    max_bytes: int | None = None
    fsync: bool = False


class Recorder:
    """Writes what the log has. `lost` counts records that were overwritten before they were read."""

    def __init__(
        self,
        recording: Recording,
        header: Header,
        keyframe: Keyframe,
        event_log: EventLog,
        snapshot: Callable[[], "Future[Snapshot]"],
    ) -> None:
        """Begins the first file. Raises OSError where it can't be written.

        `snapshot` gives the live state at some record from now on.
        """
        self.recording = recording
        self.lost = 0
        self._header = header
        self._log = event_log
        self._snapshot = snapshot
        self._cursor = keyframe.seq
        self._policy = KeyframePolicy(header.num_blocks)
        self._files = 1
        self._writer = TraceWriter(recording.path, header, keyframe)
        self._full = self._dirty = False
        self._flushed = time.monotonic()
        self._flush()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is left and close the file. Called when no more records come."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(SECONDS_BETWEEN_READS):
                self._write_news()
                if self._dirty and time.monotonic() - self._flushed >= SECONDS_BETWEEN_FLUSHES:
                    self._flush()
            self._write_news()
            self._writer.close()
        except OSError as error:
            # The engine goes on: a full disk is no reason to serve nobody.
            log.error("recording to %s ended: %s", self.recording.path, error.strerror or error)
        except Exception:
            log.exception("the recorder failed; the recording ends here")

    def _write_news(self) -> None:
        """Catch up with the log."""
        while (entries := self._log.read(self._cursor, RECORDS_AT_ONCE)) != []:
            if entries is None:
                self._tell_gap()
                continue
            for entry in entries:
                self._writer.write(entry.line)
                self._policy.count(len(entry.record.events))
            self._cursor = entries[-1].record.seq
            self._dirty = True
            if self._policy.due or self._full:
                self._write_keyframe()

    def _write_keyframe(self) -> None:
        """Ask for the live state, go on up to its record, and begin a frame, or a file, with it."""
        keyframe = self._keyframe()
        if keyframe is None:
            return
        while self._cursor < keyframe.seq:
            entries = self._log.read(self._cursor, keyframe.seq - self._cursor)
            if not entries:
                self._write_gap(keyframe)
                return
            for entry in entries:
                self._writer.write(entry.line)
            self._cursor = entries[-1].record.seq
        self._begin(keyframe)

    def _tell_gap(self) -> None:
        keyframe = self._keyframe()
        if keyframe is None:
            # The engine has stopped: the last records are in the log, those before them are lost.
            self._write_gap_before(self._log.last)
            return
        self._write_gap(keyframe)

    def _write_gap(self, keyframe: Keyframe) -> None:
        self._write_gap_before(keyframe.seq)
        self._begin(keyframe)

    def _write_gap_before(self, seq: int) -> None:
        count = seq - self._cursor
        self.lost += count
        self._writer.write(encode(Gap(self._cursor, count, "the recorder was too slow")))
        self._cursor = seq

    def _begin(self, keyframe: Keyframe) -> None:
        if self._full:
            self._writer.close()
            self._files += 1
            self._writer = TraceWriter(self._next_path(), self._header, keyframe)
            self._full = False
            log.info("recording goes on in %s", self._next_path())
        else:
            self._writer.write_keyframe(keyframe)
        self._policy.restart()
        self._dirty = True

    def _next_path(self) -> Path:
        path = self.recording.path
        stem = path.name.removesuffix(SUFFIX)
        return path.with_name(f"{stem}.{self._files}{SUFFIX}")

    def _keyframe(self) -> Keyframe | None:
        """The live state, or None when the engine has stopped."""
        try:
            return self._snapshot().result().keyframe()
        except RuntimeError:
            return None

    def _flush(self) -> None:
        self._writer.flush(sync=self.recording.fsync)
        self._flushed = time.monotonic()
        self._dirty = False
        most = self.recording.max_bytes
        self._full = most is not None and self._writer.size >= most
