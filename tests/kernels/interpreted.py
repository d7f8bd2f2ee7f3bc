"""The Triton kernels under Triton's interpreter, on a CPU. `test_interpreter.py` runs this file.

Never in bf16: a bf16 product is silently wrong there. Each launch takes 0.1 to 4 s, so cases are
tiny.
"""

import pytest
import torch

import kernels
from kernels import KernelError, torch_twins
from kernels.contiguous import contiguous_attention
from kernels.gpu import cache
from kernels.gpu.launch import attention
from tests.kernels.cases import CASES, build


@pytest.fixture(autouse=True)
def _empty_memory_is_nan():
    """torch.empty gives NaN, so that what no kernel wrote shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("name", CASES)
def test_attention(name, dtype):
    case = build(**CASES[name], dtype=dtype, unseen=torch.nan)
    out = torch.full_like(case.q, torch.nan)
    attention(case.q, case.k_cache, case.v_cache, case.batch, case.scale, case.window, out=out)
    case.check(out)


@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize("rows", [[(150, 1), (3, 1), (64, 1)], [(130, 2), (0, 1), (200, 1)]])
def test_attention_with_keys_split_over_programs(rows, window):
    case = build(rows, window=window, unseen=torch.nan)
    out = torch.full_like(case.q, torch.nan)
    attention(
        case.q,
        case.k_cache,
        case.v_cache,
        case.batch,
        case.scale,
        window,
        out=out,
        split_keys=64,
    )
    case.check(out)


def test_more_splits_than_one_read_joins():
    # 33 splits are three reads; among 8 heads some have their largest score in a later one.
    case = build([(64 * 32 + 3, 1)], heads=8, kv_heads=1, unseen=torch.nan)
    out = attention(case.q, case.k_cache, case.v_cache, case.batch, case.scale, None, split_keys=64)
    case.check(out)


def test_long_rows_are_split_unasked():
    case = build([(1400, 1)], heads=2, kv_heads=1, unseen=torch.nan)
    out = attention(case.q, case.k_cache, case.v_cache, case.batch, case.scale, None)
    case.check(out)
    assert [t.splits for t in case.batch._derived.values() if t is not None] == [6]


def test_attention_over_contiguous_keys():
    case = build([(20, 1), (7, 3), (0, 1), (40, 40)], window=30, unseen=torch.nan)
    case.check(contiguous_attention(case.q, *case.strips, case.batch, case.scale, case.window))


def test_the_dispatch_reaches_triton():
    case = build([(20, 1), (7, 3)], unseen=torch.nan)
    case.check(kernels.paged_attention(case.q, case.k_cache, case.v_cache, case.batch, case.scale))


def test_queries_may_have_any_strides():
    case = build([(20, 1), (6, 6)])
    for q in (
        case.q.transpose(0, 1).contiguous().transpose(0, 1),
        case.q.transpose(1, 2).contiguous().transpose(1, 2),
    ):
        case.check(attention(q, case.k_cache, case.v_cache, case.batch, case.scale, None))


def test_a_dtype_without_kernel_is_refused():
    case = build([(3, 1)], dtype=torch.float64)
    with pytest.raises(KernelError, match=r"not torch\.float64 and 16; set GLASSPOOL_KERNELS"):
        attention(case.q, case.k_cache, case.v_cache, case.batch, case.scale, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_writes_go_where_the_slots_say(dtype):
    k = torch.randn(2, 5, 8).to(dtype).transpose(0, 1)
    v = torch.randn(5, 8, 2).to(dtype).transpose(1, 2)
    slots = torch.tensor([7, -1, 0, 19, 4])
    ours = [torch.full((5, 4, 2, 8), torch.nan, dtype=dtype) for _ in "kv"]
    twins = [cache.clone() for cache in ours]
    cache.write_kv(k, v, *ours, slots)
    torch_twins.write_kv(k, v, *twins, slots)
    torch.testing.assert_close(ours, twins, equal_nan=True, rtol=0, atol=0)


def test_no_tokens_are_written_nowhere():
    none, caches = torch.zeros(0, 2, 8), torch.zeros(5, 4, 2, 8)
    cache.write_kv(none, none, caches, caches, torch.zeros(0, dtype=torch.int64))
    assert not caches.any()


# The block's bytes decide the width of the words that are copied: 8, 4, 2, 1.
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((5, 16, 3, 64), torch.float32),
        ((5, 1, 1, 9), torch.float32),
        ((5, 1, 1, 9), torch.float16),
        ((5, 1, 1, 9), torch.int8),
    ],
)
def test_blocks_are_copied_in_all_caches_at_once(shape, dtype):
    ours = [(torch.randn(shape) * 50).to(dtype) for _ in range(4)]
    twins = [each.clone() for each in ours]
    pairs = [(0, 3), (0, 2), (1, 4)]
    cache.copy_blocks(ours, pairs)
    torch_twins.copy_blocks(twins, pairs)
    assert all(torch.equal(a, b) for a, b in zip(ours, twins, strict=True))
    cache.copy_blocks(ours, [])


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 2)], [(0, 1), (2, 1)]])
def test_copies_whose_order_would_matter_are_a_bug(pairs):
    with pytest.raises(AssertionError, match="target"):
        cache.copy_blocks([torch.zeros(3, 1, 1, 8)], pairs)
