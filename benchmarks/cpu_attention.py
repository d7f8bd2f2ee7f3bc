"""Decode attention on a CPU: our torch path, a naive gather, and the Triton interpreter.

Shapes of one layer of SmolLM2-135M: 9 query heads, 3 key heads of 64, blocks of 16. Rows have mixed
lengths of 50 to 500 keys. The three are called in turn, so that a noisy machine hurts all alike; the
figures to quote are the ratios. Run: .venv/bin/python benchmarks/cpu_attention.py
"""

import os
import random
import statistics
import time
from collections.abc import Callable

# Before triton is imported: without a GPU its kernels run interpreted only.
os.environ["TRITON_INTERPRET"] = "1"

import torch
from rich.console import Console
from rich.table import Table

import kernels
from kernels import torch_twins
from kernels.gpu.launch import attention as triton_attention

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 9, 3, 64, 16
SCALE = HEAD_DIM**-0.5


def naive(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: kernels.RaggedBatch
) -> torch.Tensor:
    """What one writes first: index the cache by the table, repeat heads, mask, attend."""
    rows = q.shape[0]
    keys = k_cache[batch.block_tables].view(rows, -1, KV_HEADS, HEAD_DIM)
    values = v_cache[batch.block_tables].view(rows, -1, KV_HEADS, HEAD_DIM)
    keys = keys.repeat_interleave(HEADS // KV_HEADS, dim=2).transpose(1, 2)
    values = values.repeat_interleave(HEADS // KV_HEADS, dim=2).transpose(1, 2)
    mask = torch.arange(keys.shape[2]) < batch.seq_lens[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(
        q[:, :, None], keys, values, attn_mask=mask[:, None, None], scale=SCALE
    )
    return out[:, :, 0]


def decode_batch(rows: int) -> tuple[torch.Tensor, ...]:
    """q, both caches and the batch; blocks lie in random order in a pool twice as large."""
    draw = random.Random(rows)
    lengths = [draw.randint(50, 500) for _ in range(rows)]
    entries = [-(-length // BLOCK) for length in lengths]
    blocks = torch.randperm(2 * sum(entries)).tolist()
    tables = [[blocks.pop() for _ in range(n)] + [0] * (max(entries) - n) for n in entries]
    batch = kernels.RaggedBatch(
        block_tables=torch.tensor(tables),
        seq_lens=torch.tensor(lengths),
        cu_query_lens=torch.arange(rows + 1),
    )
    k_cache, v_cache = torch.randn(2, 2 * sum(entries), BLOCK, KV_HEADS, HEAD_DIM)
    return torch.randn(rows, HEADS, HEAD_DIM), k_cache, v_cache, batch


def timed(function: Callable[[], torch.Tensor]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


@torch.inference_mode()
def main() -> None:
    # One thread: beside a busy neighbour, threads that wait for each other measure the neighbour.
    torch.set_num_threads(1)
    table = Table(title="one layer's decode attention, times relative to ours (median of pairs)")
    for column in ("rows", "ours, µs", "naive / ours", "interpreter / ours"):
        table.add_column(column, justify="right")
    for rows in (1, 8, 16, 24):
        q, k_cache, v_cache, batch = decode_batch(rows)

        def ours(q=q, k=k_cache, v=v_cache, batch=batch) -> torch.Tensor:
            return torch_twins.paged_attention(q, k, v, batch, SCALE)

        def gather(q=q, k=k_cache, v=v_cache, batch=batch) -> torch.Tensor:
            return naive(q, k, v, batch)

        def interpreted(q=q, k=k_cache, v=v_cache, batch=batch) -> torch.Tensor:
            return triton_attention(q, k, v, batch, SCALE, None)

        torch.testing.assert_close(ours(), gather(), atol=1e-5, rtol=1e-5)
        pairs = [(timed(ours), timed(gather)) for _ in range(200)]
        slow = [(timed(ours), timed(interpreted)) for _ in range(2)]
        table.add_row(
            str(rows),
            f"{1e6 * statistics.median(a for a, _ in pairs):,.0f}",
            f"{statistics.median(b / a for a, b in pairs):.2f}",
            f"{statistics.median(b / a for a, b in slow):,.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
