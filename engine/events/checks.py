"""Conservation checks: what must hold of a pool after every record."""

from engine.events.pool_state import PoolState
from engine.events.records import Computed, Step


def check_state(state: PoolState) -> list[str]:
    """Every broken rule of a state at a record's end, as sentences; empty when all hold.

    Free, cached and active blocks are disjoint and sum to the pool; a ref count is the number of
    table entries that point at the block; a table has exactly the blocks that its computed tokens
    need; no block holds more tokens than it has slots. A producer that knows no blocks breaks none.
    """
    faults = []
    if not state.knows_blocks:
        return faults
    references = [0] * state.num_blocks
    for sequence in state.sequences.values():
        if len(set(sequence.table)) != len(sequence.table):
            faults.append(f"sequence {sequence.sequence} has a block twice in its table")
        needed = -(-sequence.computed // state.block_size)
        if len(sequence.table) != needed:
            faults.append(
                f"sequence {sequence.sequence} has {sequence.computed} computed tokens "
                f"in {len(sequence.table)} blocks, not {needed}"
            )
        for index, block in enumerate(sequence.table):
            references[block] += 1
            if state.owners.get(block, {}).get(sequence.sequence) != index:
                faults.append(f"block {block} does not know sequence {sequence.sequence}")
    for block, count in enumerate(references):
        if state.ref_count[block] != count:
            faults.append(
                f"block {block}: ref count {state.ref_count[block]}, {count} table entries"
            )
        if not 0 <= state.filled[block] <= state.block_size:
            faults.append(
                f"block {block}: {state.filled[block]} of {state.block_size} slots filled"
            )
        if count and not state.filled[block]:
            faults.append(f"block {block} is active and empty")
        if not count and state.filled[block] and block not in state.hashes:
            faults.append(f"block {block} is free and holds {state.filled[block]} tokens")
    if sum(state.filled[block] for block in state.owners) != state.slots_filled:
        faults.append(f"the fold counts {state.slots_filled} filled slots, its blocks have others")
    counts = (state.free_blocks, state.cached_blocks, state.active_blocks)
    if min(counts) < 0 or sum(counts) != state.num_blocks:
        faults.append(f"free, cached, active = {counts} do not sum to {state.num_blocks}")
    return faults


def check_step(state: PoolState, step: Step) -> list[str]:
    """Every way in which a step record disagrees with itself or with the state after it."""
    faults = []
    computed = [event for event in step.events if isinstance(event, Computed)]
    if sum(event.tokens for event in computed) != step.tokens.total:
        faults.append(
            f"tokens by kind sum to {step.tokens.total}, computed events to another number"
        )
    if sum(event.recomputed for event in computed) != step.tokens.recompute:
        faults.append("recomputed tokens differ between the step and its computed events")
    if len({event.sequence for event in computed}) != len(computed):
        faults.append("a sequence was scheduled twice in one step")
    if state.queues != step.queues:
        faults.append(f"queues are {step.queues}, the fold has {state.queues}")
    return faults
