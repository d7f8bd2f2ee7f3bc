"""The live state as data: a keyframe copied from scheduler and pool, without a fold."""

from engine.core.scheduler import Scheduler
from engine.core.sequence import Sequence
from engine.events.records import BlockRow, Keyframe, RequestRow, SequenceRow
from engine.events.totals import Tally, copy_totals


def live_keyframe(scheduler: Scheduler, tally: Tally, seq: int, step: int, time: float) -> Keyframe:
    """The pool as it is after record `seq`, up to which `tally` has counted."""
    sequences = scheduler.running + scheduler.waiting
    pool = scheduler.pool
    filled = _filled_slots(scheduler, sequences)
    index = scheduler.index
    return Keyframe(
        seq=seq,
        step=step,
        time=time,
        blocks=[
            BlockRow(
                block,
                pool.ref_count[block],
                filled[block],
                changed,
                index.hash_of(block) if block in index else None,
            )
            for block, changed in enumerate(pool.last_change)
            if changed >= 0
        ],
        sequences=[_sequence_row(scheduler, tally, sequence) for sequence in sequences],
        requests=[
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
        ],
        totals=copy_totals(tally.totals),
    )


def _filled_slots(scheduler: Scheduler, sequences: list[Sequence]) -> list[int]:
    """Slots with KV, by block. Owners of one block differ in how far they have computed."""
    block_size = scheduler.config.block_size
    filled = [block_size * (block in scheduler.index) for block in range(scheduler.pool.num_blocks)]
    for sequence in sequences:
        for index, block in enumerate(sequence.table):
            tokens = min(block_size, sequence.computed - index * block_size)
            filled[block] = max(filled[block], tokens)
    return filled


def _sequence_row(scheduler: Scheduler, tally: Tally, sequence: Sequence) -> SequenceRow:
    text = scheduler.token_text
    return SequenceRow(
        sequence.sequence,
        sequence.request.request_id,
        sequence.status,
        sequence.computed,
        list(sequence.table),
        sequence.preemptions,
        sequence.parent,
        None if text is None else [text(token) for token in sequence.tokens],
        sequence.num_output,
        tally.sequences[sequence.sequence].last_token,
    )
