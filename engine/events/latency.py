"""When sequences got their tokens, seen from the records: each was sampled where all others were computed."""

import msgspec

from engine.events.pool_state import PoolState
from engine.events.records import (
    Computed,
    FinishReason,
    Fork,
    Preempt,
    PrefixLookup,
    RequestAdded,
    SequenceFinished,
    SequenceStatus,
    Step,
)


class _Sequence(msgspec.Struct):
    """`tokens` it has, `computed` of them; `last` is when it got its newest, in seconds."""

    prompt: int
    computed: int
    tokens: int | None
    last: float | None = None


class TokenTimes:
    """Follows records; `step` returns the seconds between tokens that a step ended.

    A sequence that the first keyframe found preempted, or whose tokens it does not tell, takes part
    once it is known how many it has. Time that a sequence was preempted is part of what it waited.
    """

    def __init__(self) -> None:
        self._sequences: dict[int, _Sequence] = {}
        self._waited: dict[int, float] = {}

    def load(self, state: PoolState) -> None:
        """Begin again from a keyframe."""
        self._sequences = {}
        for row in state.sequences.values():
            prompt = state.requests[row.request].prompt_tokens
            tokens = None
            if row.text is not None:
                tokens = len(row.text)
            elif row.status is SequenceStatus.RUNNING and row.computed >= prompt:
                tokens = row.computed + 1
            elif not row.preemptions:
                tokens = prompt
            self._sequences[row.sequence] = _Sequence(prompt, row.computed, tokens)

    def step(self, step: Step) -> list[float]:
        """Seconds between one token and the next, of each sequence that got one in this step."""
        spent = step.durations
        end = step.time + spent.schedule + spent.model + spent.sample
        sequences, waited = self._sequences, self._waited
        waited.clear()
        for event in step.events:
            match event:
                case Computed():
                    sequence = sequences[event.sequence]
                    sequence.computed += event.tokens
                    if sequence.computed == sequence.tokens:
                        if sequence.last is not None:
                            waited[event.sequence] = end - sequence.last
                        sequence.tokens += 1
                        sequence.last = end
                case RequestAdded():
                    prompt = event.prompt_tokens
                    sequences[event.sequence] = _Sequence(prompt, 0, prompt)
                case PrefixLookup():
                    sequence = sequences[event.sequence]
                    sequence.computed, sequence.tokens = event.hit, event.queried
                case Preempt():
                    sequences[event.sequence].computed = 0
                case Fork():
                    # The child gets its first token with the parent, in this step.
                    sequences[event.child] = msgspec.structs.replace(sequences[event.parent])
                case SequenceFinished():
                    del sequences[event.sequence]
                    if event.reason is FinishReason.PRUNED:
                        waited.pop(event.sequence, None)
        return list(waited.values())
