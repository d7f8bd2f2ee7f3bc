"""The exact figures of paged memory on one set of lengths, each from slots that are really taken."""

import random

import pytest

from engine.core.block_pool import BlockPool
from engine.core.block_table import BlockTables
from engine.lab import (
    SHAPES,
    Kind,
    KvShape,
    LabSettings,
    block_size_sweep,
    default_sample,
    make_allocator,
    static_usage,
)


@pytest.fixture(scope="module")
def lengths() -> list[int]:
    random.seed(0)
    return [min(4096, int(random.lognormvariate(5.5, 0.9))) for _ in range(2_000)]


def usage(kind: Kind, lengths: list[int], **settings):
    (found,) = static_usage(lengths, LabSettings(**settings), [kind])
    return found


def percent(share: float) -> float:
    return round(100 * share, 1)


def test_the_default_sample_is_these_lengths(lengths):
    assert default_sample().totals == lengths
    assert sum(lengths) == 730_840


def test_naive_uses_nine_percent_and_paging_ninety_eight(lengths):
    naive = usage(Kind.NAIVE, lengths)
    assert (naive.stored, naive.taken, percent(naive.utilisation)) == (730_840, 8_192_000, 8.9)
    paged = usage(Kind.PAGED, lengths)
    assert (paged.stored, paged.taken, percent(paged.utilisation)) == (730_840, 745_632, 98.0)
    assert round(paged.wasted_per_sequence, 1) == 7.4
    assert paged.table_entries == 745_632 // 16


def test_a_longer_max_model_len_hurts_naive_and_leaves_paging_as_it_was(lengths):
    assert percent(usage(Kind.NAIVE, lengths, max_model_len=32_768).utilisation) == 1.1
    assert percent(usage(Kind.PAGED, lengths, max_model_len=32_768).utilisation) == 98.0


def test_block_sizes_trade_utilisation_for_table_entries(lengths):
    points = block_size_sweep(lengths, LabSettings())
    assert {point.block_size: percent(point.usage.utilisation) for point in points} == {
        1: 100.0,
        8: 99.0,
        16: 98.0,
        32: 96.0,
        128: 85.3,
    }
    entries = [point.usage.table_entries for point in points]
    assert entries == [730_840, 92_240, 46_602, 23_798, 6_695]
    assert {point.usage.sequences for point in points} == {2_000}
    assert {point.usage.stored for point in points} == {730_840}


def test_a_sweep_in_groups_is_the_same_as_all_at_once(lengths):
    some = lengths[:700]
    assert sum(some) > 200_000, "more than two groups"
    (point,) = block_size_sweep(some, LabSettings(), [16])
    assert point.usage == usage(Kind.PAGED, some)


@pytest.mark.parametrize(
    ("length", "wasted", "blocks", "share"),
    [(100, 12, 7, 10.7), (500, 12, 32, 2.3), (2000, 0, 125, 0)],
)
def test_only_the_last_block_has_waste(length, wasted, blocks, share):
    one = usage(Kind.PAGED, [length])
    assert (one.wasted, one.table_entries) == (wasted, blocks)
    assert percent(one.wasted / one.taken) == share


def test_the_others_take_what_their_rule_says():
    lengths = [1, 100, 128, 1025]
    assert usage(Kind.EXACT, lengths).taken == 1 + 100 + 128 + 1025
    assert usage(Kind.BUDDY, lengths).taken == 1 + 128 + 128 + 2048
    mapped = usage(Kind.MAPPED, lengths, shape=SHAPES["Llama-3.1-8B"])
    assert mapped.taken == (1 + 1 + 1 + 2) * 1024
    assert mapped.table_entries == 5 * 2 * 32


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("Llama-3.1-8B", 1024), ("Qwen2.5-7B", 2048), ("Qwen2.5-0.5B", 8192), ("SmolLM2-135M", 5461)],
)
def test_a_page_of_two_mib_holds_what_the_models_shape_leaves(model, tokens):
    """The first two have the KV heads of the models of arXiv 2405.04437 on one GPU."""
    assert SHAPES[model].tokens_per_page == tokens


def test_the_element_size_changes_the_page_and_layers_do_not():
    assert KvShape(8, 128, 32, itemsize=1).tokens_per_page == 2048
    assert KvShape(8, 128, 80).tokens_per_page == 1024
    assert KvShape(8, 128, 80).pages_at_a_time == 160


def test_the_paged_allocator_is_the_engines_block_manager():
    paged = make_allocator(Kind.PAGED, 160, LabSettings())
    assert type(paged.pool) is BlockPool
    assert type(paged.tables) is BlockTables
    assert paged.admit(0, 33, 33)
    assert [paged.pool.ref_count[block] for block in (0, 1, 2, 3)] == [1, 1, 1, 0]
    assert paged.pool.num_available == 7
    paged.release(0)
    assert paged.pool.num_available == 10


def test_the_labs_figures_are_wrong_when_the_cores_tables_are(lengths, monkeypatch):
    right = usage(Kind.PAGED, lengths[:50])
    entries = BlockTables._entries
    monkeypatch.setattr(BlockTables, "_entries", lambda self, tokens: 1 + entries(self, tokens))
    wrong = usage(Kind.PAGED, lengths[:50])
    assert wrong.table_entries == right.table_entries + 50
    assert wrong.taken == right.taken + 50 * 16


def test_the_labs_blocks_are_those_that_the_cores_pool_hands_out(monkeypatch):
    paged = make_allocator(Kind.PAGED, 64, LabSettings())
    handed = []
    take = BlockPool.take

    def spied(pool):
        block, evicted = take(pool)
        handed.append(block)
        return block, evicted

    monkeypatch.setattr(BlockPool, "take", spied)
    assert paged.admit(7, 40, 40)
    assert [extent.start // 16 for extent in paged.extents(7)] == handed
    assert len(handed) == 3
