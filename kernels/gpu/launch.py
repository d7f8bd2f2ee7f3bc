"""From a batch to launches of the attention kernel: which tiles, which configuration, how many splits.

Rows with few queries and rows with many go in launches of their own, so that none is padded to the
other's tile. What depends on the step's shape alone is made once per step (`RaggedBatch.once`).
"""

import math
from dataclasses import dataclass

import torch
import triton

from kernels.errors import KernelError
from kernels.gpu.attention import attend, combine
from kernels.gpu.configs import (
    DTYPES,
    HOPPER,
    LARGEST_HEAD_DIM,
    Config,
    Width,
    choose,
    most_few,
    padded,
)
from kernels.ragged import RaggedBatch

# Below this many keys a program is too short to be worth a second kernel that joins its part.
SHORTEST_SPLIT = 256
# Programs that a processor of the GPU holds at once, roughly; splits fill that many.
PROGRAMS_PER_PROCESSOR = 2
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Tiles:
    """tiles: [count, 2] int32, a row and its first query; those with most keys first, so that the
    last to run are short. queries: the most of a tile. split_keys: keys of a split; splits: 1 where
    rows are not split."""

    tiles: torch.Tensor
    queries: int
    split_keys: int
    splits: int


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    batch: RaggedBatch,
    scale: float,
    window: int | None,
    *,
    paged: bool = True,
    out: torch.Tensor | None = None,
    split_keys: int | None = None,
) -> torch.Tensor:
    """k, v: [blocks, block_size, kv_heads, head_dim], or [rows, max_len, kv_heads, head_dim].

    out: a contiguous tensor like q to write into. split_keys: split rows of few queries at every so many
    keys (a multiple of 64), rather than as `_split_keys` finds best. Raises KernelError.
    """
    heads, head_dim = q.shape[1:]
    kv_heads = k.shape[2]
    if q.dtype not in DTYPES or head_dim > LARGEST_HEAD_DIM:
        raise KernelError(
            f"the Triton kernels take float16, bfloat16 or float32 and a head_dim up to "
            f"{LARGEST_HEAD_DIM}, not {q.dtype} and {head_dim}; set GLASSPOOL_KERNELS=torch"
        )
    if q.stride(-1) != 1:
        q = q.contiguous()
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if batch.num_attended != q.shape[0]:
        out.zero_()
    group = heads // kv_heads
    arch = HOPPER
    if q.is_cuda:
        major, minor = torch.cuda.get_device_capability(q.device)
        arch = 10 * major + minor
    for width in Width:
        config = choose(width, q.dtype, head_dim, group, arch)
        tiles = batch.once(
            ("tiles", width, config, group, kv_heads, window, split_keys),
            lambda w=width, c=config: _tiles(
                batch, w, c, group, kv_heads, window, split_keys, q.device
            ),
        )
        if tiles is not None:
            _launch(q, k, v, out, batch, tiles, config, scale, window, paged)
    return out


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    batch: RaggedBatch,
    tiles: Tiles,
    config: Config,
    scale: float,
    window: int | None,
    paged: bool,
) -> None:
    tokens, heads, head_dim = q.shape
    kv_heads = k.shape[2]
    count = tiles.tiles.shape[0]
    split = tiles.splits > 1
    target, sums = out, out
    if split:
        part = (tokens, heads, tiles.splits)
        target = torch.empty((*part, head_dim), dtype=torch.float32, device=q.device)
        sums = torch.empty(part, dtype=torch.float32, device=q.device)
    attend[(count, kv_heads, tiles.splits)](
        q,
        k,
        v,
        target,
        sums,
        batch.block_tables,
        batch.seq_lens,
        batch.cu_query_lens,
        tiles.tiles,
        scale * _LOG2_E,
        window or 0,
        tiles.split_keys,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        batch.block_tables.stride(0),
        HEAD_DIM=head_dim,
        DIM=padded(head_dim),
        GROUP=heads // kv_heads,
        BLOCK_SIZE=k.shape[1] if paged else 1,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        PAGED=paged,
        WINDOW=window is not None,
        SPLIT=split,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    if split:
        combine[(count, heads, tiles.queries)](
            target,
            sums,
            out,
            batch.seq_lens,
            batch.cu_query_lens,
            tiles.tiles,
            window or 0,
            tiles.split_keys,
            tiles.splits,
            HEAD_DIM=head_dim,
            DIM=padded(head_dim),
            QUERIES=config.block_m * kv_heads // heads,
            BLOCK_N=config.block_n,
            WINDOW=window is not None,
            CHUNK=16,
            num_warps=4,
        )


def _tiles(
    batch: RaggedBatch,
    width: Width,
    config: Config,
    group: int,
    kv_heads: int,
    window: int | None,
    split_keys: int | None,
    device: torch.device,
) -> Tiles | None:
    """The tiles of the rows that a width takes; None where it has none."""
    few = most_few(group)
    step = config.block_m // group
    tiles = []  # (keys seen, row, first query)
    queries = 0
    for row, (start, end, length) in enumerate(batch.rows):
        count = end - start
        if not count or not length or (count <= few) != (width is Width.FEW):
            continue
        queries = max(queries, min(count, step))
        for first in range(0, count, step):
            keys = length - count + min(count, first + step)
            if window is not None:
                # It starts at a multiple of block_n, up to block_n - 1 keys before what it sees.
                keys = min(keys, window + step - 1 + config.block_n - 1)
            tiles.append((keys, row, first))
    if not tiles:
        return None
    tiles.sort(reverse=True)
    longest = tiles[0][0]
    if width is Width.MANY:
        split_keys = longest
    elif split_keys is None:
        split_keys = _split_keys([keys for keys, _, _ in tiles], kv_heads, config, device)
    return Tiles(
        torch.tensor([tile[1:] for tile in tiles], dtype=torch.int32, device=device),
        queries,
        split_keys,
        -(-longest // split_keys),
    )


def _split_keys(keys: list[int], kv_heads: int, config: Config, device: torch.device) -> int:
    """Keys of a split such that programs fill the GPU once, each with a like share of the work.

    By the sum of keys, not by the count of rows: one long row among short ones is split too.
    """
    processors = 8  # under the interpreter
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    share = sum(keys) * kv_heads / (processors * PROGRAMS_PER_PROCESSOR)
    size = max(SHORTEST_SPLIT, triton.cdiv(math.ceil(share), config.block_n) * config.block_n)
    # Half as much again is not worth the second kernel.
    return size if max(keys) > 1.5 * size else max(keys) + config.block_n
