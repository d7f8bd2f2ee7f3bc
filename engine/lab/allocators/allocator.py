"""What the lab asks of an allocator: real places in a memory of slots 0..memory-1."""

from abc import ABC, abstractmethod
from typing import NamedTuple


class Extent(NamedTuple):
    """Slots start..end-1."""

    start: int
    end: int

    @property
    def slots(self) -> int:
        return self.end - self.start


class Allocator(ABC):
    """Places sequences, by number, in a memory of slots.

    `tokens` are those a sequence stores now, `final` those it will store in the end; only allocators
    that are said to know the future look at `final`. A call that returns False has changed nothing.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory

    @abstractmethod
    def demand(self, tokens: int, final: int) -> int:
        """Slots that `admit` takes for such a sequence."""

    @abstractmethod
    def fits_ever(self, final: int) -> bool:
        """Whether a sequence of this final length has room in the empty memory."""

    @abstractmethod
    def admit(self, sequence: int, tokens: int, final: int) -> bool:
        """Give a new sequence room for `tokens`, or all that it will get."""

    @abstractmethod
    def grow(self, sequence: int, tokens: int) -> bool:
        """Make room for `tokens` in all."""

    @abstractmethod
    def release(self, sequence: int) -> None:
        """Take back everything that the sequence has."""

    @abstractmethod
    def room(self, sequence: int) -> int:
        """Tokens that the sequence can store before it has to grow."""

    @abstractmethod
    def extents(self, sequence: int) -> list[Extent]:
        """Where its tokens lie, in the order of the tokens: at least one, all of the same size."""

    @abstractmethod
    def table_entries(self, sequence: int) -> int:
        """Entries that tell where its tokens lie."""

    @property
    @abstractmethod
    def free(self) -> int:
        """Slots that no sequence has."""

    @abstractmethod
    def holes(self) -> list[Extent]:
        """The free slots as the allocator could hand them out, in the order of addresses."""

    @abstractmethod
    def usable(self, hole: Extent, demand: int) -> bool:
        """Whether this hole helps to place a sequence that takes `demand` slots."""

    def external(self, demand: int) -> int:
        """Free slots in holes that are of no use to a sequence that takes `demand` slots."""
        return sum(hole.slots for hole in self.holes() if not self.usable(hole, demand))
