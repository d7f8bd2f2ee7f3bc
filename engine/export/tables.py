"""Three tables of a trace: steps, events, requests. Rows come in the order in which things happened.

Times are seconds since the trace's first keyframe (`..._at`), and wall time (`wall_time`, seconds since
the epoch, UTC). A cell is None where there is no such value, or where the producer does not know it.
"""

from collections.abc import Iterator
from enum import Enum

from engine.events.pool_state import PoolState
from engine.events.records import (
    AnyEvent,
    Cache,
    CopyOnWrite,
    Fork,
    Gap,
    Header,
    Keyframe,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    SequenceScheduled,
    Step,
)

Cell = int | float | str | bool | None
Row = dict[str, Cell]


class Kind(Enum):
    """What a column holds. TIME is seconds since the epoch."""

    INTEGER = "integer"
    SECONDS = "seconds"
    TIME = "time"
    TEXT = "text"
    BOOLEAN = "boolean"


_STEP_POOL = {
    "free_blocks": "physical_blocks",
    "cached_blocks": "block_hashes",
    "active_blocks": "physical_blocks",
    "shared_blocks": "ref_counts",
    "references": "ref_counts",
    "slots_filled": "fills",
}

STEPS: dict[str, Kind] = {
    "seq": Kind.INTEGER,
    "step": Kind.INTEGER,
    "began_at": Kind.SECONDS,
    "wall_time": Kind.TIME,
    "schedule_seconds": Kind.SECONDS,
    "model_seconds": Kind.SECONDS,
    "sample_seconds": Kind.SECONDS,
    "prefill_tokens": Kind.INTEGER,
    "decode_tokens": Kind.INTEGER,
    "recompute_tokens": Kind.INTEGER,
    "waiting": Kind.INTEGER,
    "running": Kind.INTEGER,
    "preempted": Kind.INTEGER,
    **dict.fromkeys(_STEP_POOL, Kind.INTEGER),
    "events": Kind.INTEGER,
}
"""One row a step record. Queues and blocks are those at its end."""

EVENTS: dict[str, Kind] = {
    "seq": Kind.INTEGER,
    "step": Kind.INTEGER,
    "number": Kind.INTEGER,
    "at": Kind.SECONDS,
    "wall_time": Kind.TIME,
    "type": Kind.TEXT,
    "request": Kind.TEXT,
    "sequence": Kind.INTEGER,
    "block": Kind.INTEGER,
    "index": Kind.INTEGER,
    "from": Kind.TEXT,
    "source_block": Kind.INTEGER,
    "left": Kind.INTEGER,
    "hash": Kind.TEXT,
    "parent_hash": Kind.TEXT,
    "parent_sequence": Kind.INTEGER,
    "why": Kind.TEXT,
    "victim_of": Kind.INTEGER,
    "blocks_released": Kind.INTEGER,
    "tokens_lost": Kind.INTEGER,
    "tokens": Kind.INTEGER,
    "recomputed": Kind.INTEGER,
    "needed": Kind.INTEGER,
    "available": Kind.INTEGER,
    "queried": Kind.INTEGER,
    "hit": Kind.INTEGER,
    "resumed": Kind.BOOLEAN,
    "prompt_tokens": Kind.INTEGER,
    "n": Kind.INTEGER,
    "max_tokens": Kind.INTEGER,
    "output_tokens": Kind.INTEGER,
    "text": Kind.TEXT,
}
"""One row an event; `number` is its place in the record, `at` when the step began.

`block` is the block that was handed out, shared, released, cached, evicted or copied into;
`why` has an event's reason, kind or outcome. What a request took is in the table of requests.
"""

REQUESTS: dict[str, Kind] = {
    "request": Kind.TEXT,
    "arrived_at": Kind.SECONDS,
    "wall_time": Kind.TIME,
    "prompt_tokens": Kind.INTEGER,
    "n": Kind.INTEGER,
    "max_tokens": Kind.INTEGER,
    "outcome": Kind.TEXT,
    "output_tokens": Kind.INTEGER,
    "preemptions": Kind.INTEGER,
    "recomputed_tokens": Kind.INTEGER,
    "queue_seconds": Kind.SECONDS,
    "first_token_seconds": Kind.SECONDS,
    "duration_seconds": Kind.SECONDS,
    "ended_in": Kind.INTEGER,
}
"""One row a request, when it ends; `ended_in` is the record. Unfinished ones come last, without outcome."""

TABLES = {"steps": STEPS, "events": EVENTS, "requests": REQUESTS}

_RENAMED: dict[type[AnyEvent], dict[str, str]] = {
    Fork: {"parent": "parent_sequence", "child": "sequence"},
    CopyOnWrite: {"source": "source_block", "target": "block", "source_kind": "from"},
    Cache: {"parent": "parent_hash"},
    SequenceScheduled: {"kind": "why"},
}
_USUAL = {"source": "from", "reason": "why"}


class Clock:
    """The producer's seconds as seconds of the run and as wall time."""

    def __init__(self, header: Header, start: float) -> None:
        self.start = start
        self._to_wall = header.wall_time - header.monotonic

    def since_start(self, time: float) -> float:
        return time - self.start

    def wall(self, time: float) -> float:
        return time + self._to_wall


class TableRows:
    """Turns records into rows: `rows` for each record with the state after it, `end` at the end."""

    def __init__(self, header: Header) -> None:
        self._knows = frozenset(header.knows)
        self._header = header
        self._clock: Clock | None = None
        self._requests: dict[str, RequestAdded] = {}
        self._names = {kind: _columns(kind) for kind in AnyEvent.__args__}

    def rows(self, record: Keyframe | Step | Gap, state: PoolState) -> Iterator[tuple[str, Row]]:
        """Table name and row, for all that this record tells."""
        match record:
            case Keyframe():
                self._load(record)
            case Step():
                yield "steps", self._step(record, state)
                for number, event in enumerate(record.events):
                    yield "events", self._event(record, number, event)
                    yield from self._request(record, event)

    def end(self, state: PoolState) -> Iterator[tuple[str, Row]]:
        """The requests that were unfinished when the trace ended."""
        for name, added in self._requests.items():
            row = self._request_row(added)
            request = state.requests.get(name)
            if request is not None:
                row["preemptions"] = request.preemptions
                row["recomputed_tokens"] = request.recomputed_tokens
            yield "requests", row

    def _load(self, keyframe: Keyframe) -> None:
        if self._clock is None:
            self._clock = Clock(self._header, keyframe.time)
        for row in keyframe.requests:
            added = RequestAdded(
                row.request, -1, row.prompt_tokens, row.n, row.max_tokens, row.arrived
            )
            self._requests.setdefault(row.request, added)

    def _step(self, step: Step, state: PoolState) -> Row:
        spent, tokens, queues = step.durations, step.tokens, step.queues
        timed, queued = "durations" in self._knows, "queues" in self._knows
        row: Row = {
            "seq": step.seq,
            "step": step.step,
            "began_at": self._clock.since_start(step.time),
            "wall_time": self._clock.wall(step.time),
            "schedule_seconds": spent.schedule if timed else None,
            "model_seconds": spent.model if timed else None,
            "sample_seconds": spent.sample if timed else None,
            "prefill_tokens": tokens.prefill,
            "decode_tokens": tokens.decode,
            "recompute_tokens": tokens.recompute if "recompute" in self._knows else None,
            "waiting": queues.waiting if queued else None,
            "running": queues.running if queued else None,
            "preempted": queues.preempted if queued else None,
            "events": len(step.events),
        }
        for name, needs in _STEP_POOL.items():
            row[name] = getattr(state, name) if needs in self._knows else None
        return row

    def _event(self, step: Step, number: int, event: AnyEvent) -> Row:
        row: Row = {
            "seq": step.seq,
            "step": step.step,
            "number": number,
            "at": self._clock.since_start(step.time),
            "wall_time": self._clock.wall(step.time),
            "type": type(event).__struct_config__.tag,
        }
        for field, column in self._names[type(event)]:
            row[column] = getattr(event, field)
        return row

    def _request(self, step: Step, event: AnyEvent) -> Iterator[tuple[str, Row]]:
        match event:
            case RequestAdded():
                self._requests[event.request] = event
            case RequestFinished():
                row = self._request_row(self._requests.pop(event.request))
                row |= {
                    "outcome": event.reason,
                    "output_tokens": event.output_tokens,
                    "preemptions": event.preemptions,
                    "recomputed_tokens": event.recomputed_tokens,
                    "ended_in": step.seq,
                }
                if "latencies" in self._knows:
                    row |= {
                        "queue_seconds": event.queue_seconds,
                        "first_token_seconds": event.first_token_seconds,
                        "duration_seconds": event.duration_seconds,
                    }
                yield "requests", row
            case RequestRejected():
                yield (
                    "requests",
                    {
                        "request": event.request,
                        "arrived_at": self._clock.since_start(step.time),
                        "wall_time": self._clock.wall(step.time),
                        "prompt_tokens": event.prompt_tokens,
                        "outcome": "rejected",
                        "ended_in": step.seq,
                    },
                )

    def _request_row(self, added: RequestAdded) -> Row:
        return {
            "request": added.request,
            "arrived_at": self._clock.since_start(added.arrived),
            "wall_time": self._clock.wall(added.arrived),
            "prompt_tokens": added.prompt_tokens,
            "n": added.n,
            "max_tokens": added.max_tokens,
        }


def _columns(kind: type[AnyEvent]) -> list[tuple[str, str]]:
    """Which field of an event goes to which column."""
    renamed = {**_USUAL, **_RENAMED.get(kind, {})}
    pairs = ((field, renamed.get(field, field)) for field in kind.__struct_fields__)
    return [(field, column) for field, column in pairs if column in EVENTS]
