"""A run's events without what differs between runs by their nature: times, and the hashes' salt."""

from pathlib import Path

import msgspec

from engine.events import TraceReader
from engine.events.records import Cache, Evict, RequestAdded, RequestFinished, Sampled, Step

_TIMES = {
    RequestAdded: {"arrived": 0.0, "prompt_text": None},
    RequestFinished: {
        "queue_seconds": 0.0,
        "first_token_seconds": 0.0,
        "duration_seconds": 0.0,
    },
}


def comparable(steps: list[Step]) -> list[list]:
    """The events step by step; hashes are numbered as they first come, so that equal ones stay equal."""
    numbers: dict[str, str] = {}

    def number(name: str | None) -> str | None:
        return None if name is None else numbers.setdefault(name, str(len(numbers)))

    def plain(event):
        match event:
            case Cache():
                return msgspec.structs.replace(
                    event, hash=number(event.hash), parent=number(event.parent)
                )
            case Evict():
                return msgspec.structs.replace(event, hash=number(event.hash))
        return msgspec.structs.replace(event, **_TIMES.get(type(event), {}))

    told = [
        [plain(event) for event in step.events if not isinstance(event, Sampled)] for step in steps
    ]
    return [events for events in told if events]


def steps_of_trace(path: Path) -> list[Step]:
    with TraceReader(path) as trace:
        return [record for record in trace if isinstance(record, Step)]
