"""From bytes to blocks to sequences: the figures that everybody can check with a pencil."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.config import ConfigError
from engine.core.memory_size import parse_bytes
from engine.lab.capacity import GpuBudget, Sizing, blocks_of
from engine.lab.model_shapes import model_shape


def qwen(memory: str) -> Sizing:
    """Qwen2.5-0.5B in 16 bit, blocks of 16."""
    shape = model_shape("Qwen2.5-0.5B")
    return Sizing(shape.bytes_per_token("bfloat16"), 16, parse_bytes(memory))


def test_qwen_half_b_takes_12_288_bytes_a_token_and_196_608_a_block():
    sizing = qwen("12.4GB")
    assert (sizing.bytes_per_token, sizing.bytes_per_block) == (12_288, 196_608)


def test_12_4_gb_hold_246_sequences_of_4096_tokens():
    sizing = qwen("12.4GB")
    assert sizing.num_blocks == 63_069
    assert sizing.tokens == 1_009_104
    row = sizing.row(4096)
    assert (row.blocks, row.wasted_slots, row.sequences) == (256, 0, 246)


def test_a_request_of_100k_tokens_takes_6250_blocks():
    row = qwen("12.4GB").row(100_000)
    assert (row.blocks, row.wasted_slots, row.sequences) == (6250, 0, 10)


def test_the_seventeenth_token_takes_a_second_block():
    rows = qwen("1MB").rows([1, 16, 17])
    assert [(row.blocks, row.wasted_slots) for row in rows] == [(1, 15), (1, 0), (2, 15)]


def test_the_memory_of_one_block_is_enough_and_a_byte_less_is_not():
    assert Sizing(12_288, 16, 196_608).num_blocks == 1
    with pytest.raises(ConfigError, match="196,607 bytes hold no block: one takes 196,608"):
        Sizing(12_288, 16, 196_607)


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 256), st.integers(1, 2**40), st.integers(1, 200_000))
def test_what_is_said_to_fit_fits_and_one_more_does_not(per_token, block_size, extra, length):
    sizing = Sizing(per_token, block_size, per_token * block_size + extra)
    row = sizing.row(length)
    used = row.sequences * row.blocks * sizing.bytes_per_block
    assert used <= sizing.memory < used + row.blocks * sizing.bytes_per_block
    assert 0 <= row.wasted_slots < block_size
    assert row.blocks * block_size == length + row.wasted_slots


def test_a_gpu_leaves_what_weights_and_overhead_do_not_take():
    budget = GpuBudget(24 * 2**30, 0.9, weights=16 * 10**9, overhead=2**30)
    assert budget.usable == int(24 * 2**30 * 0.9)
    assert budget.kv_memory == budget.usable - 16 * 10**9 - 2**30


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sizing(0, 16, 100), "bytes_per_token is 0"),
        (lambda: Sizing(1, 0, 100), "block_size is 0"),
        (lambda: blocks_of(0, 16), "a length of 0 tokens"),
        (lambda: GpuBudget(10**9, 1.1, 1), "gpu_memory_utilization is 1.1"),
        (lambda: GpuBudget(10**9, 0.0, 1), "gpu_memory_utilization is 0"),
        (lambda: GpuBudget(10**9, 0.5, 4 * 10**8, 10**8), "nothing is left for the KV cache"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(make, words):
    with pytest.raises(ConfigError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
