"""The kernels in plain torch: the reference for every device, and the fast path on a CPU.

Cache layout of a layer, K and V alike: [num_blocks, block_size, kv_heads, head_dim].
Slot s is token s % block_size of block s // block_size.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.ragged import RaggedBatch


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Store the keys and values of a step's tokens in their slots.

    k, v: [tokens, kv_heads, head_dim]. slot_mapping: [tokens] int64, unique but for -1 (padding,
    stored nowhere).
    """
    if bool((slot_mapping < 0).any()):
        real = slot_mapping >= 0
        k, v, slot_mapping = k[real], v[real], slot_mapping[real]
    k_cache.flatten(0, 1).index_copy_(0, slot_mapping, k)
    v_cache.flatten(0, 1).index_copy_(0, slot_mapping, v)


def copy_blocks(caches: list[torch.Tensor], pairs: list[tuple[int, int]]) -> None:
    """Copy whole blocks (source, target) in every cache; all sources are read before any is written."""
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
) -> torch.Tensor:
    """Causal attention of a ragged batch over its block tables.

    q: [tokens, heads, head_dim], heads a multiple of kv_heads. Returns the same shape and dtype.
    """
    out = torch.empty_like(q)
    if batch.decode_rows:
        out[batch.decode_queries] = _decode(q[batch.decode_queries], k_cache, v_cache, batch, scale)
    for row in batch.prefill_rows:
        start, end, length = batch.rows[row]
        out[start:end] = _prefill(
            q[start:end], k_cache, v_cache, batch.block_tables[row], length, scale
        )
    return out


def _decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: RaggedBatch,
    scale: float,
) -> torch.Tensor:
    """One query a row. The query heads of a group share their keys, so they become the query axis."""
    rows, heads, head_dim = q.shape
    block_size, kv_heads = k_cache.shape[1], k_cache.shape[2]
    lens = batch.decode_lens
    blocks = -(-int(lens.max()) // block_size)
    tables = batch.block_tables[batch.decode_rows, :blocks].flatten()
    # [rows, kv_heads, blocks * block_size, head_dim], as views of the gathered blocks
    keys = k_cache.index_select(0, tables).view(rows, -1, kv_heads, head_dim).transpose(1, 2)
    values = v_cache.index_select(0, tables).view(rows, -1, kv_heads, head_dim).transpose(1, 2)
    mask = torch.arange(blocks * block_size, device=q.device) < lens[:, None]
    out = scaled_dot_product_attention(
        q.view(rows, kv_heads, heads // kv_heads, head_dim),
        keys,
        values,
        attn_mask=mask[:, None, None, :],
        scale=scale,
    )
    return out.reshape(rows, heads, head_dim)


def _prefill(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    table: torch.Tensor,
    length: int,
    scale: float,
) -> torch.Tensor:
    """The last queries of one sequence of `length` keys."""
    queries, heads, _ = q.shape
    block_size, kv_heads = k_cache.shape[1], k_cache.shape[2]
    blocks = table[: -(-length // block_size)]
    # [kv_heads, length, head_dim]
    keys = k_cache.index_select(0, blocks).flatten(0, 1)[:length].transpose(0, 1)
    values = v_cache.index_select(0, blocks).flatten(0, 1)[:length].transpose(0, 1)
    group = heads // kv_heads
    past = length - queries
    mask = None
    if past:
        mask = torch.ones(queries, length, dtype=torch.bool, device=q.device).tril(past)
    out = scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys.repeat_interleave(group, dim=0)[None],
        values.repeat_interleave(group, dim=0)[None],
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
    )
    return out[0].transpose(0, 1)
