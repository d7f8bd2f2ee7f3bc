"""How many sequences a KV cache holds: from bytes to blocks, and from blocks to sequences.

    memory // (bytes per token * block_size) = blocks
    blocks // ceil(length / block_size)      = sequences of that length

A length counts the tokens that have KV: the last one that a request samples never gets any. A block
belongs to one sequence (nothing is shared here), so the last one of each is rounded up.
"""

from collections.abc import Sequence

import msgspec

from engine.core.config import ConfigError
from engine.core.memory_size import parse_bytes

__all__ = [
    "ConfigError",
    "GpuBudget",
    "LengthRow",
    "Sizing",
    "blocks_of",
    "parse_bytes",
    "parse_lengths",
]


class GpuBudget(msgspec.Struct, frozen=True):
    """What a GPU leaves for the KV cache. Bytes, but for the utilization, a share of the GPU.

    overhead: activations, CUDA graphs, the runtime, other processes: all besides weights and KV.
    """

    gpu_memory: int
    gpu_memory_utilization: float
    weights: int
    overhead: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(
                f"gpu_memory_utilization is {self.gpu_memory_utilization:g}; it lies above 0 and up "
                "to 1"
            )
        if self.kv_memory < 1:
            raise ConfigError(
                f"nothing is left for the KV cache: {self.usable:,} bytes of the GPU may be used, "
                f"weights take {self.weights:,} and overhead {self.overhead:,}; take a larger GPU or "
                "smaller weights"
            )

    @property
    def usable(self) -> int:
        """Bytes that the engine may use in all."""
        return int(self.gpu_memory * self.gpu_memory_utilization)

    @property
    def kv_memory(self) -> int:
        """Bytes for the KV cache."""
        return self.usable - self.weights - self.overhead


class LengthRow(msgspec.Struct, frozen=True):
    """How many sequences of one length fit. wasted_slots: of each one's last block."""

    length: int
    blocks: int
    wasted_slots: int
    sequences: int


class Sizing(msgspec.Struct, frozen=True):
    """A KV cache of `memory` bytes, in blocks. Raises ConfigError where not even one fits."""

    bytes_per_token: int
    block_size: int
    memory: int

    def __post_init__(self) -> None:
        for name in ("bytes_per_token", "block_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.memory < self.bytes_per_block:
            raise ConfigError(
                f"{self.memory:,} bytes hold no block: one takes {self.bytes_per_block:,}; give more "
                "memory or a smaller block_size"
            )

    @property
    def bytes_per_block(self) -> int:
        return self.bytes_per_token * self.block_size

    @property
    def num_blocks(self) -> int:
        """Whole blocks; what `num_gpu_blocks_override` would be set to."""
        return self.memory // self.bytes_per_block

    @property
    def tokens(self) -> int:
        """Tokens that can have KV at once."""
        return self.num_blocks * self.block_size

    def row(self, length: int) -> LengthRow:
        """What sequences of `length` tokens take. Raises ConfigError for a length below 1."""
        blocks = blocks_of(length, self.block_size)
        return LengthRow(
            length, blocks, blocks * self.block_size - length, self.num_blocks // blocks
        )

    def rows(self, lengths: Sequence[int]) -> list[LengthRow]:
        return [self.row(length) for length in lengths]


def blocks_of(length: int, block_size: int) -> int:
    """Blocks in the table of a sequence of so many tokens."""
    if length < 1:
        raise ConfigError(f"a length of {length} tokens has no block; it must be at least 1")
    return -(-length // block_size)


def parse_lengths(text: str) -> list[int]:
    """'512, 4096' as numbers of tokens. Raises ConfigError."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise ConfigError(f"{text!r} is no list of lengths: write it like 512,4096")
    return numbers
