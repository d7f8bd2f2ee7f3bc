"""A buddy allocator: pieces of powers of two, split in halves on the way down, joined on the way up.

16 ──────────────► 8 | 8 ──────► 8 | 4 4         a piece's buddy is the other half of its parent:
                                                 its address differs in one bit, the piece's size
"""

from engine.lab.allocators.allocator import Extent
from engine.lab.allocators.strips import StripAllocator


def power_of_two(tokens: int) -> int:
    """The smallest power of two that is no smaller."""
    return 1 << max(0, tokens - 1).bit_length()


class BuddyAllocator(StripAllocator):
    """The power of two at or above the final length, taken when the sequence starts.

    It knows the final length to a factor of two (arXiv 2309.06180, §6.1: Orca (Pow2)). A memory that
    is no power of two begins as several pieces, the largest first. Of the free pieces of a size, the
    one at the lowest address is taken.
    """

    def __init__(self, memory: int) -> None:
        super().__init__(memory)
        self._pieces: dict[int, set[int]] = {}
        start = 0
        for bit in reversed(range(memory.bit_length())):
            if memory & (1 << bit):
                self._pieces[1 << bit] = {start}
                start += 1 << bit
        self._largest = max(self._pieces, default=0)

    def demand(self, tokens: int, final: int) -> int:
        return power_of_two(final)

    def fits_ever(self, final: int) -> bool:
        return power_of_two(final) <= self._largest

    def admit(self, sequence: int, tokens: int, final: int) -> bool:
        wanted = self.demand(tokens, final)
        size = wanted
        while not self._pieces.get(size):
            size *= 2
            if size > self._largest:
                return False
        start = min(self._pieces[size])
        self._pieces[size].remove(start)
        while size > wanted:
            size //= 2
            self._pieces.setdefault(size, set()).add(start + size)
        self._strips[sequence] = Extent(start, start + wanted)
        self._free -= wanted
        return True

    def release(self, sequence: int) -> None:
        start, end = self._strips.pop(sequence)
        size = end - start
        self._free += size
        while (buddy := start ^ size) in self._pieces.get(size, ()):
            self._pieces[size].remove(buddy)
            start = min(start, buddy)
            size *= 2
        self._pieces.setdefault(size, set()).add(start)

    def holes(self) -> list[Extent]:
        return sorted(
            Extent(start, start + size) for size, starts in self._pieces.items() for start in starts
        )
