"""Block tables: a sequence's logical blocks mapped to physical ones, on demand.

    sequence 7, 21 tokens, block_size 16             sequence 8, forked from 7
    table  [ 12 ,  3 ]                               table  [ 12 ,  3 ]     nothing allocated
              |    `- slots 0..4 filled                        |    `- ref 2: the first of the two
              `- full                                          |       that writes gets a copy
                                                               `- ref 2, full: never copied

The tables tell what they do as events, in the order in which it takes effect.
"""

from engine.core.block_pool import BlockPool
from engine.core.sequence import Sequence
from engine.events.records import (
    Allocate,
    AnyEvent,
    BlockSource,
    CopyOnWrite,
    Fork,
    Release,
    ReleaseWhy,
    Share,
    ShareWhy,
)


class BlockTables:
    """All block tables of one pool. Events are appended to `events`."""

    def __init__(self, pool: BlockPool, block_size: int, events: list[AnyEvent]) -> None:
        self.pool = pool
        self.block_size = block_size
        self.events = events

    def blocks_needed(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that must be taken before `tokens` more tokens of the sequence get KV.

        New table entries, and one for a copy where the next slot lies in a shared block.
        """
        entries = -(-(sequence.computed + tokens) // self.block_size)
        return entries - len(sequence.table) + self._writes_shared_block(sequence)

    def append(self, sequence: Sequence, tokens: int) -> tuple[int, int] | None:
        """Make room for `tokens` more tokens of the sequence.

        Returns the block copy (source, target) that must run before the step writes, if any. The
        caller has checked that `blocks_needed` blocks are available.
        """
        copy = self._copy_shared_block(sequence) if self._writes_shared_block(sequence) else None
        entries = -(-(sequence.computed + tokens) // self.block_size)
        for index in range(len(sequence.table), entries):
            block = self.pool.take()
            sequence.table.append(block)
            self.events.append(Allocate(block, sequence.sequence, index, BlockSource.FREE))
        return copy

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Give the child a table that shares every block of the parent. Allocates nothing."""
        self.events.append(Fork(parent.sequence, child.sequence))
        for index, block in enumerate(parent.table):
            self.pool.share(block)
            child.table.append(block)
            self.events.append(Share(block, child.sequence, index, ShareWhy.FORK))

    def release(self, sequence: Sequence, why: ReleaseWhy) -> None:
        """Drop the whole table, tail first, so that the head of a sequence stays free longest."""
        while sequence.table:
            block = sequence.table.pop()
            left = self.pool.drop(block)
            self.events.append(Release(block, sequence.sequence, why, left))

    def _writes_shared_block(self, sequence: Sequence) -> bool:
        """Is the next slot in a block that another table points at too?"""
        index = sequence.computed // self.block_size
        return index < len(sequence.table) and self.pool.ref_count[sequence.table[index]] > 1

    def _copy_shared_block(self, sequence: Sequence) -> tuple[int, int]:
        index = sequence.computed // self.block_size
        source = sequence.table[index]
        target = self.pool.take()
        self.pool.hold_copy_source(source)
        self.pool.drop(source)
        sequence.table[index] = target
        self.events.append(CopyOnWrite(source, target, sequence.sequence, index, BlockSource.FREE))
        return source, target
