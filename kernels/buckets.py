"""Decode rows in buckets of like length, so that padding to a bucket's longest row costs little.

    one bucket   ████████████████      two buckets   ████████████████
                 ██████████████░░                    ██████████████░░
                 ████░░░░░░░░░░░░                    ████
                 ███░░░░░░░░░░░░░                    ███░

A bucket is a handful of torch calls, so it pays only where it saves more than these cost. On a CPU
it pays too where a bucket's gathered keys no longer fit beside its values into the core's own cache.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch

from kernels.ragged import RaggedBatch

# What a bucket costs beside its keys, in keys: about 100 us of calls, at 0.25 to 0.8 us a key as
# measured with 3 kv heads of 64; 50 to 500 did alike. Larger models pay more for a key, so for them
# it errs to few buckets.
BUCKET_COST = 400
# The most that a bucket's keys take on a CPU, for each of torch's threads. Gathers of 0.8 MB were
# attended in 0.5 to 0.8 of the time of 5 to 24 MB at once; from 2.5 MB on little was won.
BUCKET_BYTES = 2**20


@dataclass(frozen=True)
class Bucket:
    """Decode rows that are gathered and attended together.

    queries: [rows] int64, where they are in q. blocks: [rows * n] int64, n physical blocks of each
    row, the first that it sees and on. keys: how many keys of these are worth a look. bias:
    [rows, 1, 1, keys], 0 where the row sees a key and -inf where not; None where all see all.
    """

    queries: torch.Tensor
    blocks: torch.Tensor
    keys: int
    bias: torch.Tensor | None


def split_by_length(lengths: list[int], cost: int = BUCKET_COST) -> list[list[int]]:
    """Indices of `lengths` in buckets: one is cut in two, where best, while that saves over `cost`."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    buckets = []
    pending = [order]
    while pending:
        bucket = pending.pop()
        longest = lengths[bucket[0]]
        # Cut before `at`: the rows from there on are padded to their own longest instead.
        saved, at = max(
            ((len(bucket) - at) * (longest - lengths[bucket[at]]), at) for at in range(len(bucket))
        )
        if saved > cost:
            pending += [bucket[at:], bucket[:at]]
        else:
            buckets.append(sorted(bucket))
    return buckets


def split_by_size(rows: int, row_bytes: int, limit: int) -> list[slice]:
    """Parts of like size of a bucket, each within the limit or a single row."""
    parts = min(rows, -(-rows * row_bytes // limit))
    cuts = [rows * part // parts for part in range(parts + 1)]
    return [slice(start, end) for start, end in pairwise(cuts)]


def decode_buckets(
    batch: RaggedBatch, cache: torch.Tensor, window: int | None, dtype: torch.dtype
) -> list[Bucket]:
    """The batch's decode rows in buckets. A window leaves out the blocks before it.

    cache: K or V of any layer: [num_blocks, block_size, kv_heads, head_dim].
    """
    rows, block_size = batch.decode_rows, cache.shape[1]
    if not rows:
        return []
    ends = [batch.rows[row][2] for row in rows]
    begins = [max(0, end - window) if window else 0 for end in ends]
    spans = [
        end - begin // block_size * block_size for begin, end in zip(begins, ends, strict=True)
    ]
    parts = []
    for indices in split_by_length(spans):
        row_bytes = max(spans[index] for index in indices) * cache[0, 0].numel() * cache.itemsize
        cuts = [slice(None)]
        if cache.device.type == "cpu":
            cuts = split_by_size(len(indices), row_bytes, BUCKET_BYTES * torch.get_num_threads())
        parts += [indices[cut] for cut in cuts]
    return [
        _bucket(
            batch,
            [rows[index] for index in indices],
            [begins[index] for index in indices],
            [ends[index] for index in indices],
            max(spans[index] for index in indices),
            block_size,
            dtype,
        )
        for indices in parts
    ]


def _bucket(
    batch: RaggedBatch,
    rows: list[int],
    begins: list[int],
    ends: list[int],
    keys: int,
    block_size: int,
    dtype: torch.dtype,
) -> Bucket:
    device = batch.block_tables.device
    first_blocks = torch.tensor([begin // block_size for begin in begins], device=device)[:, None]
    logical = first_blocks + torch.arange(-(-keys // block_size), device=device)
    # Past a table's end any block will do: its keys are masked.
    logical = logical.clamp(max=batch.block_tables.shape[1] - 1)
    bias = None
    first_keys = [begin // block_size * block_size for begin in begins]
    if any(begin > first for begin, first in zip(begins, first_keys, strict=True)) or any(
        end - first < keys for end, first in zip(ends, first_keys, strict=True)
    ):
        position = first_blocks * block_size + torch.arange(keys, device=device)
        seen = position < torch.tensor(ends, device=device)[:, None]
        seen &= position >= torch.tensor(begins, device=device)[:, None]
        bias = bias_of(seen, dtype)[:, None, None, :]
    return Bucket(
        queries=torch.tensor([batch.rows[row][0] for row in rows], device=device),
        blocks=batch.block_tables[torch.tensor(rows, device=device)].gather(1, logical).flatten(),
        keys=keys,
        bias=bias,
    )


def bias_of(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What to add to scores. SDPA makes the same of a boolean mask, but anew at every layer."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
