"""The torch twins against a reference that knows nothing of blocks, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import torch_twins
from kernels.buckets import split_by_length, split_by_size
from kernels.contiguous import contiguous_twin
from tests.kernels.cases import build, rows

shapes = {
    "rows": rows,
    "block_size": st.sampled_from([1, 3, 16, 128]),
    "heads": st.sampled_from([(4, 4), (6, 2), (9, 3), (5, 1)]),
    "head_dim": st.sampled_from([8, 24, 64]),
    "dtype": st.sampled_from([torch.float32, torch.float16, torch.float64]),
    "window": st.sampled_from([None, None, 1, 5, 33]),
    "padding": st.integers(0, 2),
    "seed": st.integers(0, 1000),
}


@settings(max_examples=60, deadline=None)
@given(**shapes)
def test_paged_attention_equals_the_reference(heads, **shape):
    case = build(heads=heads[0], kv_heads=heads[1], **shape)
    case.check(
        torch_twins.paged_attention(
            case.q, case.k_cache, case.v_cache, case.batch, case.scale, case.window
        )
    )


@settings(max_examples=30, deadline=None)
@given(**shapes)
def test_contiguous_attention_equals_the_reference(heads, **shape):
    case = build(heads=heads[0], kv_heads=heads[1], **shape)
    case.check(contiguous_twin(case.q, *case.strips, case.batch, case.scale, case.window))


@pytest.mark.parametrize("layers", [1, 3])
def test_a_second_layer_computes_what_the_first_did(layers):
    case = build([(40, 1), (7, 1), (9, 4), (300, 1)], window=20)
    for _ in range(layers):
        out = torch_twins.paged_attention(
            case.q, case.k_cache, case.v_cache, case.batch, case.scale, case.window
        )
    case.check(out)


def test_queries_may_have_any_strides():
    case = build([(20, 1), (6, 6)])
    q = case.q.transpose(0, 1).contiguous().transpose(0, 1)
    assert not q.is_contiguous()
    case.check(torch_twins.paged_attention(q, case.k_cache, case.v_cache, case.batch, case.scale))


def test_padding_slots_are_stored_nowhere():
    k_cache, v_cache = torch.zeros(2, 2, 1, 4), torch.zeros(2, 2, 1, 4)
    k, v = torch.ones(3, 1, 4), torch.full((3, 1, 4), 2.0)
    torch_twins.write_kv(k, v, k_cache, v_cache, torch.tensor([3, -1, 0]))
    assert k_cache.flatten(0, 1).sum(-1).flatten().tolist() == [4, 0, 0, 4]
    assert v_cache.flatten(0, 1).sum(-1).flatten().tolist() == [8, 0, 0, 8]


@pytest.mark.parametrize(
    "pairs", [[], [(0, 1)], [(0, 1), (1, 2)], [(2, 0), (0, 2)], [(1, 3), (1, 0)]]
)
def test_copies_read_before_any_write(pairs):
    cache = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 2, 1, 3).clone()
    torch_twins.copy_blocks([cache], pairs)
    expected = [0.0, 1.0, 2.0, 3.0]
    for source, target in pairs:
        expected[target] = float(source)
    assert cache[:, 0, 0, 0].tolist() == expected


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=40), st.sampled_from([1, 200, 10_000]))
def test_buckets_hold_each_row_once_and_no_cut_is_left_that_pays(lengths, cost):
    buckets = split_by_length(lengths, cost)
    assert sorted(index for bucket in buckets for index in bucket) == list(range(len(lengths)))
    for bucket in buckets:
        longest = max(lengths[index] for index in bucket)
        for limit in {lengths[index] for index in bucket}:
            shorter = sum(lengths[index] <= limit for index in bucket)
            assert shorter * (longest - limit) <= cost


def test_rows_of_one_length_are_one_bucket():
    assert split_by_length([64] * 24) == [list(range(24))]


@given(st.integers(1, 70), st.integers(1, 3000))
def test_parts_hold_each_row_once_and_keep_the_limit(rows, row_bytes):
    parts = split_by_size(rows, row_bytes, limit=2000)
    indices = [index for part in parts for index in range(rows)[part]]
    assert indices == list(range(rows))
    for part in parts:
        count = len(range(rows)[part])
        # Parts of like size may differ by a row.
        assert count == 1 or (count - 1) * row_bytes <= 2000


def test_large_batches_take_several_parts_and_equal_the_reference():
    case = build([(300, 1)] * 30, heads=8, kv_heads=8, head_dim=64)
    case.check(
        torch_twins.paged_attention(case.q, case.k_cache, case.v_cache, case.batch, case.scale)
    )
    (buckets,) = case.batch._derived.values()
    assert len(buckets) > 1
