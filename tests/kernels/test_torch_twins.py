"""The torch twins against a reference that knows nothing of blocks, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels

rows = st.lists(
    st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    min_size=1,
    max_size=6,
)


def reference(q, k, v, scale):
    """One sequence. q: [queries, heads, dim], the last of the keys' positions."""
    queries, heads, _ = q.shape
    group = heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    future = torch.ones(queries, k.shape[0], dtype=torch.bool).triu(k.shape[0] - queries + 1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(future, -torch.inf).softmax(-1), v)


@settings(max_examples=60, deadline=None)
@given(
    rows=rows,
    block_size=st.sampled_from([1, 3, 16]),
    heads=st.sampled_from([(4, 4), (6, 2), (9, 3)]),
    head_dim=st.sampled_from([8, 24]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 1000),
)
def test_paged_attention_equals_contiguous_attention(
    rows, block_size, heads, head_dim, dtype, seed
):
    torch.manual_seed(seed)
    heads, kv_heads = heads
    blocks = [-(-length // block_size) for length, _ in rows]
    num_blocks = sum(blocks) + 3
    order = torch.randperm(num_blocks).tolist()
    caches = [torch.full((num_blocks, block_size, kv_heads, head_dim), 77.0, dtype=dtype)] * 2
    k_cache, v_cache = caches[0], caches[1].clone()
    tables, queries, expected = [], [], []
    for (length, count), entries in zip(rows, blocks, strict=True):
        table = [order.pop() for _ in range(entries)]
        k, v = torch.randn(2, length, kv_heads, head_dim, dtype=dtype)
        q = torch.randn(count, heads, head_dim, dtype=dtype)
        slots = [table[i // block_size] * block_size + i % block_size for i in range(length)]
        kernels.write_kv(k, v, k_cache, v_cache, torch.tensor(slots))
        tables.append(table)
        queries.append(q)
        expected.append(reference(q.double(), k.double(), v.double(), 0.3))
    batch = kernels.RaggedBatch(
        block_tables=torch.tensor([t + [order[0]] * (max(blocks) - len(t)) for t in tables]),
        seq_lens=torch.tensor([length for length, _ in rows]),
        cu_query_lens=torch.tensor([0, *torch.tensor([c for _, c in rows]).cumsum(0).tolist()]),
    )
    out = kernels.paged_attention(torch.cat(queries), k_cache, v_cache, batch, 0.3)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    torch.testing.assert_close(out.double(), torch.cat(expected), atol=tolerance, rtol=tolerance)


def test_padding_slots_are_stored_nowhere():
    k_cache, v_cache = torch.zeros(2, 2, 1, 4), torch.zeros(2, 2, 1, 4)
    k, v = torch.ones(3, 1, 4), torch.full((3, 1, 4), 2.0)
    kernels.write_kv(k, v, k_cache, v_cache, torch.tensor([3, -1, 0]))
    assert k_cache.flatten(0, 1).sum(-1).flatten().tolist() == [4, 0, 0, 4]
    assert v_cache.flatten(0, 1).sum(-1).flatten().tolist() == [8, 0, 0, 8]


@pytest.mark.parametrize("pairs", [[(0, 1)], [(0, 1), (1, 2)], [(2, 0), (0, 2)], [(1, 3), (1, 0)]])
def test_copies_read_before_any_write(pairs):
    cache = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 2, 1, 3).clone()
    kernels.copy_blocks([cache], pairs)
    expected = [0.0, 1.0, 2.0, 3.0]
    for source, target in pairs:
        expected[target] = float(source)
    assert cache[:, 0, 0, 0].tolist() == expected
