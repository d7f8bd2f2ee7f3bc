"""A few records by hand, for folds whose every number a test can tell in its head."""

from engine.events import PoolState
from engine.events.records import (
    AnyEvent,
    Durations,
    QueueLengths,
    RequestAdded,
    Step,
    TokenCounts,
)
from tests.dashboard.simulated import empty_keyframe, header


def step(seq: int, time: float, *events: AnyEvent, seconds: float = 0.5, tokens: int = 0) -> Step:
    """Record `seq`, of engine step seq + 100, that took `seconds` in all."""
    return Step(
        seq=seq,
        step=seq + 100,
        time=time,
        durations=Durations(0.0, seconds, 0.0),
        tokens=TokenCounts(decode=tokens),
        queues=QueueLengths(0, 0, 0),
        events=list(events),
    )


def added(
    request: str, sequence: int, prompt: int = 4, n: int = 1, arrived: float = 99.5
) -> RequestAdded:
    return RequestAdded(request, sequence, prompt, n, 50, arrived)


def empty_state(num_blocks: int = 8) -> PoolState:
    """A pool of `num_blocks` blocks of 16 slots after record -1, at time 100."""
    state = PoolState(header(num_blocks))
    state.apply(empty_keyframe())
    return state
