"""A recorded run in memory: its header, its records, and the states that they fold to."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from engine.events import FoldError, PoolState, TraceError, TraceReader
from engine.events.records import AnyEvent, Header, Keyframe, RequestAdded, RequestFinished, Step

E = TypeVar("E")


class Run:
    """Header, first keyframe and all steps of a short trace; every reading folds them anew."""

    def __init__(self, header: Header, keyframe: Keyframe, steps: list[Step]) -> None:
        self.header = header
        self.keyframe = keyframe
        self.steps = steps

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Raises TraceError where the file is no trace, and where records are missing from it."""
        with TraceReader(path) as trace:
            records = list(trace)
            header = trace.header
        if not records or not isinstance(records[0], Keyframe):
            raise TraceError(f"{path} does not begin with a keyframe")
        steps = [record for record in records if isinstance(record, Step)]
        if len(steps) + records[0].seq != steps[-1].seq:
            raise TraceError(f"{path} lacks records: a lesson needs a whole run")
        return cls(header, records[0], steps)

    @property
    def block_size(self) -> int:
        return self.header.block_size

    def walk(
        self, before: Callable[[PoolState, Step, AnyEvent], None] | None = None
    ) -> Iterator[tuple[Step, PoolState]]:
        """Each step with the state after it: one state, that moves on.

        `before` is called with each event ahead of its effect. Raises FoldError.
        """
        state = PoolState(self.header)
        state.apply(self.keyframe)
        for step in self.steps:
            if before is None:
                state.apply(step)
            else:
                state.apply(step, lambda event, step=step: before(state, step, event))
            yield step, state

    def state_at(self, seq: int) -> PoolState:
        """The state after record `seq`. Raises FoldError where there is no such record."""
        state = PoolState(self.header)
        state.apply(self.keyframe)
        for step in self.steps:
            if step.seq > seq:
                break
            state.apply(step)
        if state.seq != seq:
            raise FoldError(f"there is no record {seq}")
        return state

    def events(self, kind: type[E]) -> Iterator[tuple[Step, E]]:
        """Every event of a kind with the step that it happened in."""
        for step in self.steps:
            for event in step.events:
                if isinstance(event, kind):
                    yield step, event

    def lengths(self) -> dict[str, tuple[int, int]]:
        """Of each request that ended: tokens of its prompt, and of its answer that got KV.

        For requests of one sequence. The last token of an answer is drawn and never computed.
        """
        prompts = {event.request: event.prompt_tokens for _, event in self.events(RequestAdded)}
        return {
            event.request: (prompts[event.request], event.output_tokens - 1)
            for _, event in self.events(RequestFinished)
        }
