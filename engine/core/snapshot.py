"""The live state as data: a keyframe, without a fold.

The engine's thread only copies lists, which takes a fraction of a step; whoever asked for the keyframe
makes its rows from the copy, in a thread of its own.
"""

from collections.abc import Callable

from engine.core.scheduler import Scheduler
from engine.core.sequence import Sequence
from engine.events.records import BlockRow, Keyframe, RequestRow, SequenceRow, SequenceStatus
from engine.events.totals import Tally, copy_totals


class Snapshot:
    """The pool as it is after record `seq`, up to which `tally` has counted."""

    def __init__(
        self, scheduler: Scheduler, tally: Tally, seq: int, step: int, time: float
    ) -> None:
        self.seq = seq
        self._step = step
        self._time = time
        self._block_size = scheduler.config.block_size
        self._ref_count = scheduler.pool.ref_count.copy()
        self._last_change = scheduler.pool.last_change.copy()
        self._hashes = scheduler.index.copy_of_hashes()
        self._totals = copy_totals(tally.totals)
        self._requests = [
            RequestRow(
                request.request_id,
                len(request.prompt),
                request.params.n,
                request.params.max_tokens,
                request.arrived,
                request.preemptions,
                request.recomputed_tokens,
                tally.requests[request.request_id].first_token,
            )
            for request in scheduler.requests.values()
        ]
        self._sequences = [
            _SequenceCopy(sequence, tally, scheduler.token_text)
            for sequence in scheduler.running + scheduler.waiting
        ]

    def keyframe(self) -> Keyframe:
        """The rows. Called in any thread."""
        filled = self._filled_slots()
        last_change = self._last_change
        rows = map(
            BlockRow,
            range(len(last_change)),
            self._ref_count,
            filled,
            last_change,
            map(self._hashes.get, range(len(last_change))),
        )
        return Keyframe(
            seq=self.seq,
            step=self._step,
            time=self._time,
            blocks=[row for row in rows if row.last_change >= 0],
            sequences=[sequence.row() for sequence in self._sequences],
            requests=self._requests,
            totals=self._totals,
        )

    def _filled_slots(self) -> list[int]:
        """Slots with KV, by block. Owners of one block differ in how far they have computed."""
        size = self._block_size
        filled = [0] * len(self._ref_count)
        for block in self._hashes:
            filled[block] = size
        for sequence in self._sequences:
            full = sequence.computed // size
            for block in sequence.table[:full]:
                filled[block] = size
            for block in sequence.table[full:]:
                filled[block] = max(filled[block], sequence.computed % size)
        return filled


class _SequenceCopy:
    """What may change of a sequence, copied. Tokens only where their text is told."""

    def __init__(
        self, sequence: Sequence, tally: Tally, token_text: Callable[[int], str] | None
    ) -> None:
        self.sequence = sequence.sequence
        self.request = sequence.request.request_id
        self.status: SequenceStatus = sequence.status
        self.computed = sequence.computed
        self.table = sequence.table.copy()
        self.preemptions = sequence.preemptions
        self.parent = sequence.parent
        self.output_tokens = sequence.num_output
        self.last_token = tally.sequences[sequence.sequence].last_token
        self.tokens = None if token_text is None else sequence.tokens.copy()
        self._text = token_text

    def row(self) -> SequenceRow:
        return SequenceRow(
            self.sequence,
            self.request,
            self.status,
            self.computed,
            self.table,
            self.preemptions,
            self.parent,
            None if self.tokens is None else [self._text(token) for token in self.tokens],
            self.output_tokens,
            self.last_token,
        )
