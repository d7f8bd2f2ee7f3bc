"""Contiguous virtual memory whose pages are mapped when tokens reach them (vAttention).

    addresses of a sequence   [ 0 .. 1023 | 1024 .. 2047 | 2048 ..           .. max_model_len ]
    physical pages                 page 7       page 2        nothing mapped: costs addresses only

A page belongs to K or to V of one layer, so a sequence maps 2 * layers pages at a time; here such a
group is one unit of as many slots as a page holds tokens (arXiv 2405.04437). What is left of a
page beyond whole tokens is not counted.
"""

import heapq

from engine.lab.allocators.allocator import Allocator, Extent
from engine.lab.kv_shape import KvShape


class MappedAllocator(Allocator):
    """Groups of pages on demand; any free group will do, the lowest is taken."""

    def __init__(self, memory: int, shape: KvShape) -> None:
        super().__init__(memory)
        self._shape = shape
        self._unit = shape.tokens_per_page
        self._groups = memory // self._unit
        self._unmapped = list(range(self._groups))
        self._mapped: dict[int, list[int]] = {}

    def demand(self, tokens: int, final: int) -> int:
        return -(-tokens // self._unit) * self._unit

    def fits_ever(self, final: int) -> bool:
        return -(-final // self._unit) <= self._groups

    def admit(self, sequence: int, tokens: int, final: int) -> bool:
        self._mapped[sequence] = []
        if self.grow(sequence, tokens):
            return True
        del self._mapped[sequence]
        return False

    def grow(self, sequence: int, tokens: int) -> bool:
        mapped = self._mapped[sequence]
        more = -(-tokens // self._unit) - len(mapped)
        if more > len(self._unmapped):
            return False
        mapped.extend(heapq.heappop(self._unmapped) for _ in range(more))
        return True

    def release(self, sequence: int) -> None:
        for group in self._mapped.pop(sequence):
            heapq.heappush(self._unmapped, group)

    def room(self, sequence: int) -> int:
        return len(self._mapped[sequence]) * self._unit

    def extents(self, sequence: int) -> list[Extent]:
        return [self._extent(group) for group in self._mapped[sequence]]

    def table_entries(self, sequence: int) -> int:
        """Pages mapped, of all layers: entries of the GPU's own page table."""
        return len(self._mapped[sequence]) * self._shape.pages_at_a_time

    @property
    def free(self) -> int:
        return len(self._unmapped) * self._unit + self.memory % self._unit

    def holes(self) -> list[Extent]:
        rest = Extent(self._groups * self._unit, self.memory)
        return [*map(self._extent, sorted(self._unmapped)), *([rest] if rest.slots else [])]

    def usable(self, hole: Extent, demand: int) -> bool:
        return hole.slots == self._unit

    def external(self, demand: int) -> int:
        return self.memory % self._unit

    def _extent(self, group: int) -> Extent:
        return Extent(group * self._unit, (group + 1) * self._unit)
