"""The kernels in plain torch: the reference for every device, and the fast path on a CPU.

Cache layout of a layer, K and V alike: [num_blocks, block_size, kv_heads, head_dim].
Slot s is token s % block_size of block s // block_size.

    block table of a row  [ 5 | 2 | 7 ]      index_select of whole blocks, then SDPA over a view:
    K cache  .. . [2] .. . [5] . [7] ..  ->  [5][2][7] = keys of the row, in order

Keys that a row does not see take part in a product with weight 0, so caches must hold no NaN.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.buckets import Bucket, bias_of, decode_buckets
from kernels.ragged import RaggedBatch


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Store the keys and values of a step's tokens in their slots.

    k, v: [tokens, kv_heads, head_dim], of any strides, in the caches' dtype. slot_mapping: [tokens]
    int64, unique but for -1 (padding, stored nowhere).
    """
    if bool((slot_mapping < 0).any()):
        real = slot_mapping >= 0
        k, v, slot_mapping = k[real], v[real], slot_mapping[real]
    k_cache.flatten(0, 1).index_copy_(0, slot_mapping, k)
    v_cache.flatten(0, 1).index_copy_(0, slot_mapping, v)


def copy_blocks(caches: list[torch.Tensor], pairs: list[tuple[int, int]]) -> None:
    """Copy whole blocks (source, target) in every cache; all sources are read before any is written.

    So a target may be a source too; a block may be the target of one pair only.
    """
    if not pairs:
        return
    sources = torch.tensor([source for source, _ in pairs], device=caches[0].device)
    targets = torch.tensor([target for _, target in pairs], device=caches[0].device)
    for cache in caches:
        cache[targets] = cache.index_select(0, sources)


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: RaggedBatch,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Causal attention of a ragged batch over its block tables.

    q: [tokens, heads, head_dim] in the caches' dtype, heads a multiple of kv_heads. window: a query
    sees this many keys, its own the last; None for all. Returns [tokens, heads, head_dim].
    """
    out = empty_output(q, batch)
    buckets = batch.once(
        ("buckets", k_cache.shape[1:], window, q.dtype),
        lambda: decode_buckets(batch, k_cache, window, q.dtype),
    )
    for bucket in buckets:
        out.index_copy_(
            0,
            bucket.queries,
            _decode(q.index_select(0, bucket.queries), k_cache, v_cache, bucket, scale),
        )
    block_size = k_cache.shape[1]
    for row in batch.prefill_rows:
        start, end, length = batch.rows[row]
        first = first_seen(length - (end - start), window) // block_size
        blocks = batch.block_tables[row, first : -(-length // block_size)]
        keys, values = (
            cache.index_select(0, blocks).flatten(0, 1)[: length - first * block_size]
            for cache in (k_cache, v_cache)
        )
        bias = batch.once(
            ("prefill", row, first * block_size, window, q.dtype),
            lambda r=row, f=first * block_size: prefill_bias(batch, r, f, window, q.dtype),
        )
        out[start:end] = prefill(q[start:end], keys, values, bias, scale)
    return out


def empty_output(q: torch.Tensor, batch: RaggedBatch) -> torch.Tensor:
    """[tokens, heads, head_dim]; zeros where not every query will be written."""
    new = torch.empty if batch.num_attended == q.shape[0] else torch.zeros
    return new(q.shape, dtype=q.dtype, device=q.device)


def first_seen(position: int, window: int | None) -> int:
    """The first key that the query at `position` sees."""
    return max(0, position - window + 1) if window else 0


def _decode(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, bucket: Bucket, scale: float
) -> torch.Tensor:
    """One query a row. The query heads of a group share their keys, so they become the query axis."""
    rows, heads, head_dim = q.shape
    kv_heads = k_cache.shape[2]
    # [rows, kv_heads, keys, head_dim], as views of the gathered blocks
    keys, values = (
        cache.index_select(0, bucket.blocks)
        .view(rows, -1, kv_heads, head_dim)[:, : bucket.keys]
        .transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    out = scaled_dot_product_attention(
        q.view(rows, kv_heads, heads // kv_heads, head_dim),
        keys,
        values,
        attn_mask=bucket.bias,
        scale=scale,
    )
    return out.reshape(rows, heads, head_dim)


def prefill_bias(
    batch: RaggedBatch, row: int, first_key: int, window: int | None, dtype: torch.dtype
) -> torch.Tensor | None:
    """[queries, keys from first_key on]; None where that is the plain triangle."""
    start, end, length = batch.rows[row]
    past = length - (end - start)
    if not past and (window is None or window >= length):
        return None
    device = batch.block_tables.device
    query = torch.arange(past, length, device=device)[:, None]
    key = torch.arange(first_key, length, device=device)
    seen = key <= query
    if window:
        seen &= key > query - window
    return bias_of(seen, dtype)


def prefill(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """q: [queries, heads, head_dim] of one row; keys, values: [keys, kv_heads, head_dim].

    `enable_gqa` took 0.5 to 1.0 of the time of repeating keys and values on the CPUs tried.
    """
    out = scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=bias,
        is_causal=bias is None,
        scale=scale,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)
