"""One strip of memory for each sequence, taken whole when it starts: first fit, lowest address first.

    |  sequence 3  |....hole....|  sequence 7  |..hole..|  sequence 4  |

A freed strip joins the holes beside it. A sequence that is longer than each hole waits, however
much the holes have in sum.
"""

from bisect import bisect_left

from engine.lab.allocators.allocator import Extent
from engine.lab.allocators.strips import StripAllocator


class ContiguousAllocator(StripAllocator):
    """Strips whose length is known when a sequence starts: subclasses say how long."""

    def __init__(self, memory: int) -> None:
        super().__init__(memory)
        self._holes = [Extent(0, memory)] if memory else []

    def fits_ever(self, final: int) -> bool:
        return self.demand(final, final) <= self.memory

    def admit(self, sequence: int, tokens: int, final: int) -> bool:
        slots = self.demand(tokens, final)
        for number, hole in enumerate(self._holes):
            if hole.slots >= slots:
                self._strips[sequence] = Extent(hole.start, hole.start + slots)
                self._free -= slots
                rest = Extent(hole.start + slots, hole.end)
                self._holes[number : number + 1] = [rest] if rest.slots else []
                return True
        return False

    def release(self, sequence: int) -> None:
        start, end = self._strips.pop(sequence)
        self._free += end - start
        after = bisect_left(self._holes, (start, end))
        before = after
        if after < len(self._holes) and self._holes[after].start == end:
            end = self._holes[after].end
            after += 1
        if before and self._holes[before - 1].end == start:
            before -= 1
            start = self._holes[before].start
        self._holes[before:after] = [Extent(start, end)]

    def holes(self) -> list[Extent]:
        return list(self._holes)


class NaiveAllocator(ContiguousAllocator):
    """`max_model_len` slots for every sequence, as it may become that long.

    The way of engines before paging (arXiv 2309.06180, §3.1; there Orca (Max)).
    """

    def __init__(self, memory: int, max_model_len: int) -> None:
        super().__init__(memory)
        self._max_model_len = max_model_len

    def demand(self, tokens: int, final: int) -> int:
        return self._max_model_len


class ExactAllocator(ContiguousAllocator):
    """Exactly the final length, which nobody can know beforehand: an oracle.

    The best that contiguous memory could do (arXiv 2309.06180, §6.1: Orca (Oracle)).
    """

    def demand(self, tokens: int, final: int) -> int:
        return final
