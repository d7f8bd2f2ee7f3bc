"""Tile sizes of the attention kernel: a small table, so that no request waits for a tuning run.

    few  = a tile of 16 rows: decode, or so few queries that one tile holds a row's. Bound by memory:
           narrow in queries, with several tiles of keys in flight.
    many = a wide tile: prefill. Bound by arithmetic: wide in queries, so that keys are read seldom.

Chosen so that no variant spills registers on sm_80 and sm_90 and that its shared memory fits, which
the tests hold by compiling them; not tuned on a GPU.
"""

from dataclasses import dataclass
from enum import StrEnum

import torch

LARGEST_HEAD_DIM = 256
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Width(StrEnum):
    FEW = "few"
    MANY = "many"


@dataclass(frozen=True)
class Config:
    """BLOCK_M rows (queries x group heads) by BLOCK_N keys a step; warps and pipeline stages."""

    block_m: int
    block_n: int
    warps: int
    stages: int


FEW_ROWS = 16

# (width, itemsize) -> {padded head_dim: config}; float32 products have no tensor core at full
# precision, so their tiles live in registers and are small.
_TABLE: dict[tuple[Width, int], dict[int, Config]] = {
    (Width.FEW, 2): {
        64: Config(FEW_ROWS, 64, 4, 3),
        128: Config(FEW_ROWS, 64, 4, 3),
        256: Config(FEW_ROWS, 32, 4, 3),
    },
    (Width.MANY, 2): {
        64: Config(128, 64, 8, 3),
        128: Config(128, 64, 8, 2),
        256: Config(64, 32, 8, 2),
    },
    (Width.FEW, 4): {
        64: Config(FEW_ROWS, 32, 4, 2),
        128: Config(FEW_ROWS, 16, 4, 2),
        256: Config(FEW_ROWS, 16, 4, 2),
    },
    (Width.MANY, 4): {
        64: Config(64, 32, 8, 2),
        128: Config(32, 16, 8, 2),
        256: Config(32, 16, 8, 2),
    },
}

# Before Hopper both factors of a product lie in registers.
_BEFORE_HOPPER = {(Width.MANY, 2, 128): Config(128, 32, 8, 3)}
HOPPER = 90


def padded(head_dim: int) -> int:
    """The power of two that holds head_dim; 16 is the least that a matrix product takes."""
    return max(16, 1 << (head_dim - 1).bit_length())


def choose(
    width: Width, dtype: torch.dtype, head_dim: int, group: int, arch: int = HOPPER
) -> Config:
    """The configuration for rows of `group` query heads a kv head; arch is 80 for sm_80.

    A tile holds whole groups, so with many heads to a kv head it may be wider than the table says.
    """
    dim = max(64, padded(head_dim))
    config = _TABLE[width, dtype.itemsize][dim]
    if arch < HOPPER:
        config = _BEFORE_HOPPER.get((width, dtype.itemsize, dim), config)
    if group <= config.block_m:
        return config
    return Config(padded(group), config.block_n, 8, config.stages)


def most_few(group: int) -> int:
    """The most queries of a row that has few."""
    return max(FEW_ROWS, padded(group)) // group
