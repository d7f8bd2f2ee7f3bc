"""The second half of a step: what becomes of the tokens that were computed and drawn.

computed -> published in the prefix index -> forks -> each sequence takes its token -> some finish.
"""

import bisect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.core.beam import Beam
from engine.core.drawn import Drawn, StepOutput
from engine.core.plan import Plan, Row
from engine.core.sequence import Request, Sequence
from engine.events.records import (
    Computed,
    FinishReason,
    ReleaseWhy,
    RequestFinished,
    Sampled,
    SequenceFinished,
    SequenceStatus,
    TokenCounts,
)

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler

_RELEASE = {
    FinishReason.STOP: ReleaseWhy.FINISHED,
    FinishReason.LENGTH: ReleaseWhy.FINISHED,
    FinishReason.ABORT: ReleaseWhy.ABORTED,
    FinishReason.PRUNED: ReleaseWhy.PRUNED,
}


class Outcome:
    """Applies what a step gave to the scheduler's sequences, tables and queues."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self.scheduler = scheduler
        self.tables = scheduler.tables
        self.block_size = scheduler.config.block_size
        self.events = scheduler.events

    def commit(self, plan: Plan, output: StepOutput) -> TokenCounts:
        """`output.drawn` has one entry for each of `plan.samples`, in order."""
        self.scheduler.pool.copies_done()
        now = self.scheduler.clock()
        for request_id, told in output.prompt_tokens.items():
            self.scheduler.requests[request_id].prompt_tokens += told
        drawn = iter(output.drawn)
        searches: dict[str, list[tuple[Sequence, Drawn]]] = {}
        prefill = decode = recompute = 0
        size, tell = self.block_size, self.events.append
        for row in plan.rows:
            sequence = row.sequence
            if sequence.decoding:
                # Most rows of most steps: one new token, nothing recomputed, none to fork from it.
                decode += 1
                computed = sequence.computed = row.start + 1
                tell(sequence.one_computed)
                if not computed % size:
                    self.tables.publish(sequence, row.start, computed)
                result = next(drawn)
                token = result.token
                if (
                    sequence.is_listened_to
                    or token in sequence.request.end_tokens
                    or len(sequence.tokens) + 1 >= sequence.most_tokens
                ):
                    self._take_token(sequence, result, now)
                else:
                    sequence.tokens.append(token)
                continue
            again, prompt = self._computed(row)
            recompute += again
            prefill += prompt
            decode += row.count - again - prompt
            if sequence.request.beams is not None:
                for beam in row.samples:
                    beams = searches.setdefault(beam.request.request_id, [])
                    beams.append((beam, next(drawn)))
            elif row.samples:
                self._draw(row, drawn, now)
        for beams in searches.values():
            self._advance_beams(beams, now)
        return TokenCounts(prefill, decode, recompute)

    def abort(self, request: Request) -> None:
        """End all that is left of a request."""
        for sequence in request.sequences:
            if sequence.finish_reason is None:
                self._finish_sequence(sequence, FinishReason.ABORT)
        self._finish_request(request, FinishReason.ABORT)

    def _computed(self, row: Row) -> tuple[int, int]:
        """Move the sequence past the row; returns its recomputed and its new prompt tokens."""
        sequence = row.sequence
        end = row.start + row.count
        again = prompt = 0
        if row.start < sequence.high_water:
            again = min(sequence.high_water, end) - row.start
            sequence.request.recomputed_tokens += again
        if row.start + again < len(sequence.request.prompt):
            prompt = min(len(sequence.request.prompt), end) - row.start - again
        sequence.computed = end
        self.events.append(Computed(sequence.sequence, row.count, again))
        if end // self.block_size > row.start // self.block_size:
            self.tables.publish(sequence, row.start, end)
        return again, prompt

    def _draw(self, row: Row, drawn: Iterator[Drawn], now: float) -> None:
        for child in row.samples[1:]:
            self._fork(row.sequence, child)
        row.sequence.request.forked = True
        for sequence in row.samples:
            sequence.decoding = True
            self._take_token(sequence, next(drawn), now)

    def _fork(self, parent: Sequence, child: Sequence) -> None:
        child.status = parent.status
        child.computed = parent.computed
        child.high_water = parent.high_water
        child.digests = list(parent.digests)
        child.started = True
        self.tables.fork(parent, child)
        bisect.insort(self.scheduler.running, child, key=lambda s: s.order)

    def _take_token(self, sequence: Sequence, drawn: Drawn, now: float) -> None:
        request, token = sequence.request, drawn.token
        self._append(sequence, token, now)
        if request.params.logprobs is not None:
            sequence.drawn.append(drawn)
        stopped = sequence.detokenizer is not None and sequence.detokenizer.push(token)
        if stopped or token in request.end_tokens:
            reason = FinishReason.STOP
        elif len(sequence.tokens) >= sequence.most_tokens:
            reason = FinishReason.LENGTH
        else:
            reason = None
        if reason is not None:
            self._finish_sequence(sequence, reason)
        if request.on_token is not None:
            request.on_token(sequence)
        if reason is not None and request.sequences_ended:
            self._finish_request(request, reason)

    def _append(self, sequence: Sequence, token: int, now: float) -> None:
        sequence.tokens.append(token)
        if sequence.request.first_token is None:
            sequence.request.first_token = now
        if self.scheduler.token_text is not None:
            self.events.append(Sampled(sequence.sequence, self.scheduler.token_text(token)))

    # -- beams --------------------------------------------------------------------------------

    def _advance_beams(self, drawn: list[tuple[Sequence, Drawn]], now: float) -> None:
        """Survivors take their token, in their parent or in a fork of it; the others are dropped."""
        request = drawn[0][0].request
        search = request.beams
        beams = [
            Beam(sequence.output, search.logprobs.get(sequence.sequence, 0.0), result.top)
            for sequence, result in drawn
        ]
        survivors = search.advance(beams, request.end_tokens)
        if not survivors:
            self._finish_search(request, [sequence for sequence, _ in drawn])
            return
        heirs: dict[int, Sequence] = {}
        moved = []
        for survivor in survivors:
            parent = drawn[survivor.beam][0]
            if survivor.beam in heirs:
                child = self.scheduler.new_sequence(request, parent.tokens[: parent.computed])
                child.parent = parent.sequence
                self._fork(parent, child)
            else:
                heirs[survivor.beam] = child = parent
            moved.append((child, survivor))
        # Forks first, tokens after: a child begins as its parent was.
        for sequence, survivor in moved:
            self._append(sequence, survivor.token, now)
            search.logprobs[sequence.sequence] = survivor.logprob
        for number, (sequence, _) in enumerate(drawn):
            if number not in heirs:
                self._finish_sequence(sequence, FinishReason.PRUNED)

    def _finish_search(self, request: Request, beams: list[Sequence]) -> None:
        reason = request.beams.best[0].reason
        if request.first_token is None:
            request.first_token = self.scheduler.clock()
        for sequence in beams:
            self._finish_sequence(sequence, reason)
        self._finish_request(request, reason)

    # -- the end ------------------------------------------------------------------------------

    def _finish_sequence(self, sequence: Sequence, reason: FinishReason) -> None:
        running = sequence.status is SequenceStatus.RUNNING
        self.scheduler.num_preempted -= sequence.status is SequenceStatus.PREEMPTED
        (self.scheduler.running if running else self.scheduler.waiting).remove(sequence)
        self.tables.release(sequence, _RELEASE[reason])
        sequence.finish_reason = reason
        if sequence.detokenizer is not None:
            sequence.detokenizer.finish()
        self.events.append(SequenceFinished(sequence.sequence, reason, sequence.num_output))

    def _finish_request(self, request: Request, reason: FinishReason) -> None:
        def since_arrival(moment: float | None) -> float | None:
            return None if moment is None else moment - request.arrived

        del self.scheduler.requests[request.request_id]
        request.finish_reason = reason
        self.events.append(
            RequestFinished(
                request.request_id,
                reason,
                request.num_output,
                request.preemptions,
                request.recomputed_tokens,
                since_arrival(request.first_scheduled),
                since_arrival(request.first_token),
                self.scheduler.clock() - request.arrived,
            )
        )
        if request.on_finish is not None:
            request.on_finish(request)
