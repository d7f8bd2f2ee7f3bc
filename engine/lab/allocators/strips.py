"""What all allocators have in common that give a sequence one strip of memory, whole, when it starts."""

from engine.lab.allocators.allocator import Allocator, Extent


class StripAllocator(Allocator):
    """Subclasses choose the strip. `_strips` has those that are taken, by sequence."""

    def __init__(self, memory: int) -> None:
        super().__init__(memory)
        self._strips: dict[int, Extent] = {}
        self._free = memory

    def grow(self, sequence: int, tokens: int) -> bool:
        return tokens <= self.room(sequence)

    def room(self, sequence: int) -> int:
        return self._strips[sequence].slots

    def extents(self, sequence: int) -> list[Extent]:
        return [self._strips[sequence]]

    def table_entries(self, sequence: int) -> int:
        return 1

    @property
    def free(self) -> int:
        return self._free

    def usable(self, hole: Extent, demand: int) -> bool:
        return hole.slots >= demand
