"""The block pool: who may have which block next, and how many tables point at each of the others.

    free      12 <- 4 <- 9 <- ...      ref count 0, no content: handed out first, longest free first
    cached    30 <- 7 <- ...           ref count 0, but in the prefix index: then the least recently used
    active    block 0: ref 2, block 1: ref 1, ...

A block is in one of the two queues if and only if its ref count is 0. Every operation is O(1).
"""

from collections import OrderedDict, deque


class BlockPool:
    """Ref counts and queues of `num_blocks` blocks.

    `last_change[block]` is the number of the step record in which the block last changed hands;
    whoever builds records keeps `seq` at the number of the record being built.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_count = [0] * num_blocks
        self.last_change = [-1] * num_blocks
        self.seq = 0
        self._free: deque[int] = deque(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._has_content = bytearray(num_blocks)
        self._copy_sources: set[int] = set()
        self._held = 0

    @property
    def num_free(self) -> int:
        """Blocks with ref count 0 and no content."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks with ref count 0 whose content can still be shared."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `take` can hand out now: all with ref count 0, but sources of copies to run."""
        return len(self._free) + len(self._cached) - self._held

    def free_blocks(self) -> list[int]:
        """The free queue, next block first."""
        return list(self._free)

    def cached_blocks(self) -> list[int]:
        """The cached queue, next block to be evicted first."""
        return list(self._cached)

    def take(self) -> tuple[int, bool]:
        """Hand out a block, and whether its content must be forgotten; its ref count becomes 1.

        The caller has checked `num_available`.
        """
        free = self._free
        evicted = len(free) == self._held
        if evicted:
            assert self._cached
            block, _ = self._cached.popitem(last=False)
            self._has_content[block] = False
        else:
            block = free.popleft()
            while block in self._copy_sources:
                free.append(block)
                block = free.popleft()
        self.ref_count[block] = 1
        self.last_change[block] = self.seq
        return block, evicted

    def share(self, block: int) -> None:
        """One more table points at a block with content: an active one, or a cached one."""
        if self.ref_count[block] == 0:
            del self._cached[block]
        self.ref_count[block] += 1
        self.last_change[block] = self.seq

    def drop(self, block: int) -> int:
        """One table less points at `block`; returns how many remain. At 0 it is free, or cached."""
        left = self.ref_count[block] - 1
        assert left >= 0
        self.ref_count[block] = left
        self.last_change[block] = self.seq
        if left == 0:
            if self._has_content[block]:
                self._cached[block] = None
            else:
                self._free.append(block)
                self._held += block in self._copy_sources
        return left

    def keep_content(self, block: int) -> None:
        """An active block entered the prefix index: it is cached, not free, when it is dropped."""
        assert self.ref_count[block] > 0
        self._has_content[block] = True
        self.last_change[block] = self.seq

    def forget_all_content(self) -> None:
        """Cached blocks become free, the next to be evicted first."""
        self._free.extend(self._cached)
        for block in self._cached:
            self.last_change[block] = self.seq
        self._cached.clear()
        self._has_content = bytearray(self.num_blocks)

    def hold_copy_source(self, block: int) -> None:
        """Don't hand out an active block, should it become free, until this step's copies have run.

        A source is a partial block, so it is in no prefix index.
        """
        assert self.ref_count[block] > 0
        assert not self._has_content[block]
        self._copy_sources.add(block)

    def copies_done(self) -> None:
        self._copy_sources.clear()
        self._held = 0
