"""The simulated engine must be worth testing with: sound books, and every kind of event."""

from pathlib import Path

from engine.events import PoolState, TraceReader, check_state, check_step
from engine.events.records import (
    Allocate,
    Cache,
    CopyOnWrite,
    Evict,
    Fork,
    Preempt,
    RequestFinished,
    ScheduledKind,
    SequenceScheduled,
    Share,
    Step,
)


def test_the_trace_keeps_its_books_and_has_every_kind_of_event(small_trace: Path) -> None:
    kinds = set()
    with TraceReader(small_trace) as reader:
        state = PoolState(reader.header)
        for record in reader:
            state.apply(record)
            assert check_state(state) == []
            if isinstance(record, Step):
                assert check_step(state, record) == []
                kinds |= {type(event) for event in record.events}
                kinds |= {
                    event.kind for event in record.events if isinstance(event, SequenceScheduled)
                }
    wanted = {Allocate, Cache, CopyOnWrite, Evict, Fork, Preempt, RequestFinished, Share}
    assert wanted | {ScheduledKind.RESUMED} <= kinds
