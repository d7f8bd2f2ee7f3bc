"""What must hold of the core after every operation. The rest of the rules is in ledger.py."""

from engine.core.plan import Plan
from engine.core.scheduler import Scheduler
from engine.events.records import SequenceStatus


def check_core(scheduler: Scheduler) -> None:
    """What holds between two steps: pool, tables, index and queues agree."""
    pool, size = scheduler.pool, scheduler.config.block_size
    sequences = scheduler.running + scheduler.waiting
    references = [0] * pool.num_blocks
    for sequence in sequences:
        assert len(set(sequence.table)) == len(sequence.table), "a block twice in one table"
        assert len(sequence.table) == -(-sequence.computed // size)
        assert sequence.finish_reason is None
        for block in sequence.table:
            references[block] += 1
    assert references == pool.ref_count
    free, cached = pool.free_blocks(), pool.cached_blocks()
    assert len(free + cached) == len(set(free + cached)), "a block twice in the free queues"
    assert len(free) + len(cached) + sum(map(bool, references)) == pool.num_blocks
    assert set(free + cached) == {block for block, count in enumerate(references) if count == 0}
    assert not any(block in scheduler.index for block in free), "a free block has content"
    assert all(block in scheduler.index for block in cached), "a cached block has no content"
    available = len(free) + len(cached)
    assert pool.num_available == available, "a copy source is still held between steps"
    for sequence in scheduler.running:
        assert sequence.status is SequenceStatus.RUNNING
        # The newest sampled token has no KV yet.
        assert sequence.computed < len(sequence.tokens)
        remaining = len(sequence.tokens) - sequence.computed
        alone = sequence.request.forked and sequence.request.beams is None
        assert not sequence.decoding or (remaining == 1 and alone)
        own = sequence.table[sequence.computed // size : sequence.own_slots // size]
        assert sequence.own_slots <= len(sequence.table) * size
        assert all(pool.ref_count[block] == 1 for block in own), "a shared block counts as its own"
        for index, block in enumerate(sequence.table):
            if block in scheduler.index:
                assert sequence.computed >= (index + 1) * size, "a partial block is in the index"
    for sequence in scheduler.waiting:
        assert sequence.status is not SequenceStatus.RUNNING
        assert sequence.table == []
        assert sequence.computed == sequence.own_slots == 0
        assert not sequence.decoding
    assert len(scheduler.running) <= scheduler.config.max_num_seqs
    for request in scheduler.requests.values():
        if request.beams is not None:
            alive = [s for s in request.sequences if s.finish_reason is None]
            assert len(alive) <= request.params.n
            assert len({s.status for s in alive}) == 1, "beams run, wait and are preempted together"
            assert len({len(s.tokens) for s in alive}) == 1, "beams move on together"
    for queue in (scheduler.running, scheduler.waiting):
        order = [sequence.order for sequence in queue]
        assert order == sorted(order), "a younger sequence comes before an older one"


def check_plan(scheduler: Scheduler, plan: Plan, ref_count_before: list[int]) -> None:
    """What holds of a plan before it runs: budget, slots, copies, and who samples."""
    config, size = scheduler.config, scheduler.config.block_size
    scheduled = [row.sequence.sequence for row in plan.rows]
    assert len(scheduled) == len(set(scheduled)), "a sequence twice in one step"
    assert plan.num_tokens <= config.max_num_batched_tokens
    assert len(scheduler.running) <= config.max_num_seqs
    sources = {source for source, _ in plan.copies}
    targets = [target for _, target in plan.copies]
    assert len(targets) == len(set(targets))
    assert not sources & set(targets), "a copy reads what another writes"
    assert all(ref_count_before[source] > 1 for source in sources), "only shared blocks are copied"
    for source in sources:
        # Once for each owner but the last.
        assert sum(s == source for s, _ in plan.copies) < ref_count_before[source]
    slots = set()
    for row in plan.rows:
        limit = config.long_prefill_token_threshold
        assert 1 <= row.count <= (limit or row.count), "more than long_prefill_token_threshold"
        copied = {target for _, target in plan.copies} & set(row.sequence.table)
        assert not copied or row.start % size, "a full block was copied"
        table, end = row.sequence.table, row.start + row.count
        assert len(table) == -(-end // size)
        done = end == len(row.sequence.tokens)
        assert bool(row.samples) == done, "it samples when, and only when, all tokens are computed"
        assert done or config.enable_chunked_prefill, "a prompt was cut"
        for position in range(row.start, end):
            block = table[position // size]
            slot = (block, position % size)
            assert slot not in slots, "two tokens in one slot"
            slots.add(slot)
            assert scheduler.pool.ref_count[block] == 1, "a write into a shared block"
            assert block not in scheduler.index, "a write into a block of the prefix index"
    fresh = {row.sequence.table[i] for row in plan.rows for i in _new_entries(row, size)}
    assert not sources & fresh, "a source was handed out before its copy has run"


def _new_entries(row, size: int) -> range:
    return range(-(-row.start // size), -(-(row.start + row.count) // size))
