"""What happened to one block before a moment, in sentences, newest first."""

from dataclasses import dataclass

from dashboard.past import Past
from dashboard.readable import plural
from engine.events.records import (
    Allocate,
    AnyEvent,
    BlockSource,
    Cache,
    CopyOnWrite,
    Evict,
    Release,
    ReleaseWhy,
    Share,
    ShareWhy,
)

MAX_RECORDS = 4096
"""Records that are looked through at most, from the moment back."""
CHUNK = 256
_LEFT = {
    ReleaseWhy.FINISHED: "finished and released it",
    ReleaseWhy.ABORTED: "was aborted and released it",
    ReleaseWhy.PREEMPTED: "was preempted and lost it",
    ReleaseWhy.PRUNED: "was overtaken by other beams and released it",
}


@dataclass(frozen=True)
class Change:
    """One thing that happened to a block. `hash` and `parent` are set where it was cached."""

    seq: int
    step: int
    time: float
    text: str
    hash: str | None = None
    parent: str | None = None


def block_changes(past: Past, block: int, seq: int, count: int) -> list[Change]:
    """The last `count` changes of `block` up to record `seq`, newest first.

    Looks through MAX_RECORDS records at most, so it may end before the block's first change.
    """
    found: list[Change] = []
    oldest = max(past.first_seq, seq - MAX_RECORDS)
    while seq > oldest and len(found) < count:
        start = max(oldest, seq - CHUNK)
        chunk = []
        for step in past.records(start, seq):
            for event in step.events:
                change = _told(event, block)
                if change is not None:
                    hashes = (event.hash, event.parent) if isinstance(event, Cache) else ()
                    chunk.append(Change(step.seq, step.step, step.time, change, *hashes))
        found += reversed(chunk)
        seq = start
    return found[:count]


def _told(event: AnyEvent, block: int) -> str | None:
    match event:
        case Allocate(block=at) if at == block:
            old = ", after its old content was evicted" if event.source is _EVICTED else ""
            return f"handed to sequence {event.sequence} as index {event.index}{old}"
        case Share(block=at) if at == block:
            why = "by a fork" if event.why is ShareWhy.FORK else "from the prefix cache"
            return f"shared with sequence {event.sequence} as index {event.index}, {why}"
        case Release(block=at) if at == block:
            left = plural(event.left, "reference")
            return f"sequence {event.sequence} {_LEFT[event.why]}: {left} left"
        case CopyOnWrite(source=at) if at == block:
            return f"copied to block {event.target}, for sequence {event.sequence} to write there"
        case CopyOnWrite(target=at) if at == block:
            return f"became sequence {event.sequence}'s own copy of block {event.source}"
        case Cache(block=at) if at == block:
            return f"full: entered the prefix cache as {event.hash[:8]}"
        case Evict(block=at) if at == block:
            return f"evicted: cached content {event.hash[:8]} is gone"
    return None


_EVICTED = BlockSource.EVICTED
