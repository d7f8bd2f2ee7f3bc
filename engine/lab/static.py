"""The static form: all sequences stored at once at their final length, in as much memory as it takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.lab.allocators import Kind, LabSettings, make_allocator
from engine.lab.allocators.buddy import power_of_two


@dataclass(frozen=True)
class StaticUsage:
    """What one allocator takes to store `stored` tokens of `sequences` sequences.

    stored, taken: slots with a token, and slots that no other sequence can have. table_entries: what
    tells where the tokens lie: table entries (paged), mapped 2 MiB pages of all layers (mapped), one
    address a sequence (the others).
    """

    kind: Kind
    sequences: int
    stored: int
    taken: int
    table_entries: int

    @property
    def utilisation(self) -> float:
        """Share of the taken slots that store a token, 0..1."""
        return self.stored / self.taken if self.taken else 0.0

    @property
    def wasted(self) -> int:
        """Slots that are taken and store nothing."""
        return self.taken - self.stored

    @property
    def wasted_per_sequence(self) -> float:
        return self.wasted / self.sequences if self.sequences else 0.0


def static_usage(
    lengths: Sequence[int], settings: LabSettings, kinds: Iterable[Kind] = tuple(Kind)
) -> list[StaticUsage]:
    """Store sequences of these lengths (tokens, at most max_model_len each) with each allocator.

    The slots are really taken, by the paged one from a block pool of the engine that is just large
    enough. One row a kind, in the order of `kinds`.
    """
    longest = max(lengths, default=0)
    assert longest <= settings.max_model_len, f"{longest} tokens: keep a Sample.up_to max_model_len"
    return [_stored(kind, lengths, settings) for kind in kinds]


def _stored(kind: Kind, lengths: Sequence[int], settings: LabSettings) -> StaticUsage:
    empty = make_allocator(kind, 0, settings)
    memory = sum(empty.demand(tokens, tokens) for tokens in lengths)
    if kind is Kind.BUDDY:
        # One piece that holds all: without releases, its free pieces always differ in size, so that
        # what is left over is less than any piece that does not fit.
        memory = power_of_two(memory)
    allocator = make_allocator(kind, memory, settings)
    for number, tokens in enumerate(lengths):
        placed = allocator.admit(number, tokens, tokens)
        assert placed
    return StaticUsage(
        kind=kind,
        sequences=len(lengths),
        stored=sum(lengths),
        taken=memory - allocator.free,
        table_entries=sum(allocator.table_entries(number) for number in range(len(lengths))),
    )
