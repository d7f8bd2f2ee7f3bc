"""Attention over keys that lie one after another: what paging is compared with, and nothing else.

K and V: [rows, max_len, kv_heads, head_dim], each row's keys from the start of its own strip. The
engine does not use it. The Triton kernel is the paged one, compiled without the look at the table,
so that the ratio of the two is the price of paging.
"""

import torch

from kernels.buckets import bias_of
from kernels.dispatch import Backend, backend, check_window
from kernels.ragged import RaggedBatch
from kernels.torch_twins import empty_output, first_seen, prefill, prefill_bias


def contiguous_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    batch: RaggedBatch,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """As `kernels.paged_attention`, with k, v: [rows, max_len, kv_heads, head_dim].

    The batch's block tables are not looked at.
    """
    check_window(window)
    if window is not None and window >= batch.max_seq_len:
        window = None
    if backend(q.device) is Backend.TRITON:
        from kernels.gpu.launch import attention

        return attention(q, k, v, batch, scale, window, paged=False)
    return contiguous_twin(q, k, v, batch, scale, window)


def contiguous_twin(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    batch: RaggedBatch,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """The same in torch: decode rows padded to the longest, the others one by one."""
    out = empty_output(q, batch)
    if batch.decode_rows:
        rows, queries, bias = batch.once(
            ("strip", window, q.dtype), lambda: _decode_strip(batch, window, q.dtype)
        )
        longest = bias.shape[-1]
        picked = [
            (t if len(batch.decode_rows) == t.shape[0] else t[rows])[:, :longest].transpose(1, 2)
            for t in (k, v)
        ]
        kv_heads, heads, head_dim = k.shape[2], q.shape[1], q.shape[2]
        attended = torch.nn.functional.scaled_dot_product_attention(
            q.index_select(0, queries).view(-1, kv_heads, heads // kv_heads, head_dim),
            *picked,
            attn_mask=bias,
            scale=scale,
        )
        out.index_copy_(0, queries, attended.reshape(-1, heads, head_dim))
    for row in batch.prefill_rows:
        start, end, length = batch.rows[row]
        first = first_seen(length - (end - start), window)
        bias = batch.once(
            ("prefill", row, first, window, q.dtype),
            lambda r=row, f=first: prefill_bias(batch, r, f, window, q.dtype),
        )
        out[start:end] = prefill(
            q[start:end], k[row, first:length], v[row, first:length], bias, scale
        )
    return out


def _decode_strip(
    batch: RaggedBatch, window: int | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Decode rows, their queries, and [rows, 1, 1, longest] of what to add to their scores."""
    device = batch.seq_lens.device
    rows = torch.tensor(batch.decode_rows, device=device)
    queries = torch.tensor([batch.rows[row][0] for row in batch.decode_rows], device=device)
    lengths = batch.seq_lens[rows][:, None]
    longest = max(batch.rows[row][2] for row in batch.decode_rows)
    position = torch.arange(longest, device=device)
    seen = position < lengths
    if window:
        seen &= position >= lengths - window
    return rows, queries, bias_of(seen, dtype)[:, None, None, :]
