"""Paging: the engine's own block pool and block tables, with no model behind them."""

from engine.core.block_pool import BlockPool
from engine.core.block_table import BlockTables
from engine.core.config import SamplingParams
from engine.core.prefix_index import PrefixIndex
from engine.core.sequence import Request, Sequence
from engine.events.records import AnyEvent, ReleaseWhy
from engine.lab.allocators.allocator import Allocator, Extent


class PagedAllocator(Allocator):
    """Blocks of `block_size` slots on demand, from `pool`, through `tables`.

    Nothing is shared between sequences: the prefix index is off.
    """

    def __init__(self, memory: int, block_size: int) -> None:
        super().__init__(memory)
        self.block_size = block_size
        self.pool = BlockPool(memory // block_size)
        self._events: list[AnyEvent] = []
        index = PrefixIndex(block_size, hash_bits=64, enabled=False)
        self.tables = BlockTables(self.pool, index, block_size, self._events)
        self._request = Request("lab", [], SamplingParams(seed=0), arrived=0.0)
        self._sequences: dict[int, Sequence] = {}

    def demand(self, tokens: int, final: int) -> int:
        newcomer = Sequence(-1, self._request, 0, [])
        return self.tables.blocks_needed([(newcomer, tokens)]) * self.block_size

    def fits_ever(self, final: int) -> bool:
        return self.demand(final, final) <= self.pool.num_blocks * self.block_size

    def admit(self, sequence: int, tokens: int, final: int) -> bool:
        newcomer = Sequence(sequence, self._request, 0, [])
        if not self._append(newcomer, tokens):
            return False
        self._sequences[sequence] = newcomer
        return True

    def grow(self, sequence: int, tokens: int) -> bool:
        return self._append(self._sequences[sequence], tokens)

    def release(self, sequence: int) -> None:
        self.tables.release(self._sequences.pop(sequence), ReleaseWhy.FINISHED)
        self._events.clear()

    def room(self, sequence: int) -> int:
        return len(self._sequences[sequence].table) * self.block_size

    def extents(self, sequence: int) -> list[Extent]:
        return [self._extent(block) for block in self._sequences[sequence].table]

    def table_entries(self, sequence: int) -> int:
        return len(self._sequences[sequence].table)

    @property
    def free(self) -> int:
        return self.pool.num_available * self.block_size + self.memory % self.block_size

    def holes(self) -> list[Extent]:
        rest = Extent(self.pool.num_blocks * self.block_size, self.memory)
        free = map(self._extent, sorted(self.pool.free_blocks()))
        return [*free, *([rest] if rest.slots else [])]

    def usable(self, hole: Extent, demand: int) -> bool:
        return hole.slots == self.block_size

    def external(self, demand: int) -> int:
        return self.memory % self.block_size

    def _append(self, sequence: Sequence, tokens: int) -> bool:
        more = tokens - sequence.computed
        if self.tables.blocks_needed([(sequence, more)]) > self.pool.num_available:
            return False
        self.tables.append(sequence, more)
        sequence.computed = tokens
        # The lab reads pool and tables; a run of a million blocks would pile up a million events.
        self._events.clear()
        return True

    def _extent(self, block: int) -> Extent:
        return Extent(block * self.block_size, (block + 1) * self.block_size)
