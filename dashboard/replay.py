"""The pump for a trace: reads the file once, as fast as it goes. Sessions play it from the past."""

import contextlib
import threading
from pathlib import Path

from dashboard.feed import Feed, Phase, Status
from dashboard.readable import plural
from engine.events import FoldError, TraceError, TraceReader
from engine.events.records import Gap, Keyframe, Step
from engine.events.seek import SeekableTrace

SAY_EVERY = 100
"""Records between two reports of how far the reading has come."""


def read_trace(feed: Feed, path: Path, stop: threading.Event) -> None:
    """Returns when all is read, when `stop` is set, or when the file turns out to be no trace."""
    feed.say(Status(Phase.CONNECTING, f"reading {path.name}"))
    try:
        with TraceReader(path) as reader:
            feed.begin(reader.header)
            _back_with_disk(feed, path)
            fault = _read(feed, reader, stop)
    except (TraceError, OSError) as error:
        feed.say(Status(Phase.FAILED, str(error)))
        return
    if feed.past.last_seq < 0 and feed.scene.grid is None:
        feed.say(Status(Phase.FAILED, fault or f"{path.name} has a header and nothing else"))
    elif not stop.is_set():
        feed.say(Status(Phase.RECORDED, f"recorded in {path.name}", fault))


def _back_with_disk(feed: Feed, path: Path) -> None:
    # A trace whose index cannot be made is still read from its start, as far as it goes.
    with contextlib.suppress(TraceError):
        feed.back_with(SeekableTrace(path))


def _read(feed: Feed, reader: TraceReader, stop: threading.Event) -> str | None:
    """Reads to the end. Gives what is wrong with the trace, as a sentence."""
    fault, waiting, count = None, False, 0
    records = iter(reader)
    while not stop.is_set():
        try:
            record = next(records, None)
        except TraceError as error:
            fault = str(error)
            break
        if record is None:
            fault = fault or reader.cut_off
            break
        if waiting and not isinstance(record, Keyframe):
            continue
        waiting = not _take(feed, record)
        if waiting and isinstance(record, Step):
            fault = f"{reader.path.name} contradicts itself at record {record.seq}: see the ticker"
        count += 1
        if count % SAY_EVERY == 0:
            share = f"{100 * reader.position / max(1, reader.size):.0f} %"
            text = f"reading {reader.path.name}: {share}, {plural(count, 'record')} so far"
            feed.say(Status(Phase.READING, text))
    if fault is not None:
        feed.missing(fault)
    return fault


def _take(feed: Feed, record: Keyframe | Step | Gap) -> bool:
    """Whether the record after this one can be folded."""
    try:
        feed.apply(record)
    except FoldError as error:
        feed.missing(f"the trace contradicts itself ({error}): nothing up to its next keyframe")
        return False
    return not isinstance(record, Gap)
