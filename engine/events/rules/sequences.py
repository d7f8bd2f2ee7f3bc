"""Rules about sequences: who runs, waits, is preempted, in which order, how much (3, 4, 10, 12 to 14)."""

from bisect import bisect_left, insort

from engine.events.pool_contents import SequenceState
from engine.events.pool_state import PoolState
from engine.events.records import (
    Allocate,
    AnyEvent,
    Computed,
    FinishReason,
    Fork,
    LookupStop,
    Preempt,
    PrefixLookup,
    Release,
    ReleaseWhy,
    RequestAdded,
    Sampled,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    SequenceStatus,
    Share,
    ShareWhy,
    Step,
)
from engine.events.rules.broken import BrokenRule, require

Place = tuple[int, int]
"""Who comes first: the request's rank by arrival, then the sequence's number."""
RUNNING = SequenceStatus.RUNNING


class SequenceRules:
    """Watches the sequences of one engine. Memory is bounded by the unfinished ones."""

    def __init__(self, state: PoolState) -> None:
        config = state.header.config
        self.state = state
        self.size = state.block_size
        self.budget = config.get("max_num_batched_tokens")
        self.most_running = config.get("max_num_seqs")
        self.most_of_one = config.get("long_prefill_token_threshold")
        self.in_order = config.get("policy") == "fcfs"
        self.knows_recompute = "recompute" in state.header.knows
        self.handlers = {
            RequestAdded: self._added,
            Allocate: self._allocate,
            SequenceScheduled: self._scheduled,
            Fork: self._fork,
            Preempt: self._preempt,
            PrefixLookup: self._lookup,
            Computed: self._computed,
            Sampled: self._sampled,
            SequenceFinished: self._finished,
        }
        self.expected: list[AnyEvent] = []
        self._expected_by = (0, "")
        self._places: dict[int, Place] = {}
        self._next_rank = 0
        self._queues: dict[bool, list[Place]] = {True: [], False: []}
        self._most_computed: dict[int, int] = {}
        self._ran: set[int] = set()
        self._moved: set[int] = set()
        self._prefill = 0

    def load(self) -> None:
        """The state came from a keyframe: requests stand there in order of arrival."""
        state = self.state
        ranks = {request: rank for rank, request in enumerate(state.requests)}
        self._next_rank = len(ranks)
        self._places = {
            s.sequence: (ranks[s.request], s.sequence) for s in state.sequences.values()
        }
        self._queues = {True: [], False: []}
        for sequence in state.sequences.values():
            insort(self._queue(sequence), self._places[sequence.sequence])
        # How far one had come before a preemption, a keyframe does not tell.
        self._most_computed = {
            s.sequence: s.computed for s in state.sequences.values() if not s.preemptions
        }

    def meet(self, event: AnyEvent) -> None:
        """The next of the events that must follow a fork or a preemption at once."""
        expected = self.expected.pop()
        if event != expected:
            rule, text = self._expected_by
            raise BrokenRule(rule, f"{text}, and {_name(event)} comes instead of {_name(expected)}")

    def end(self, step: Step) -> None:
        """The step's last event has taken effect."""
        if self.expected:
            rule, text = self._expected_by
            raise BrokenRule(rule, f"{text}, and {_name(self.expected[-1])} is missing")
        sequences, size = self.state.sequences, self.size
        for number in self._ran | self._moved:
            sequence = sequences.get(number)
            if (
                sequence is not None
                and self.state.knows_blocks
                and len(sequence.table) != -(-sequence.computed // size)
            ):
                raise BrokenRule(
                    3,
                    f"sequence {number} has {sequence.computed} computed tokens in "
                    f"{len(sequence.table)} blocks",
                )
        total = step.tokens.total
        if self.budget is not None and total > self.budget:
            raise BrokenRule(12, f"{total} tokens run, max_num_batched_tokens is {self.budget}")
        if self.most_running is not None and step.queues.running > self.most_running:
            raise BrokenRule(
                12, f"{step.queues.running} sequences run, max_num_seqs is {self.most_running}"
            )
        if self.knows_recompute and step.tokens.prefill != self._prefill:
            raise BrokenRule(
                20,
                f"the step counts {step.tokens.prefill} prefill tokens, its events {self._prefill}",
            )
        self._ran.clear()
        self._moved.clear()
        self._prefill = 0

    def _queue(self, sequence: SequenceState) -> list[Place]:
        return self._queues[sequence.status is RUNNING]

    def _remove(self, sequence: SequenceState) -> None:
        queue, place = self._queue(sequence), self._places[sequence.sequence]
        del queue[bisect_left(queue, place)]

    # -- the queue ----------------------------------------------------------------------------

    def _added(self, event: RequestAdded) -> None:
        place = self._places[event.sequence] = (self._next_rank, event.sequence)
        self._next_rank += 1
        self._most_computed[event.sequence] = 0
        insort(self._queues[False], place)

    def _scheduled(self, event: SequenceScheduled) -> None:
        number = event.sequence
        sequence = self.state.sequences[number]
        require(sequence.status is not RUNNING, 12, f"sequence {number} runs already")
        resumed = sequence.preemptions > 0
        require(
            (event.kind is ScheduledKind.RESUMED) == resumed,
            13,
            f"sequence {number} is scheduled as {event.kind} after {sequence.preemptions} "
            "preemptions",
        )
        first = self._queues[False][0]
        if self.in_order and first != self._places[number]:
            raise BrokenRule(14, f"sequence {number} starts while {first[1]} waits before it")
        self._remove(sequence)
        insort(self._queues[True], self._places[number])
        self._moved.add(number)

    def _fork(self, event: Fork) -> None:
        parent, child = self.state.sequences[event.parent], event.child
        require(parent.status is RUNNING, 6, f"sequence {event.parent} forks and does not run")
        self._places[child] = (self._places[event.parent][0], child)
        insort(self._queues[True], self._places[child])
        if event.parent in self._most_computed:
            self._most_computed[child] = self._most_computed[event.parent]
        self._moved.add(child)
        shares = [
            Share(block, child, index, ShareWhy.FORK) for index, block in enumerate(parent.table)
        ]
        self._expect(shares, 6, f"sequence {child} forks from {event.parent}")

    def _preempt(self, event: Preempt) -> None:
        number = event.sequence
        sequence, ref_count = self.state.sequences[number], self.state.ref_count
        require(sequence.status is RUNNING, 13, f"sequence {number} is preempted and does not run")
        if self.in_order:
            last, needed_by = self._queues[True][-1], self._places[event.victim_of]
            require(
                last == self._places[number],
                14,
                f"sequence {number} is preempted, and the younger {last[1]} runs on",
            )
            require(
                needed_by <= last,
                14,
                f"sequence {number} is preempted for the younger {event.victim_of}",
            )
        self._remove(sequence)
        insort(self._queues[False], self._places[number])
        released = [
            Release(block, number, ReleaseWhy.PREEMPTED, ref_count[block] - 1)
            for block in reversed(sequence.table)
        ]
        self._expect(released, 13, f"sequence {number} is preempted")

    def _expect(self, events: list[AnyEvent], rule: int, text: str) -> None:
        self.expected = events[::-1]
        self._expected_by = (rule, text)

    def _finished(self, event: SequenceFinished) -> None:
        number, reason = event.sequence, event.reason
        sequence = self.state.sequences[number]
        request = self.state.requests[sequence.request]
        tokens = request.prompt_tokens + event.output_tokens
        if reason is not FinishReason.ABORT:
            require(sequence.status is RUNNING, 13, f"sequence {number} ends and does not run")
            require(
                event.output_tokens <= request.max_tokens,
                12,
                f"sequence {number} has {event.output_tokens} output tokens, max_tokens is "
                f"{request.max_tokens}",
            )
            # The newest token has no KV; beams end before they take one.
            require(
                sequence.computed in (tokens - 1, tokens),
                4,
                f"sequence {number} ends with {tokens} tokens, {sequence.computed} of them "
                "computed",
            )
        self._remove(sequence)
        del self._places[number]
        self._most_computed.pop(number, None)

    def _allocate(self, event: Allocate) -> None:
        self._moved.add(event.sequence)

    # -- a step's work ------------------------------------------------------------------------

    def _lookup(self, event: PrefixLookup) -> None:
        number, size = event.sequence, self.size
        sequence = self.state.sequences[number]
        left = event.queried - event.hit
        require(
            event.hit == len(sequence.table) * size,
            10,
            f"sequence {number} has a hit of {event.hit} tokens in {len(sequence.table)} blocks",
        )
        require(left > 0, 10, f"sequence {number} has a hit that leaves it no token to compute")
        require(
            event.resumed == (sequence.preemptions > 0),
            13,
            f"sequence {number} was preempted {sequence.preemptions} times, its lookup says else",
        )
        if not event.resumed:
            prompt = self.state.requests[sequence.request].prompt_tokens
            require(
                event.queried == prompt,
                10,
                f"sequence {number} is looked up with {event.queried} tokens, its prompt has {prompt}",
            )
        if event.why is LookupStop.LAST_TOKEN_KEPT:
            require(left == size, 10, f"the lookup of sequence {number} kept {left} tokens")
        elif event.why is LookupStop.SHORTER_THAN_BLOCK:
            require(left < size, 10, f"sequence {number} left {left} tokens, a whole block")

    def _computed(self, event: Computed) -> None:
        number, tokens = event.sequence, event.tokens
        sequence = self.state.sequences[number]
        if number in self._ran:
            raise BrokenRule(12, f"sequence {number} runs twice in one step")
        if sequence.status is not RUNNING:
            raise BrokenRule(12, f"sequence {number} is {sequence.status}, and is computed")
        if self.most_of_one and tokens > self.most_of_one:
            raise BrokenRule(
                12,
                f"sequence {number} computes {tokens} tokens, long_prefill_token_threshold is "
                f"{self.most_of_one}",
            )
        start = sequence.computed
        end = start + tokens
        most = self._most_computed.get(number)
        if most is None:
            # Past what was lost, it is known again how far the sequence has come.
            if event.recomputed < tokens:
                self._most_computed[number] = end
        else:
            again = min(most, end) - start if most > start else 0
            if event.recomputed != again and self.knows_recompute:
                raise BrokenRule(
                    13,
                    f"sequence {number} computes {again} of {tokens} tokens again, the record says "
                    f"{event.recomputed}",
                )
            if end > most:
                self._most_computed[number] = end
        prompt = self.state.requests[sequence.request].prompt_tokens
        if start < prompt:
            self._prefill += max(0, min(prompt, end) - start - event.recomputed)
        self._ran.add(number)

    def _sampled(self, event: Sampled) -> None:
        sequence = self.state.sequences[event.sequence]
        if sequence.text is not None and sequence.computed != len(sequence.text):
            raise BrokenRule(
                4,
                f"sequence {event.sequence} samples with {sequence.computed} of "
                f"{len(sequence.text)} tokens computed",
            )


def _name(event: AnyEvent) -> str:
    """An event's type and numbers, for a sentence."""
    name = type(event).__struct_config__.tag
    block = getattr(event, "block", None)
    return f"a {name}" if block is None else f"a {name} of block {block}"
