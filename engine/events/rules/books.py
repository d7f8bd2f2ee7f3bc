"""Rules about the books: numbers, times, queues, totals, keyframes, ended requests (1, 19, 20)."""

from itertools import pairwise

from engine.events.checks import check_state
from engine.events.pool_state import PoolState
from engine.events.records import (
    AnyEvent,
    BlockRow,
    Computed,
    FinishReason,
    Fork,
    Gap,
    Keyframe,
    RequestAdded,
    RequestFinished,
    SequenceFinished,
    Step,
)
from engine.events.rules.broken import BrokenRule, require

ROUNDING = 1e-6
"""Seconds by which sums of times may differ."""


class BookRules:
    """Watches what records say of themselves. Memory is bounded by the unfinished requests."""

    def __init__(self, state: PoolState) -> None:
        self.state = state
        self.knows = frozenset(state.header.knows)
        self.handlers = {
            RequestAdded: self._added,
            Computed: self._computed,
            Fork: self._fork,
            SequenceFinished: self._sequence_finished,
            RequestFinished: self._request_finished,
        }
        self._step = -1
        self._time = 0.0
        self._tokens = 0
        self._recomputed = 0
        self._outputs: dict[str, int | None] = {}
        self._after_gap: int | None = None

    def load(self) -> None:
        """The state came from a keyframe, not from the records before it."""
        state = self.state
        self._step, self._time = state.step, state.time
        # Which of a request's sequences have ended, a keyframe does not tell.
        self._outputs = dict.fromkeys(state.requests)
        require(
            self._after_gap in (None, state.seq),
            19,
            f"a gap ends with record {self._after_gap}, the keyframe after it is of {state.seq}",
        )
        self._after_gap = None
        for fault in check_state(state):
            raise BrokenRule(1, fault)
        for sequence in state.sequences.values():
            require(
                sequence.request in state.requests,
                19,
                f"sequence {sequence.sequence} is of an unknown request {sequence.request}",
            )

    def check(self, event: AnyEvent) -> None:
        """Called ahead of every event's effect."""
        handler = self.handlers.get(type(event))
        if handler is not None:
            handler(event)

    def end(self, step: Step) -> None:
        """The step's last event has taken effect."""
        tokens, state = step.tokens, self.state
        if tokens.total != self._tokens:
            raise BrokenRule(
                20, f"the step counts {tokens.total} tokens, its events {self._tokens}"
            )
        if tokens.recompute != self._recomputed:
            raise BrokenRule(
                20,
                f"the step counts {tokens.recompute} recomputed tokens, its events "
                f"{self._recomputed}",
            )
        if "queues" in self.knows and step.queues != state.queues:
            raise BrokenRule(20, f"the step has {step.queues}, its events lead to {state.queues}")
        expected = self._step + (tokens.total > 0)
        if step.step != expected:
            raise BrokenRule(19, f"the step has number {step.step}, {expected} comes next")
        if step.time < self._time - ROUNDING:
            raise BrokenRule(
                19, f"the step began at {step.time:.6f} s, the one before at {self._time:.6f} s"
            )
        if not state.sequences and state.active_blocks:
            raise BrokenRule(
                1, f"nothing runs or waits, and {state.active_blocks} blocks are active"
            )
        self._step, self._time = step.step, step.time
        self._tokens = self._recomputed = 0

    def gap(self, gap: Gap) -> None:
        """A gap follows the record that it says, and leaves something out."""
        require(gap.count > 0, 19, "a gap leaves out no record")
        require(
            gap.after == self.state.seq,
            19,
            f"a gap after record {gap.after} comes after record {self.state.seq}",
        )
        self._after_gap = gap.after + gap.count

    def keyframe(self, keyframe: Keyframe) -> None:
        """A keyframe inside the trace is the state that the records before it led to."""
        state = self.state
        require(
            (keyframe.seq, keyframe.step) == (state.seq, state.step),
            19,
            f"a keyframe of record {keyframe.seq}, step {keyframe.step}, comes after record "
            f"{state.seq}, step {state.step}",
        )
        ours = state.keyframe()
        require(keyframe.totals == ours.totals, 20, f"a keyframe has {keyframe.totals}, the records "
                f"lead to {ours.totals}")  # fmt: skip
        untouched = BlockRow(-1, 0, 0, -1)
        rows = {row.block: row for row in keyframe.blocks}
        for row in ours.blocks:
            theirs = rows.pop(row.block, untouched)
            require(theirs == row, 2, f"a keyframe has {theirs}, the records lead to {row}")
        require(not rows, 2, f"a keyframe has blocks that nobody touched: {list(rows)[:3]}")
        for name in ("sequences", "requests"):
            told = {row[0]: row for row in map(_values, getattr(keyframe, name))}
            for row in map(_values, getattr(ours, name)):
                other = told.pop(row[0], None)
                require(
                    other == row, 19, f"a keyframe's {name} have {other}, the records lead to {row}"
                )
            require(
                not told, 19, f"a keyframe's {name} have {list(told)[:3]}, which the records end"
            )

    def _added(self, event: RequestAdded) -> None:
        self._outputs[event.request] = 0

    def _computed(self, event: Computed) -> None:
        self._tokens += event.tokens
        self._recomputed += event.recomputed

    def _fork(self, event: Fork) -> None:
        """Past its prompt only a beam forks: its request's output is that of the best beams alone."""
        parent = self.state.sequences[event.parent]
        if parent.computed > self.state.requests[parent.request].prompt_tokens:
            self._outputs[parent.request] = None

    def _sequence_finished(self, event: SequenceFinished) -> None:
        sequence = self.state.sequences[event.sequence]
        request = self.state.requests[sequence.request]
        known = self._outputs[sequence.request]
        tokens = request.prompt_tokens + event.output_tokens
        beam = event.reason is not FinishReason.ABORT and sequence.computed == tokens
        if known is not None:
            self._outputs[sequence.request] = None if beam else known + event.output_tokens

    def _request_finished(self, event: RequestFinished) -> None:
        name = event.request
        request = self.state.requests[name]
        outputs = self._outputs.pop(name)
        require(
            outputs is None or event.reason is FinishReason.ABORT or outputs == event.output_tokens,
            20,
            f"request {name} ends with {event.output_tokens} output tokens, its sequences have "
            f"{outputs}",
        )
        require(
            event.preemptions == request.preemptions,
            20,
            f"request {name} ends with {event.preemptions} preemptions, it had "
            f"{request.preemptions}",
        )
        require(
            event.recomputed_tokens == request.recomputed_tokens,
            20,
            f"request {name} ends with {event.recomputed_tokens} recomputed tokens, it had "
            f"{request.recomputed_tokens}",
        )
        if "latencies" in self.knows:
            times = [0.0, event.queue_seconds, event.first_token_seconds, event.duration_seconds]
            reached = [seconds for seconds in times if seconds is not None]
            require(
                all(later >= sooner - ROUNDING for sooner, later in pairwise(reached)),
                20,
                f"request {name} waited {event.queue_seconds} s, had its first token after "
                f"{event.first_token_seconds} s and ended after {event.duration_seconds} s",
            )


def _values(row: object) -> tuple:
    return tuple(getattr(row, name) for name in row.__struct_fields__)
