"""The Triton kernels on a GPU, bf16 too: `make test-gpu`. Skipped where there is none."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import kernels
from kernels import Backend, RaggedBatch, torch_twins
from kernels.contiguous import contiguous_attention
from tests.kernels.cases import CASES, TOLERANCE, build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LONG = {
    "decodes": {"rows": [(keys, 1) for keys in (1, 17, 500, 2000, 777)]},
    "few long decodes, split": {"rows": [(6000, 1), (20, 1)]},
    "prompts": {"rows": [(700, 700), (65, 65)]},
    "a mixed step": {"rows": [(900, 1), (1500, 256), (3, 1), (128, 128), (40, 2)], "padding": 2},
    "a mixed step with a window": {"rows": [(900, 1), (1500, 256), (128, 128)], "window": 100},
}
HEADS = [(9, 3, 64), (8, 2, 128), (4, 4, 80), (8, 1, 256), (7, 1, 96)]


@pytest.fixture(autouse=True)
def _own_kernels(monkeypatch):
    """Triton by default, whatever the environment asks for; torch.empty gives NaN."""
    monkeypatch.delenv("GLASSPOOL_KERNELS", raising=False)
    assert kernels.backend(torch.device("cuda")) is Backend.TRITON
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def paged(case):
    return kernels.paged_attention(
        case.q, case.k_cache, case.v_cache, case.batch, case.scale, case.window
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_attention_equals_the_reference(name, dtype):
    case = build(**CASES[name], dtype=dtype, unseen=torch.nan, device="cuda")
    case.check(paged(case))
    case.check(contiguous_attention(case.q, *case.strips, case.batch, case.scale, case.window))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", LONG)
def test_attention_equals_its_twin(name, heads, dtype):
    case = build(
        **LONG[name],
        heads=heads[0],
        kv_heads=heads[1],
        head_dim=heads[2],
        dtype=dtype,
        device="cuda",
    )
    out = paged(case)
    case.check(out)
    twin = torch_twins.paged_attention(
        case.q, case.k_cache, case.v_cache, case.batch, case.scale, case.window
    )
    tolerance = 2 * TOLERANCE[dtype]
    torch.testing.assert_close(out, twin, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("block_size", [1, 2, 8, 32, 128])
def test_any_block_size_gives_the_same(block_size):
    case = build(**LONG["a mixed step"], block_size=block_size, dtype=torch.bfloat16, device="cuda")
    case.check(paged(case))


def test_layers_after_the_first_never_wait_for_the_gpu():
    case = build(**LONG["a mixed step"], dtype=torch.bfloat16, device="cuda")
    slots = torch.tensor([3, -1], device="cuda")
    new = torch.zeros(2, *case.k_cache.shape[2:], dtype=torch.bfloat16, device="cuda")

    def layer():
        kernels.write_kv(new, new, case.k_cache, case.v_cache, slots)
        paged(case)

    layer()
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", DTYPES)
def test_writes_equal_the_twin(dtype):
    k = torch.randn(3, 50, 80, device="cuda").to(dtype).transpose(0, 1)
    v = torch.randn(50, 80, 3, device="cuda").to(dtype).transpose(1, 2)
    slots = torch.randperm(160, device="cuda")[:50]
    slots[[0, 7, 49]] = -1
    ours = [torch.full((10, 16, 3, 80), torch.nan, dtype=dtype, device="cuda") for _ in "kv"]
    twins = [cache.clone() for cache in ours]
    kernels.write_kv(k, v, *ours, slots)
    torch_twins.write_kv(k, v, *twins, slots)
    torch.testing.assert_close(ours, twins, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_equal_the_twin(dtype):
    ours = [torch.randn(9, 16, 3, 64, device="cuda").to(dtype) for _ in range(60)]
    twins = [cache.clone() for cache in ours]
    pairs = [(0, 3), (0, 2), (1, 4), (8, 5)]
    kernels.copy_blocks(ours, pairs)
    torch_twins.copy_blocks(twins, pairs)
    assert all(torch.equal(a, b) for a, b in zip(ours, twins, strict=True))


def test_slots_past_the_32_bit_range_are_reached():
    block_elements = 16 * 8 * 128
    num_blocks = 2**31 // block_elements + 8
    if torch.cuda.mem_get_info()[0] < 2.2 * num_blocks * block_elements * 2:
        pytest.skip("this GPU has no room for two caches of 4 GiB")
    k_cache, v_cache = (
        torch.zeros(num_blocks, 16, 8, 128, dtype=torch.bfloat16, device="cuda") for _ in "kv"
    )
    new = torch.randn(1, 8, 128, device="cuda").bfloat16()
    slot = num_blocks * 16 - 16
    kernels.write_kv(new, new, k_cache, v_cache, torch.tensor([slot], device="cuda"))
    batch = RaggedBatch.from_lists([[num_blocks - 1]], [1], [1], "cuda")
    out = kernels.paged_attention(new, k_cache, v_cache, batch, 1.0)
    torch.testing.assert_close(out, new)


def seconds(run: Callable[[], object], repeat: int = 30) -> float:
    """Median time of a call, by the GPU's own clock, after a warm-up."""
    for _ in range(5):
        run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeat)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in events)[repeat // 2] / 1000


def test_decode_bandwidth(capsys):
    """Batch 64, context 2048, 32 heads on 8 of 128 in bf16. Prints; fails if results differ."""
    torch.use_deterministic_algorithms(False)
    batch_size, context, block_size, heads, kv_heads, dim = 64, 2048, 16, 32, 8, 128
    blocks = context // block_size
    num_blocks = batch_size * blocks
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    k_cache, v_cache = (torch.randn(num_blocks, block_size, kv_heads, dim, **options) for _ in "kv")
    q = torch.randn(batch_size, heads, dim, **options)
    tables = torch.randperm(num_blocks).view(batch_size, blocks).tolist()
    batch = RaggedBatch.from_lists(tables, [context] * batch_size, [1] * batch_size, "cuda")
    k, v = (
        cache[batch.block_tables].view(batch_size, context, kv_heads, dim)
        for cache in (k_cache, v_cache)
    )
    scale = dim**-0.5

    def sdpa():
        return scaled_dot_product_attention(
            q[:, :, None], k.transpose(1, 2), v.transpose(1, 2), scale=scale, enable_gqa=True
        )[:, :, 0]

    ours = kernels.paged_attention(q, k_cache, v_cache, batch, scale)
    torch.testing.assert_close(ours, sdpa(), atol=1.6e-2, rtol=1.6e-2)
    paged_s = seconds(lambda: kernels.paged_attention(q, k_cache, v_cache, batch, scale))
    strips_s = seconds(lambda: contiguous_attention(q, k, v, batch, scale))
    sdpa_s = seconds(sdpa)
    target = torch.empty_like(k_cache)
    copy_s = seconds(lambda: target.copy_(k_cache))
    size = k_cache.numel() * k_cache.itemsize
    achieved, possible = 2 * size / paged_s, 2 * size / copy_s
    with capsys.disabled():
        print(
            f"\n{torch.cuda.get_device_name()}: decode of {batch_size} x {context} keys in bf16\n"
            f"  paged {paged_s * 1e6:.0f} us, {achieved / 1e9:.0f} GB/s = "
            f"{achieved / possible:.0%} of a copy's {possible / 1e9:.0f} GB/s\n"
            f"  against torch SDPA on contiguous keys: {paged_s / sdpa_s:.2f} of its time\n"
            f"  against this kernel on contiguous keys: {paged_s / strips_s:.2f} of its time"
        )
