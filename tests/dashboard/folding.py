"""Direct folds of traces, to compare with what the dashboard shows."""

from pathlib import Path

from dashboard.feed import Feed
from dashboard.past import Memory
from engine.events import PoolState, TraceReader, encode
from engine.events.records import Step
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe


def folded(path: Path, upto: int | None = None) -> PoolState:
    """The state after the whole trace, or after record `upto`."""
    with TraceReader(path) as reader:
        state = PoolState(reader.header)
        for record in reader:
            if isinstance(record, Step) and upto is not None and record.seq > upto:
                break
            state.apply(record)
    return state


def steps_of(path: Path) -> list[Step]:
    with TraceReader(path) as reader:
        return [record for record in reader if isinstance(record, Step)]


def remembered(engine: SimulatedEngine, steps: int, limit: int | None = None) -> Memory:
    """A memory of `steps` turns of an engine."""
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    memory = Memory(engine.header, limit)
    memory.begin(state)
    for _ in range(steps):
        step = engine.step()
        state.apply(step)
        memory.append(encode(step), state)
    return memory


def fed(engine: SimulatedEngine, steps: int, live: bool = False) -> Feed:
    """A feed that has taken in `steps` turns of an engine."""
    feed = Feed("engine", live=live)
    feed.begin(engine.header)
    feed.apply(empty_keyframe())
    for _ in range(steps):
        feed.apply(engine.step())
    return feed
