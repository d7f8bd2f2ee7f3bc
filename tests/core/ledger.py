"""An independent account of the core, kept from its plans and its records alone.

It knows what tokens each cached block holds, in which order blocks may be evicted, who runs and who
waits; an event that could not rightly follow fails at once. Where the pool's own queues and index
differ from the account at a record's end, one of the two is wrong.
"""

from engine.core.config import EngineConfig
from engine.core.plan import Plan
from engine.core.scheduler import Scheduler
from engine.core.sequence import Sequence
from engine.events.records import (
    Allocate,
    BlockSource,
    Cache,
    Computed,
    CopyOnWrite,
    Evict,
    Fork,
    LookupStop,
    PoolReset,
    Preempt,
    PrefixLookup,
    Release,
    RequestAdded,
    Sampled,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Share,
    ShareWhy,
    Step,
)

Content = tuple[str, tuple[int, ...]]
"""What the KV of a block depends on: the salt of its request, and all tokens up to its end."""


class Ledger:
    """Rules 6, 9, 10, 11, 13 and 14 of DESIGN, held while records pass by.

    `sequences` has every sequence by its number; whoever makes them puts them there.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.size = config.block_size
        self.sequences: dict[int, Sequence] = {}
        self.free = dict.fromkeys(range(config.num_blocks))
        self.cached: dict[int, None] = {}
        self.content: dict[int, Content] = {}
        self.hashes: dict[int, str] = {}
        self.filled: dict[int, Content] = {}
        self.copy_sources: set[int] = set()
        self.evicted_now: set[int] = set()
        self.running: set[int] = set()
        self.waiting: set[int] = set()
        self.streamed: dict[int, list[int]] = {}
        self.prefix_shares: dict[int, int] = {}
        self.computed: dict[int, int] = {}
        self.most_computed: dict[int, int] = {}

    def plan(self, plan: Plan) -> None:
        """Note which blocks this plan fills, and with what."""
        for row in plan.rows:
            for index in range(row.start // self.size, (row.start + row.count) // self.size):
                self.filled[row.sequence.table[index]] = self._content(row.sequence, index)

    def apply(self, record: Step) -> None:
        """Follow one record."""
        for event in record.events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)
        self._check_all_indexed()
        self.copy_sources.clear()
        self.filled.clear()

    def compare(self, scheduler: Scheduler) -> None:
        """The core, after a record, is as the records told."""
        pool, index = scheduler.pool, scheduler.index
        assert pool.cached_blocks() == list(self.cached), "not in the order of last use"
        assert set(pool.free_blocks()) == set(self.free)
        assert {block for block in range(pool.num_blocks) if block in index} == set(self.content)
        assert len(set(self.content.values())) == len(self.content), "one content in two blocks"
        assert {s.sequence for s in scheduler.running} == self.running
        assert {s.sequence for s in scheduler.waiting} == self.waiting
        for sequence in scheduler.running + scheduler.waiting:
            self._check_tokens(sequence)

    def _content(self, sequence: Sequence, index: int) -> Content:
        """What block `index` of a sequence holds once it is full."""
        salt = sequence.request.cache_salt or ""
        return salt, tuple(sequence.tokens[: (index + 1) * self.size])

    def _order(self, number: int) -> tuple[int, int, int]:
        """Who comes first: lower priority number, then the older, then the lower index."""
        sequence = self.sequences[number]
        return sequence.request.priority, sequence.request.arrival, sequence.index

    def _check_all_indexed(self) -> None:
        """What was filled can be found, unless another content has its key."""
        if self.config.enable_prefix_caching and self.config.prefix_hash_bits == 64:
            assert set(self.filled.values()) <= set(self.content.values())

    def _check_tokens(self, sequence: Sequence) -> None:
        """Rule 13: whatever happened, the tokens are the prompt and each streamed one, once."""
        assert sequence.tokens == sequence.request.prompt + self.streamed[sequence.sequence]

    # -- what each event may follow -----------------------------------------------------------

    def _added(self, event: RequestAdded) -> None:
        self.waiting.add(event.sequence)
        self.streamed[event.sequence] = []
        self.most_computed[event.sequence] = 0

    def _scheduled(self, event: SequenceScheduled) -> None:
        """Rule 14: nobody overtakes in the queue."""
        number = event.sequence
        assert number == min(self.waiting, key=self._order)
        resumed = self.sequences[number].preemptions > 0
        assert event.kind is (ScheduledKind.RESUMED if resumed else ScheduledKind.FIRST)
        self.waiting.remove(number)
        self.running.add(number)
        self.prefix_shares[number] = 0

    def _fork(self, event: Fork) -> None:
        self.running.add(event.child)
        self.streamed[event.child] = list(self.streamed[event.parent])
        self.computed[event.child] = self.computed[event.parent]
        self.most_computed[event.child] = self.most_computed[event.parent]

    def _allocate(self, event: Allocate) -> None:
        self._hand_out(event.block, event.source)

    def _cow(self, event: CopyOnWrite) -> None:
        """Rules 6 and 7: full blocks are never copied; a source stays until the copies have run."""
        assert event.source not in self.content
        self._hand_out(event.target, event.source_kind)
        self.copy_sources.add(event.source)

    def _hand_out(self, block: int, source: BlockSource) -> None:
        assert block in self.free, "neither free nor just evicted"
        assert block not in self.copy_sources, "a source is handed out before its copy has run"
        assert block not in self.content
        assert (source is BlockSource.EVICTED) == (block in self.evicted_now)
        self.evicted_now.discard(block)
        del self.free[block]

    def _share(self, event: Share) -> None:
        """Rules 9 and 10: what a hit shares is exactly the KV that the sequence needs."""
        if event.why is ShareWhy.FORK:
            return
        number = event.sequence
        assert event.index == self.prefix_shares[number], "a hit has no gaps"
        assert self.content[event.block] == self._content(self.sequences[number], event.index)
        self.prefix_shares[number] += 1
        self.cached.pop(event.block, None)

    def _release(self, event: Release) -> None:
        if event.left == 0:
            (self.cached if event.block in self.content else self.free)[event.block] = None

    def _cache(self, event: Cache) -> None:
        """Rule 9: only a block that this step filled enters the index; a hash has one block."""
        assert self.config.enable_prefix_caching
        assert event.block in self.filled, "not full, or computed before"
        assert event.block not in self.content
        assert event.hash not in self.hashes.values()
        salt, tokens = self.filled[event.block]
        self.content[event.block] = salt, tokens
        assert (event.parent is None) == (len(tokens) == self.size)
        for block, content in self.content.items():
            if content == (salt, tokens[: -self.size]):
                assert event.parent == self.hashes[block]
        self.hashes[event.block] = event.hash

    def _evict(self, event: Evict) -> None:
        """Rule 11: blocks without content first, then the one that was used longest ago."""
        assert set(self.free) <= self.copy_sources, "a free block was passed over"
        assert event.block == next(iter(self.cached)), "not the least recently used"
        assert self.hashes.pop(event.block) == event.hash
        del self.content[event.block], self.cached[event.block]
        self.free[event.block] = None
        self.evicted_now.add(event.block)

    def _preempt(self, event: Preempt) -> None:
        """Rule 14: only the last of all that run gives way, or the beams that go with it."""
        assert event.sequence == max(self.running, key=self._order)
        assert self._order(event.victim_of) <= self._order(event.sequence)
        self.running.remove(event.sequence)
        self.waiting.add(event.sequence)

    def _lookup(self, event: PrefixLookup) -> None:
        """Rule 10: whole blocks, at least one token is left, and no block that fits was missed."""
        sequence, size = self.sequences[event.sequence], self.size
        self.computed[event.sequence] = event.hit
        assert event.hit == self.prefix_shares[event.sequence] * size
        assert event.hit < event.queried
        assert event.resumed == (sequence.preemptions > 0)
        used = self.config.enable_prefix_caching and sequence.request.params.prompt_logprobs is None
        assert (event.why is LookupStop.OFF) == (not used)
        if event.why is LookupStop.MISS:
            following = self._content(sequence, event.hit // size)
            assert following not in self.content.values()
        elif used:
            assert event.queried - event.hit <= size
            kept = event.queried - event.hit == size
            assert event.why is (
                LookupStop.LAST_TOKEN_KEPT if kept else LookupStop.SHORTER_THAN_BLOCK
            )

    def _computed(self, event: Computed) -> None:
        """Recomputed are those tokens that it had got before, and lost."""
        number, start = event.sequence, self.computed[event.sequence]
        end = self.computed[number] = start + event.tokens
        assert event.recomputed == max(0, min(self.most_computed[number], end) - start)
        self.most_computed[number] = max(self.most_computed[number], end)

    def _sampled(self, event: Sampled) -> None:
        self.streamed[event.sequence].append(int(event.text))

    def _finished(self, event: SequenceFinished) -> None:
        self._check_tokens(self.sequences[event.sequence])
        self.running.discard(event.sequence)
        self.waiting.discard(event.sequence)

    def _reset(self, event: PoolReset) -> None:
        assert len(self.free) + len(self.cached) == self.config.num_blocks, "a block is active"
        self.free.update(self.cached)
        self.cached.clear()
        self.content.clear()
        self.hashes.clear()


_HANDLERS = {
    RequestAdded: Ledger._added,
    SequenceScheduled: Ledger._scheduled,
    Fork: Ledger._fork,
    Allocate: Ledger._allocate,
    CopyOnWrite: Ledger._cow,
    Share: Ledger._share,
    Release: Ledger._release,
    Cache: Ledger._cache,
    Computed: Ledger._computed,
    Evict: Ledger._evict,
    Preempt: Ledger._preempt,
    PrefixLookup: Ledger._lookup,
    Sampled: Ledger._sampled,
    SequenceFinished: Ledger._finished,
    PoolReset: Ledger._reset,
}
