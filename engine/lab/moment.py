"""One moment of the dynamic form: who holds which slots, and what each slot of memory is for."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.lab.allocators.allocator import Extent


class Use(StrEnum):
    """What a slot is for. Told apart afterwards, by the length that its sequence really reaches.

    stored: it has a token's KV. reserved: its sequence will write a token there later (over-reservation).
    internal: it belongs to a sequence that will never write there. external: free, in a hole that is
    of no use to the next request. usable: free, and of use to it.
    """

    STORED = "stored"
    RESERVED = "reserved"
    INTERNAL = "internal"
    EXTERNAL = "external"
    USABLE = "usable"


@dataclass(frozen=True)
class Account:
    """Slots by use; they sum to the memory. Means over time are fractional."""

    stored: float
    reserved: float
    internal: float
    external: float
    usable: float

    @property
    def memory(self) -> float:
        return self.stored + self.reserved + self.internal + self.external + self.usable

    def of(self, use: Use) -> float:
        return getattr(self, use.value)

    def share(self, use: Use) -> float:
        """Share of the memory, 0..1."""
        return self.of(use) / self.memory if self.memory else 0.0

    @property
    def utilisation(self) -> float:
        """Share of what sequences hold that stores a token, 0..1; 0 where they hold nothing."""
        held = self.stored + self.reserved + self.internal
        return self.stored / held if held else 0.0


class Holding(NamedTuple):
    """A running sequence: tokens stored now and in the end, and where they lie.

    starts: first slots of its extents in the order of tokens, each of `slots` slots. Kept as numbers:
    a run's moments have millions of extents where blocks are small.
    """

    sequence: int
    tokens: int
    final: int
    starts: array
    slots: int


class Segment(NamedTuple):
    """Slots start..end-1 of one use; sequence is None where they are free."""

    start: int
    end: int
    use: Use
    sequence: int | None


@dataclass(frozen=True)
class Moment:
    """The memory at the end of step `step`.

    holes: free extents, neighbours joined, each with whether it is of use to the next request, which
    takes `demand` slots (None where no request is to come). waiting: requests in the queue.
    """

    step: int
    account: Account
    demand: int | None
    waiting: int
    holdings: tuple[Holding, ...]
    holes: tuple[tuple[Extent, bool], ...]

    @property
    def running(self) -> int:
        return len(self.holdings)

    def address_map(self) -> list[Segment]:
        """Every slot once, in the order of addresses; neighbours of one use and sequence are joined."""
        segments = [
            Segment(hole.start, hole.end, Use.USABLE if usable else Use.EXTERNAL, None)
            for hole, usable in self.holes
        ]
        for holding in self.holdings:
            segments.extend(_segments(holding))
        segments.sort()
        joined: list[Segment] = []
        for segment in segments:
            last = joined[-1] if joined else None
            if last and last.end == segment.start and last[2:] == segment[2:]:
                joined[-1] = last._replace(end=segment.end)
            else:
                joined.append(segment)
        return joined


def joined_holes(holes: Iterable[tuple[Extent, bool]]) -> tuple[tuple[Extent, bool], ...]:
    """Holes in the order of addresses; neighbours of which both are of use, or neither, are one."""
    joined: list[tuple[Extent, bool]] = []
    for hole, usable in holes:
        if joined and joined[-1][0].end == hole.start and joined[-1][1] == usable:
            joined[-1] = (Extent(joined[-1][0].start, hole.end), usable)
        else:
            joined.append((hole, usable))
    return tuple(joined)


def _segments(holding: Holding) -> list[Segment]:
    found = []
    position = 0
    for start in holding.starts:
        at = start
        bounds = (
            (holding.tokens, Use.STORED),
            (holding.final, Use.RESERVED),
            (position + holding.slots, Use.INTERNAL),
        )
        for bound, use in bounds:
            end = start + min(holding.slots, bound - position)
            if end > at:
                found.append(Segment(at, end, use, holding.sequence))
                at = end
        position += holding.slots
    return found
