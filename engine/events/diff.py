"""Two runs side by side: the first record in which they part, and the figures that differ.

What two equal runs never share is left out of the comparison: times and durations, engine ids, names
of requests (the n-th request of one run is that of the other) and salted hashes (the same holds).
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec

from engine.events.index import Progress
from engine.events.pool_state import PoolState
from engine.events.records import (
    AnyEvent,
    Cache,
    Evict,
    Gap,
    Header,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    Step,
)
from engine.events.stats import StatsFold, TraceStats
from engine.events.trace import TraceReader

IGNORED = "times, durations, engine ids, names of requests and salts of hashes"
RECORDS_PER_TELL = 256
LONGEST = 60


class Difference(msgspec.Struct, frozen=True):
    """Where two runs part. `seq` and `step` are those of A's record, or of B's where A has ended."""

    seq: int
    step: int
    text: str


class Figure(msgspec.Struct, frozen=True):
    """A figure of TraceStats by name; None where a run does not tell it."""

    name: str
    a: int | float | str | None
    b: int | float | str | None


class TraceDiff(msgspec.Struct, frozen=True):
    """`first` is None where all that is compared is equal. `settings` are header fields that differ;
    `figures` those of the two runs' statistics, times included."""

    first: Difference | None
    settings: list[Figure]
    figures: list[Figure]
    a: TraceStats
    b: TraceStats

    @property
    def same(self) -> bool:
        return self.first is None


def diff_traces(a: Path, b: Path, progress: Progress = lambda done, total: None) -> TraceDiff:
    """Read both traces once. Raises TraceError where one is damaged or contradicts itself."""
    with TraceReader(a) as reader_a, TraceReader(b) as reader_b:
        total = a.stat().st_size + b.stat().st_size
        run_a, run_b = _Run(reader_a), _Run(reader_b)
        first = None
        for number, (one, other) in enumerate(zip_longest(run_a.records(), run_b.records())):
            if first is None:
                first = _compare(one, run_a.names, other, run_b.names)
            if number % RECORDS_PER_TELL == 0:
                progress(reader_a.position + reader_b.position, total)
        progress(total, total)
        stats_a, stats_b = run_a.stats(), run_b.stats()
        settings = list(_differing(_settings(reader_a.header), _settings(reader_b.header)))
    figures = list(_differing(_flat(stats_a), _flat(stats_b)))
    return TraceDiff(first, settings, figures, stats_a, stats_b)


class _Names:
    """Request names and hashes by the order in which they appear."""

    def __init__(self) -> None:
        self._requests: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def request(self, name: str) -> str:
        return self._requests.setdefault(name, f"request {len(self._requests)}")

    def digest(self, name: str | None) -> str | None:
        return None if name is None else self._hashes.setdefault(name, f"hash {len(self._hashes)}")

    def plain(self, event: AnyEvent) -> AnyEvent:
        """The event without what is ignored."""
        replace = msgspec.structs.replace
        match event:
            case RequestAdded():
                return replace(event, request=self.request(event.request), arrived=0.0)
            case RequestRejected():
                return replace(event, request=self.request(event.request))
            case RequestFinished():
                return replace(
                    event, request=self.request(event.request), queue_seconds=None,
                    first_token_seconds=None, duration_seconds=0.0,
                )  # fmt: skip
            case Cache():
                return replace(
                    event, hash=self.digest(event.hash), parent=self.digest(event.parent)
                )
            case Evict():
                return replace(event, hash=self.digest(event.hash))
        return event


class _Run:
    """One trace as it is read: its figures so far, and its names in order."""

    def __init__(self, reader: TraceReader) -> None:
        self.names = _Names()
        self._reader = reader
        self._fold = StatsFold(reader.header)
        self._state = PoolState(reader.header)

    def records(self) -> Iterator[Step | Gap]:
        for record, state in self._reader.fold():
            self._state = state
            self._fold.add(record, state)
            if isinstance(record, Step | Gap):
                yield record

    def stats(self) -> TraceStats:
        return self._fold.result(self._state, self._reader.cut_off)


def _compare(
    a: Step | Gap | None, names_a: _Names, b: Step | Gap | None, names_b: _Names
) -> Difference | None:
    if a is None or b is None:
        ended, on = ("A", b) if a is None else ("B", a)
        place = _place(on)
        return Difference(*place, f"{ended} ends here, the other run goes on with {_what(on)}")
    if isinstance(a, Gap) or isinstance(b, Gap):
        if a == b:
            return None
        return Difference(*_place(a), f"A has {_what(a)}, B has {_what(b)}")
    if isinstance(a, Step) and isinstance(b, Step):
        text = _events(a, names_a, b, names_b) or _counts(a, b)
        return None if text is None else Difference(a.seq, a.step, text)
    return None


def _events(a: Step, names_a: _Names, b: Step, names_b: _Names) -> str | None:
    """How the events of two steps differ, from the first that does."""
    for number, (one, other) in enumerate(zip_longest(a.events, b.events)):
        if one is None or other is None:
            short, event = ("A", other) if one is None else ("B", one)
            return f"{short} has {number} events, the other run goes on with {_event(event)}"
        if type(one) is not type(other):
            return f"event {number}: A has {_event(one)}, B has {_event(other)}"
        left, right = names_a.plain(one), names_b.plain(other)
        if left != right:
            fields = [
                f"{name} {_short(getattr(left, name))} in A, {_short(getattr(right, name))} in B"
                for name in left.__struct_fields__
                if getattr(left, name) != getattr(right, name)
            ]
            return f"event {number}, {_tag(one)}{_of(one)}: {'; '.join(fields)}"
    return None


def _counts(a: Step, b: Step) -> str | None:
    for name in ("seq", "step", "tokens", "queues"):
        left, right = getattr(a, name), getattr(b, name)
        if left != right:
            return f"{name}: {left} in A, {right} in B"
    return None


def _place(record: Step | Gap) -> tuple[int, int]:
    return (record.seq, record.step) if isinstance(record, Step) else (record.after, -1)


def _what(record: Step | Gap) -> str:
    if isinstance(record, Gap):
        return f"{record.count} records left out after {record.after} ({record.why})"
    return f"record {record.seq} of {len(record.events)} events"


def _tag(event: AnyEvent) -> str:
    return type(event).__struct_config__.tag


def _of(event: AnyEvent) -> str:
    sequence = getattr(event, "sequence", None)
    return "" if sequence is None else f" of sequence {sequence}"


def _event(event: AnyEvent) -> str:
    """An event's type and numbers."""
    numbers = ", ".join(
        f"{name} {getattr(event, name)}"
        for name in event.__struct_fields__
        if isinstance(getattr(event, name), int)
    )
    return f"{_tag(event)} ({numbers})" if numbers else _tag(event)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _settings(header: Header) -> dict[str, int | float | str | None]:
    """What a run was made with."""
    plain = {
        name: getattr(header, name)
        for name in ("model", "dtype", "block_size", "num_blocks", "bytes_per_block")
    }
    return {**plain, **{f"config.{name}": value for name, value in header.config.items()}}


def _flat(stats: TraceStats) -> dict[str, int | float | str | None]:
    """Figures by dotted names."""
    flat: dict[str, int | float | str | None] = {}

    def add(prefix: str, value: object) -> None:
        if isinstance(value, dict):
            for name, part in value.items():
                add(f"{prefix}.{name}" if prefix else name, part)
        elif not isinstance(value, list):
            flat[prefix] = value

    data = msgspec.to_builtins(stats)
    for name in ("engine_id", "model", "num_blocks", "block_size", "before"):
        del data[name]
    add("", data)
    return flat


def _count_of_none(name: str) -> int | None:
    """Totals have no entry for a reason that never came up: that is a count of 0."""
    return 0 if name.startswith(("totals.preemptions.", "totals.requests_finished.")) else None


def _differing(a: dict, b: dict) -> Iterator[Figure]:
    for name in {**a, **b}:
        left, right = (run.get(name, _count_of_none(name)) for run in (a, b))
        if left != right:
            yield Figure(name, left, right)
