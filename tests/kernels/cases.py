"""Ragged batches over random block tables, and what attention over them is, in float64."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from kernels import RaggedBatch

# fp32 to 1e-5; fp16 to 2e-3; bf16 has 3 bits less than fp16.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}


@dataclass(frozen=True)
class Case:
    """`strips` are K and V of each row again, one key after another: [rows, max_len, heads, dim]."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    batch: RaggedBatch
    scale: float
    window: int | None
    strips: tuple[torch.Tensor, torch.Tensor]
    expected: torch.Tensor

    def check(self, out: torch.Tensor) -> None:
        tolerance = TOLERANCE[self.q.dtype]
        torch.testing.assert_close(
            out.double().cpu(), self.expected, atol=tolerance, rtol=tolerance
        )


# (keys, queries) of a row: decodes, prompts, chunks on a cached prefix, rows without queries, and
# rows without keys, as padding of a batch has them.
rows = st.lists(
    st.one_of(
        st.integers(1, 90).map(lambda keys: (keys, 1)),
        st.integers(1, 40).flatmap(lambda keys: st.tuples(st.just(keys), st.integers(0, keys))),
        st.sampled_from([(0, 0), (0, 1), (1, 1)]),
    ),
    min_size=1,
    max_size=7,
)

# Arguments of `build`, small enough for Triton's interpreter.
CASES = {
    "every kind of row": {"rows": [(20, 1), (7, 3), (0, 1), (5, 0), (9, 9), (0, 0), (1, 1)]},
    "a chunk on a cached prefix": {"rows": [(37, 12)], "block_size": 4},
    "blocks of one slot, an odd head": {"rows": [(9, 1), (5, 5)], "block_size": 1, "head_dim": 24},
    "blocks wider than a tile": {"rows": [(140, 1), (3, 3)], "block_size": 128},
    "three query heads to a kv head": {"rows": [(33, 1), (18, 18)], "heads": 9, "kv_heads": 3},
    "one kv head": {"rows": [(18, 7)], "heads": 5, "kv_heads": 1},
    "twenty query heads to a kv head": {"rows": [(6, 1), (6, 3)], "heads": 20, "kv_heads": 1},
    "first tiles hidden by a window": {"rows": [(150, 1), (100, 40)], "window": 5},
    "a window of one key": {"rows": [(40, 1), (9, 9)], "window": 1},
    "queries of nobody": {"rows": [(4, 1), (6, 2)], "padding": 3},
    "the widest head": {"rows": [(5, 1)], "head_dim": 256, "heads": 1, "kv_heads": 1},
}


def build(
    rows: list[tuple[int, int]],
    *,
    block_size: int = 16,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    dtype: torch.dtype = torch.float32,
    window: int | None = None,
    padding: int = 0,
    unseen: float = 77.0,
    seed: int = 0,
    device: str = "cpu",
) -> Case:
    """Tables in random order, every second row on the first blocks of the one before it.

    padding: queries at the end that belong to no row. unseen: what slots hold that no row uses.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-keys // block_size) for keys, _ in rows]
    num_blocks = sum(counts) + 3
    order = torch.randperm(num_blocks, generator=generator).tolist()
    tables: list[list[int]] = []
    for row, count in enumerate(counts):
        shared = tables[-1][: count // 2] if row % 2 else []
        tables.append(shared + [order.pop() for _ in range(count - len(shared))])

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    caches = [torch.full((num_blocks, block_size, kv_heads, head_dim), unseen).to(dtype)] * 2
    caches = [cache.clone() for cache in caches]
    longest = max(1, *(keys for keys, _ in rows)) if rows else 1
    strips = tuple(
        torch.full((len(rows), longest, kv_heads, head_dim), unseen).to(dtype) for _ in "kv"
    )
    for cache in caches:
        for (keys, _), table in zip(rows, tables, strict=True):
            for position in range(keys):
                slot = cache[table[position // block_size], position % block_size]
                slot.copy_(randn(kv_heads, head_dim))
    for cache, strip in zip(caches, strips, strict=True):
        for row, ((keys, _), table) in enumerate(zip(rows, tables, strict=True)):
            for position in range(keys):
                strip[row, position] = cache[table[position // block_size], position % block_size]
    q = randn(sum(queries for _, queries in rows) + padding, heads, head_dim)
    scale = 0.3
    expected = torch.zeros(q.shape, dtype=torch.float64)
    first = 0
    for row, (keys, queries) in enumerate(rows):
        if keys and queries:
            expected[first : first + queries] = reference(
                q[first : first + queries],
                strips[0][row, :keys],
                strips[1][row, :keys],
                scale,
                window,
            )
        first += queries
    return Case(
        q.to(device),
        caches[0].to(device),
        caches[1].to(device),
        RaggedBatch.from_lists(tables, [k for k, _ in rows], [m for _, m in rows], device),
        scale,
        window,
        (strips[0].to(device), strips[1].to(device)),
        expected,
    )


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window: int | None
) -> torch.Tensor:
    """One sequence. q: [queries, heads, dim], the last of the keys' positions."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    position = torch.arange(k.shape[0] - q.shape[0], k.shape[0])[:, None]
    key = torch.arange(k.shape[0])
    hidden = key > position
    if window is not None:
        hidden |= key <= position - window
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
