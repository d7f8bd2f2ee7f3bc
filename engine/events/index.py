"""The index of a trace: where its keyframes are, and what had happened up to each.

    frame 0            frame 1                 frame 2
    | header, kf -1 ...| kf 5119, 5120, ... | kf 9871, 9872, ...  <- read to find the last record
                         `- only the first line of these is decoded

It is built without decompressing the frames: zstd tells where each ends, and of a keyframe everything
but its blocks and tables is kept. So what a part of the run held, its preemptions say, is known from
the totals of the keyframes around it. Large traces keep their index beside them, as `NAME.index`.
"""

import contextlib
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyzstd

from engine.events.codec import one_line
from engine.events.lines import LineReader, TraceError, open_trace
from engine.events.records import Count, Place, Totals
from engine.events.trace import read_header

INDEX_VERSION = 1
KEPT_FROM_FRAMES = 64
"""A trace with fewer frames is indexed faster than an index file is worth."""
FINGERPRINT_BYTES = 1 << 16

_SKIPPABLE = range(0x184D2A50, 0x184D2A60)

Progress = Callable[[int, int], None]
"""Told how many bytes of how many are done."""


class Frame(msgspec.Struct, frozen=True):
    """A zstd frame that begins with a keyframe. `offset` counts compressed bytes.

    seq, step, time and totals are the keyframe's: they stand for everything before the frame.
    """

    offset: Count
    seq: Place
    step: Place
    time: float
    totals: Totals


class TraceIndex(msgspec.Struct, frozen=True):
    """`last_*` are of the last whole record.

    `missing` says what a damaged or cut-off trace lacks at its end; None where it is whole.
    """

    version: int
    fingerprint: str
    frames: list[Frame]
    last_seq: Place
    last_step: Place
    last_time: float
    missing: str | None = None


class StepHead(msgspec.Struct, frozen=True, tag_field="type", tag="step"):
    """What of a step record a search needs; its events are skipped, not decoded."""

    seq: Place
    step: Place
    time: float


class KeyframeHead(msgspec.Struct, frozen=True, tag_field="type", tag="keyframe"):
    """A keyframe without its blocks, sequences and requests."""

    seq: Place
    step: Place
    time: float
    totals: Totals


class GapHead(msgspec.Struct, frozen=True, tag_field="type", tag="gap"):
    after: Place
    count: Count


class HeaderHead(msgspec.Struct, frozen=True, tag_field="type", tag="header"):
    """Only told apart: a second header is no part of a trace."""


RecordHead = StepHead | KeyframeHead | GapHead | HeaderHead

_heads = msgspec.json.Decoder(RecordHead)
_index = msgspec.json.Decoder(TraceIndex)


def read_head(lines: LineReader) -> StepHead | KeyframeHead | GapHead | None:
    """What the next line is, without its events; None where there is no more.

    Raises TraceError for a damaged line, and for a second header.
    """
    line = lines.line()
    if line is None:
        return None
    try:
        head = _heads.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TraceError(f"{lines.where}: not a Glasspool record: {one_line(error)}") from None
    if isinstance(head, HeaderHead):
        raise TraceError(f"{lines.where}: a second header")
    return head


def open_index(path: Path, progress: Progress = lambda done, total: None) -> TraceIndex:
    """The trace's index: the one that is kept, where it is this trace's; else built, and kept.

    Raises TraceError where the file is no trace.
    """
    fingerprint = _fingerprint(path)
    places = [path.with_name(f"{path.name}.index"), _cache_folder() / f"{fingerprint}.index"]
    for place in places:
        with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
            kept = _index.decode(place.read_bytes())
            if kept.version == INDEX_VERSION and kept.fingerprint == fingerprint and kept.frames:
                return kept
    index = build_index(path, fingerprint, progress)
    if len(index.frames) >= KEPT_FROM_FRAMES:
        _keep(index, places)
    return index


def build_index(path: Path, fingerprint: str, progress: Progress) -> TraceIndex:
    """Read the trace's frame borders, its keyframes' first lines and its last frame."""
    size = path.stat().st_size
    frames: list[Frame] = []
    for offset in frame_offsets(path):
        frame = _read_frame(path, offset)
        if frame is not None:
            if frames and frame.seq < frames[-1].seq:
                raise TraceError(
                    f"{path}, byte {offset}: a keyframe of record {frame.seq} comes after "
                    f"one of record {frames[-1].seq}; records must not go back"
                )
            frames.append(frame)
        progress(offset, size)
    if not frames:
        raise TraceError(f"{path}, line 2: no keyframe follows the header")
    index = _read_end(path, fingerprint, frames)
    progress(size, size)
    return index


def frame_offsets(path: Path) -> Iterator[int]:
    """Where the file's zstd frames start, in order; the last may be cut off."""
    with open_trace(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        view = memoryview(whole)
        try:
            offset = 0
            while offset < len(view):
                if int.from_bytes(view[offset : offset + 4], "little") not in _SKIPPABLE:
                    yield offset
                try:
                    offset += _frame_size(view, offset)
                except pyzstd.ZstdError:
                    return
        finally:
            view.release()


def _frame_size(view: memoryview, offset: int) -> int:
    with view[offset:] as rest:
        return pyzstd.get_frame_size(rest)


def _read_frame(path: Path, offset: int) -> Frame | None:
    """The frame, where it begins with a keyframe. A line may go on into the next frame: then not."""
    with LineReader(path, offset) as lines:
        if offset == 0:
            read_header(lines)
        try:
            head = read_head(lines)
        except TraceError:
            # Damage is told by who reads that far, with its place; other frames may be whole.
            return None
    if not isinstance(head, KeyframeHead):
        return None
    return Frame(offset, head.seq, head.step, head.time, head.totals)


def _read_end(path: Path, fingerprint: str, frames: list[Frame]) -> TraceIndex:
    """Find the last whole record, in the last frame that begins with a keyframe."""
    last = frames[-1]
    seq, step, time = last.seq, last.step, last.time
    missing = None
    with LineReader(path, last.offset) as lines:
        if last.offset == 0:
            lines.line()
        try:
            while (head := read_head(lines)) is not None:
                if not isinstance(head, GapHead):
                    seq, step, time = head.seq, head.step, head.time
            if lines.cut_off:
                missing = f"{lines.where} is the last that is whole: the trace was cut off after it"
        except TraceError as error:
            missing = str(error)
    return TraceIndex(INDEX_VERSION, fingerprint, frames, seq, step, time, missing)


def _fingerprint(path: Path) -> str:
    """Tells a trace from any other: its length, its first and its last bytes.

    The first have the header's clocks and engine id, the last the sizes of all frames.
    """
    digest = hashlib.blake2b(digest_size=16)
    with open_trace(path) as file:
        try:
            size = file.seek(0, os.SEEK_END)
            digest.update(size.to_bytes(8, "little"))
            for start in (0, max(0, size - FINGERPRINT_BYTES)):
                file.seek(start)
                digest.update(file.read(FINGERPRINT_BYTES))
        except OSError as error:
            raise TraceError(f"cannot read trace {path}: {error.strerror}") from None
    return digest.hexdigest()


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "glasspool" / "traces"


def _keep(index: TraceIndex, places: list[Path]) -> None:
    """Write the index where that is allowed; without one the next reader builds it again."""
    data = msgspec.json.encode(index)
    for place in places:
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            # Two readers may do this at once: each writes its own file, and the name gets a whole one.
            part = place.with_name(f"{place.name}.{os.getpid()}")
            part.write_bytes(data)
            part.replace(place)
            return
