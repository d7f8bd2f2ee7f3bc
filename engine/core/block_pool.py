"""The block pool: which physical block is free, and how many tables point at each of the others.

    free queue   12 <- 4 <- 9 <- ...          handed out from the left, returned at the right
    ref count    block 0: 2   block 1: 1   block 2: 1   block 4: 0   ...

A block is in the free queue if and only if its ref count is 0. Every operation is O(1).
"""

from collections import OrderedDict


class BlockPool:
    """Ref counts and the free queue of `num_blocks` blocks.

    `last_change[block]` is the number of the step record in which the block last changed hands;
    whoever builds records keeps `seq` at the number of the record being built.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_count = [0] * num_blocks
        self.last_change = [-1] * num_blocks
        self.seq = 0
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._copy_sources: set[int] = set()
        self._held = 0

    @property
    def num_free(self) -> int:
        """Blocks with ref count 0."""
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Blocks that `take` can hand out now: free, and no source of a copy still to run."""
        return len(self._free) - self._held

    def free_blocks(self) -> list[int]:
        """The free queue, next block first."""
        return list(self._free)

    def take(self) -> int:
        """Hand out the block that has been free longest; its ref count becomes 1.

        The caller has checked `num_available`.
        """
        assert self.num_available > 0
        block, _ = self._free.popitem(last=False)
        while block in self._copy_sources:
            self._free[block] = None
            block, _ = self._free.popitem(last=False)
        self.ref_count[block] = 1
        self.last_change[block] = self.seq
        return block

    def share(self, block: int) -> None:
        """One more table points at an active block."""
        assert self.ref_count[block] > 0
        self.ref_count[block] += 1
        self.last_change[block] = self.seq

    def drop(self, block: int) -> int:
        """One table less points at `block`; returns how many remain. At 0 the block is free."""
        left = self.ref_count[block] - 1
        assert left >= 0
        self.ref_count[block] = left
        self.last_change[block] = self.seq
        if left == 0:
            self._free[block] = None
            if block in self._copy_sources:
                self._held += 1
        return left

    def hold_copy_source(self, block: int) -> None:
        """Don't hand out an active block, should it become free, until this step's copies have run."""
        assert self.ref_count[block] > 0
        self._copy_sources.add(block)

    def copies_done(self) -> None:
        self._copy_sources.clear()
        self._held = 0
