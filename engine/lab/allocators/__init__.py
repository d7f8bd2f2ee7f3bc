"""Five ways to give sequences memory, behind one interface, and what they are configured with."""

from dataclasses import dataclass
from enum import StrEnum

from engine.core.config import ConfigError
from engine.lab.allocators.allocator import Allocator
from engine.lab.allocators.buddy import BuddyAllocator
from engine.lab.allocators.contiguous import ExactAllocator, NaiveAllocator
from engine.lab.allocators.mapped import MappedAllocator
from engine.lab.allocators.paged import PagedAllocator
from engine.lab.kv_shape import SHAPES, KvShape
from engine.workloads.request import MOST_TOKENS

__all__ = ["Allocator", "Kind", "LabSettings", "make_allocator"]


class Kind(StrEnum):
    """naive: max_model_len slots for each sequence. buddy: the next power of two of its final length.
    exact: its final length, known beforehand. mapped: 2 MiB pages behind contiguous addresses, on
    demand. paged: blocks, on demand."""

    NAIVE = "naive"
    BUDDY = "buddy"
    EXACT = "exact"
    MAPPED = "mapped"
    PAGED = "paged"


@dataclass(frozen=True)
class LabSettings:
    """max_model_len: most tokens of a sequence. block_size: slots in a block of the paged one.
    shape: the model's, from which the page of the mapped one follows."""

    max_model_len: int = 4096
    block_size: int = 16
    shape: KvShape = SHAPES["Llama-3.1-8B"]

    def __post_init__(self) -> None:
        for name in ("max_model_len", "block_size"):
            if not 1 <= getattr(self, name) <= MOST_TOKENS:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}; it must be at least 1, at most {MOST_TOKENS:,}"
                )


def make_allocator(kind: Kind, memory: int, settings: LabSettings) -> Allocator:
    """An empty allocator over `memory` slots."""
    match kind:
        case Kind.NAIVE:
            return NaiveAllocator(memory, settings.max_model_len)
        case Kind.BUDDY:
            return BuddyAllocator(memory)
        case Kind.EXACT:
            return ExactAllocator(memory)
        case Kind.MAPPED:
            return MappedAllocator(memory, settings.shape)
        case Kind.PAGED:
            return PagedAllocator(memory, settings.block_size)
