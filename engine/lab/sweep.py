"""Why 16: utilisation and table entries over the block size, and the time of attention where measured."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.lab.allocators import Kind, LabSettings
from engine.lab.static import StaticUsage, static_usage

BLOCK_SIZES = (1, 8, 16, 32, 128)


_GROUP_TOKENS = 100_000


@dataclass(frozen=True)
class SweepPoint:
    """The paged allocator's static usage at one block size."""

    block_size: int
    usage: StaticUsage


def block_size_sweep(
    lengths: Sequence[int],
    settings: LabSettings,
    block_sizes: Iterable[int] = BLOCK_SIZES,
    progress: Callable[[int], None] = lambda block_size: None,
) -> list[SweepPoint]:
    """Static usage of the paged allocator at each block size; `progress` is told each before it runs.

    The sequences are stored in groups, one group at a time: a block of one token makes a pool with as
    many blocks as there are tokens.
    """
    points = []
    for block_size in block_sizes:
        progress(block_size)
        sized = replace(settings, block_size=block_size)
        parts = [static_usage(group, sized, [Kind.PAGED])[0] for group in _groups(lengths)]
        usage = StaticUsage(
            kind=Kind.PAGED,
            sequences=sum(part.sequences for part in parts),
            stored=sum(part.stored for part in parts),
            taken=sum(part.taken for part in parts),
            table_entries=sum(part.table_entries for part in parts),
        )
        points.append(SweepPoint(block_size, usage))
    return points


def _groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    group: list[int] = []
    for tokens in lengths:
        group.append(tokens)
        if sum(group) >= _GROUP_TOKENS:
            yield group
            group = []
    if group:
        yield group
