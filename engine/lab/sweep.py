"""Why 16: utilisation and table entries over the block size, and the time of attention where measured."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.lab.allocators import Kind, LabSettings
from engine.lab.static import StaticUsage, static_usage

BLOCK_SIZES = (1, 8, 16, 32, 128)


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
    """Static usage of the paged allocator at each block size; `progress` is told each before it runs."""
    points = []
    for block_size in block_sizes:
        progress(block_size)
        sized = replace(settings, block_size=block_size)
        points.append(SweepPoint(block_size, *static_usage(lengths, sized, [Kind.PAGED])))
    return points
