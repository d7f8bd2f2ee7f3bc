"""Block tables: a sequence's logical blocks mapped to physical ones, on demand.

    sequence 7, 21 tokens, block_size 16             sequence 8, forked from 7
    table  [ 12 ,  3 ]                               table  [ 12 ,  3 ]     nothing allocated
              |    `- slots 0..4 filled                        |    `- ref 2: the first of the two
              `- full                                          |       that writes gets a copy
                                                               `- ref 2, full: never copied

The tables tell what they do as events, in the order in which it takes effect.
"""

from engine.core.block_pool import BlockPool
from engine.core.prefix_index import Hit, PrefixIndex
from engine.core.sequence import Sequence
from engine.events.records import (
    Allocate,
    AnyEvent,
    BlockSource,
    CopyOnWrite,
    Evict,
    Fork,
    PoolReset,
    PrefixLookup,
    Release,
    ReleaseWhy,
    Share,
    ShareWhy,
)


class BlockTables:
    """All block tables of one pool, and its prefix index. Events are appended to `events`."""

    def __init__(
        self, pool: BlockPool, index: PrefixIndex, block_size: int, events: list[AnyEvent]
    ) -> None:
        self.pool = pool
        self.index = index
        self.block_size = block_size
        self.events = events

    def blocks_needed(self, rows: list[tuple[Sequence, int]]) -> int:
        """Blocks that must be taken before each of `rows` (sequence, more tokens) gets its KV.

        New table entries, and the copies that keep writes out of shared blocks: of w rows that write
        into one block with r owners all copy it, but for the last of all.
        """
        needed = 0
        writers: dict[int, int] = {}
        for sequence, tokens in rows:
            needed += self._entries(sequence.computed + tokens) - len(sequence.table)
            block = self._block_written_next(sequence)
            if block is not None and self.pool.ref_count[block] > 1:
                writers[block] = writers.get(block, 0) + 1
        return needed + sum(
            min(count, self.pool.ref_count[block] - 1) for block, count in writers.items()
        )

    def blocks_needed_to_start(self, rows: list[tuple[Sequence, Hit, int]]) -> int:
        """The same for sequences without a table that begin with a hit, up to so many tokens in all.

        A cached block that is shared leaves the queue of blocks that can be had: it is charged, once.
        """
        taken = set()
        new = 0
        for _, hit, tokens in rows:
            taken.update(block for block in hit.blocks if not self.pool.ref_count[block])
            new += self._entries(tokens) - len(hit.blocks)
        return new + len(taken)

    def start(self, sequence: Sequence, hit: Hit) -> None:
        """Begin a table with the blocks of a hit; their tokens count as computed."""
        for index, block in enumerate(hit.blocks):
            self.pool.share(block)
            sequence.table.append(block)
            self.events.append(Share(block, sequence.sequence, index, ShareWhy.PREFIX))
        sequence.computed = len(hit.blocks) * self.block_size
        self.events.append(
            PrefixLookup(
                sequence.sequence,
                len(sequence.tokens),
                sequence.computed,
                hit.why,
                resumed=sequence.started,
            )
        )

    def append(self, sequence: Sequence, tokens: int) -> tuple[int, int] | None:
        """Make room for `tokens` more tokens of the sequence.

        Returns the block copy (source, target) that must run before the step writes, if any. The
        caller has checked that `blocks_needed` blocks are available.
        """
        shared = self._block_written_next(sequence)
        copy = None
        if shared is not None and self.pool.ref_count[shared] > 1:
            copy = self._copy(sequence, shared)
        table = sequence.table
        for index in range(len(table), self._entries(sequence.computed + tokens)):
            block, source = self._take()
            table.append(block)
            self.events.append(Allocate(block, sequence.sequence, index, source))
        # Until it forks: nothing else shares a block that is not full.
        sequence.own_slots = len(table) * self.block_size
        return copy

    def publish(self, sequence: Sequence, start: int, end: int) -> None:
        """Tokens start..end were computed: the blocks that they filled enter the prefix index."""
        size = self.block_size
        for event in self.index.add(sequence, start // size, end // size):
            self.pool.keep_content(event.block)
            self.events.append(event)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Give the child a table that shares every block of the parent. Allocates nothing."""
        parent.own_slots = 0
        self.events.append(Fork(parent.sequence, child.sequence))
        for index, block in enumerate(parent.table):
            self.pool.share(block)
            child.table.append(block)
            self.events.append(Share(block, child.sequence, index, ShareWhy.FORK))

    def release(self, sequence: Sequence, why: ReleaseWhy) -> None:
        """Drop the whole table, tail first, so that the head of a sequence is evicted last."""
        table, number, drop = sequence.table, sequence.sequence, self.pool.drop
        while table:
            block = table.pop()
            self.events.append(Release(block, number, why, drop(block)))
        sequence.own_slots = 0

    def reset(self) -> None:
        """Empty the prefix index. No block may be active."""
        assert not any(self.pool.ref_count)
        self.index.clear()
        self.pool.forget_all_content()
        self.events.append(PoolReset())

    def _entries(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _block_written_next(self, sequence: Sequence) -> int | None:
        """The block of the table that has the next slot; None where that is still to be taken."""
        index = sequence.computed // self.block_size
        return sequence.table[index] if index < len(sequence.table) else None

    def _take(self) -> tuple[int, BlockSource]:
        block, evicted = self.pool.take()
        if not evicted:
            return block, BlockSource.FREE
        self.events.append(Evict(block, self.index.remove(block)))
        return block, BlockSource.EVICTED

    def _copy(self, sequence: Sequence, source: int) -> tuple[int, int]:
        index = sequence.computed // self.block_size
        target, kind = self._take()
        self.pool.hold_copy_source(source)
        self.pool.drop(source)
        sequence.table[index] = target
        self.events.append(CopyOnWrite(source, target, sequence.sequence, index, kind))
        return source, target
