"""Rules about blocks: taking, sharing, writing, copying, caching, evicting (5 to 11)."""

from engine.events.pool_state import PoolState
from engine.events.records import (
    Allocate,
    AllocationFailed,
    AnyEvent,
    BlockSource,
    Cache,
    Computed,
    CopyOnWrite,
    Evict,
    Fork,
    PoolReset,
    Release,
    SequenceStatus,
    Share,
    ShareWhy,
    Step,
)
from engine.events.rules.broken import BrokenRule, require
from engine.events.rules.lru import CachedOrder


class BlockRules:
    """Watches the blocks of one pool. Memory is bounded by the pool."""

    def __init__(self, state: PoolState) -> None:
        self.state = state
        self.size = state.block_size
        self.caching = state.header.config.get("enable_prefix_caching")
        self.handlers = {
            Fork: self._fork,
            Allocate: self._allocate,
            Share: self._share,
            Release: self._release,
            CopyOnWrite: self._cow,
            Cache: self._cache,
            Evict: self._evict,
            AllocationFailed: self._failed,
            Computed: self._computed,
            PoolReset: self._reset,
        }
        self.knows_hashes = "block_hashes" in state.header.knows
        if not self.knows_hashes:
            for kind in (Share, Release, Cache, Evict, PoolReset):
                del self.handlers[kind]
        if not state.knows_blocks:
            self.handlers.clear()
        self.evicted: int | None = None
        self._order = CachedOrder()
        self._by_hash: dict[str, int] = {}
        self._parents: dict[int, str | None] = {}
        self._sources: set[int] = set()
        self._failed_to_start: set[int] = set()
        self._computed_now: tuple[int, int, int] | None = None

    def load(self) -> None:
        """The state came from a keyframe, not from the records before it."""
        state = self.state
        cached = [block for block in state.hashes if block not in state.owners]
        self._order.load((state.last_change[block], block) for block in cached)
        self._by_hash = {}
        for block, digest in state.hashes.items():
            other = self._by_hash.setdefault(digest, block)
            require(other == block, 9, f"blocks {other} and {block} are cached under one hash")
        self._parents = {}

    def meet(self, event: AnyEvent) -> None:
        """The event after an eviction hands out the block."""
        if not isinstance(event, Allocate | CopyOnWrite):
            raise BrokenRule(11, f"block {self.evicted} is evicted and not handed out")

    def end(self, step: Step) -> None:
        """The step's last event has taken effect."""
        require(self.evicted is None, 11, f"block {self.evicted} is evicted and not handed out")
        self._sources.clear()
        self._failed_to_start.clear()
        self._computed_now = None

    def _held_sources(self) -> int:
        """Sources of this step's copies that are free already: they can't be had yet."""
        state = self.state
        return sum(b not in state.owners and b not in state.hashes for b in self._sources)

    def _fork(self, event: Fork) -> None:
        self._computed_now = None

    def _allocate(self, event: Allocate) -> None:
        self._hand_out(event.block, event.sequence, event.source)

    def _hand_out(self, block: int, sequence: int, source: BlockSource) -> None:
        if self.evicted is not None and block != self.evicted:
            raise BrokenRule(
                11, f"block {self.evicted} is evicted, but block {block} is handed out"
            )
        if self.knows_hashes and (source is BlockSource.EVICTED) != (self.evicted is not None):
            was = "not " if self.evicted is None else ""
            raise BrokenRule(
                11, f"block {block} is handed out as {source}, but was {was}evicted just before"
            )
        self.evicted = None
        if block in self._sources:
            raise BrokenRule(7, f"block {block} is handed out, and a copy of it has yet to run")
        if sequence in self._failed_to_start:
            raise BrokenRule(
                8, f"sequence {sequence} gets block {block} after its allocation failed"
            )

    def _share(self, event: Share) -> None:
        block = event.block
        if event.why is ShareWhy.FORK:
            return
        table = self.state.sequences[event.sequence].table
        if block not in self.state.hashes:
            raise BrokenRule(10, f"block {block} is shared as a prefix and is not in the index")
        if block in self._parents:
            before = self.state.hashes.get(table[-1]) if table else None
            if self._parents[block] != before and (not table or before is not None):
                raise BrokenRule(
                    10,
                    f"block {block} holds what follows another prefix than that of sequence "
                    f"{event.sequence}",
                )
        self._order.take(block)

    def _release(self, event: Release) -> None:
        if event.left == 0 and event.block in self.state.hashes:
            self._order.add(event.block)

    def _cow(self, event: CopyOnWrite) -> None:
        state, source = self.state, event.source
        computed = state.sequences[event.sequence].computed
        if source in state.hashes or state.filled[source] >= self.size:
            raise BrokenRule(6, f"block {source} is full, and is copied for {event.sequence}")
        if event.index != computed // self.size or not computed % self.size:
            raise BrokenRule(
                6,
                f"sequence {event.sequence} copies entry {event.index} of its table, but writes "
                f"at token {computed}",
            )
        self._hand_out(event.target, event.sequence, event.source_kind)
        self._sources.add(source)

    def _cache(self, event: Cache) -> None:
        block, digest = event.block, event.hash
        require(self.caching is not False, 9, f"block {block} is cached, and caching is off")
        require(block not in self.state.hashes, 9, f"block {block} is cached already")
        require(
            digest not in self._by_hash,
            9,
            f"block {block} is cached under the hash of block {self._by_hash.get(digest)}",
        )
        table, index = self._just_filled(block)
        before = self.state.hashes.get(table[index - 1]) if index else None
        require(
            (event.parent is None) == (index == 0) and (before is None or event.parent == before),
            9,
            f"block {block} is cached as following another block than the one before it",
        )
        self._by_hash[digest] = block
        self._parents[block] = event.parent

    def _just_filled(self, block: int) -> tuple[list[int], int]:
        """Table and index of a block that the last computed event filled."""
        if self._computed_now is not None:
            sequence, first, end = self._computed_now
            table = self.state.sequences[sequence].table
            if block in table[first:end]:
                return table, table.index(block, first)
        raise BrokenRule(9, f"block {block} is cached, and was not filled just now")

    def _evict(self, event: Evict) -> None:
        block = event.block
        left = self.state.free_blocks - self._held_sources()
        if left > 0:
            raise BrokenRule(
                11, f"block {block} is evicted while {left} blocks without content are free"
            )
        oldest = self._order.evict(block)
        if oldest is not None:
            raise BrokenRule(
                11, f"block {block} is evicted, but block {oldest} was not used for longer"
            )
        self._by_hash.pop(event.hash, None)
        self._parents.pop(block, None)
        self.evicted = block

    def _failed(self, event: AllocationFailed) -> None:
        state = self.state
        available = state.free_blocks + state.cached_blocks - self._held_sources()
        require(
            event.available == available,
            8,
            f"{event.available} blocks are said to be available, {available} are",
        )
        require(
            event.needed > event.available,
            8,
            f"an allocation of {event.needed} blocks fails with {event.available} available",
        )
        if state.sequences[event.sequence].status is not SequenceStatus.RUNNING:
            self._failed_to_start.add(event.sequence)

    def _computed(self, event: Computed) -> None:
        state, size = self.state, self.size
        sequence = state.sequences[event.sequence]
        table, start = sequence.table, sequence.computed
        end = start + event.tokens
        first = start // size
        for block in table[first : (end + size - 1) // size]:
            if state.ref_count[block] != 1:
                raise BrokenRule(
                    5,
                    f"sequence {event.sequence} writes into block {block}, which has ref count "
                    f"{state.ref_count[block]}",
                )
            if block in state.hashes:
                raise BrokenRule(
                    5,
                    f"sequence {event.sequence} writes into block {block}, which is in the "
                    "prefix index",
                )
        self._computed_now = (event.sequence, first, end // size)

    def _reset(self, event: PoolReset) -> None:
        self._order.load(())
        self._by_hash.clear()
        self._parents.clear()
