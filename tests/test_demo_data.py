"""The recorded runs in demo_data/ are real, whole, and contain what they are said to contain."""

from collections import Counter

import pytest

from engine.events import TraceReader, check_trace
from engine.events.records import (
    Allocate,
    AllocationFailed,
    CopyOnWrite,
    Evict,
    LookupStop,
    Preempt,
    PrefixLookup,
    Share,
    ShareWhy,
    Step,
)
from engine.scenarios.readme import readme
from engine.scenarios.runs import SCENARIOS
from tests.demo_data import FOLDER, OVERVIEW, TRACES


def read(name):
    """The folded end of a run, its steps and its events."""
    with TraceReader(FOLDER / f"{name}.jsonl.zst") as trace:
        steps = []
        for record, state in trace.fold():
            if isinstance(record, Step):
                steps.append((record, state.active_blocks))
    return state, steps, [event for record, _ in steps for event in record.events]


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def test_there_is_a_run_for_each_scenario_and_no_other():
    assert {path.name for path in TRACES} == {
        OVERVIEW.name,
        *(scenario.file_name for scenario in SCENARIOS),
    }


def test_the_readme_says_what_the_scenarios_say():
    assert (FOLDER / "README.md").read_text() == readme(SCENARIOS), "run make demo-data"


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_run_keeps_all_rules_and_is_small(path):
    report = check_trace(path)
    assert report.fault is None
    assert report.missing is None
    assert path.stat().st_size < 400_000


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_run_is_one_of_the_default_model_with_its_text(path):
    with TraceReader(path) as trace:
        assert trace.header.model == "SmolLM2-135M-Instruct"
        assert "text" not in trace.header.redacted


def test_the_overview_has_a_little_of_everything():
    state, _, events = read("smollm2-96-blocks")
    assert state.header.num_blocks == 96
    totals = state.totals
    assert totals.allocated_free > 96
    assert totals.allocated_evicted > 0
    assert totals.prefix_hit_tokens > 0
    assert totals.recompute_tokens > 0
    assert totals.scheduled_resumed > 0
    kinds = {type(event).__name__ for event in events}
    expected = {"Allocate", "Share", "CopyOnWrite", "Preempt", "Fork", "Sampled", "Cache", "Evict"}
    assert expected <= kinds


def test_block_table_tables_are_scattered():
    _, _, events = read("block-table")
    table = [event.block for event in of(Allocate, events) if event.sequence == 0]
    assert table != sorted(range(table[0], table[0] + len(table)))
    assert [event.index for event in of(Allocate, events) if event.sequence == 0] == [0, 1, 2, 3, 4]


def test_parallel_sampling_stores_the_prompt_once():
    _, together, events = read("parallel-sampling")
    _, apart, _ = read("four-requests")
    peak, peak_apart = (max(active for _, active in steps) for steps in (together, apart))
    assert peak < peak_apart / 1.5
    # Once per owner but the last.
    assert len(of(CopyOnWrite, events)) == 3


def test_beam_search_prunes():
    state, _, events = read("beam-search")
    assert of(CopyOnWrite, events)
    assert Counter(e.reason for e in events if type(e).__name__ == "SequenceFinished")["pruned"] > 5
    assert state.active_blocks == 0


def test_prefix_cache_hits_misses_and_keeps_the_last_token():
    _, _, events = read("prefix-cache")
    lookups = of(PrefixLookup, events)
    assert [lookup.hit for lookup in lookups] == [0, 128, 128, 0, 128, 0]
    assert [lookup.why for lookup in lookups][3:] == [
        LookupStop.MISS,
        LookupStop.LAST_TOKEN_KEPT,
        LookupStop.SHORTER_THAN_BLOCK,
    ]


def test_eviction_order_takes_tails_before_heads():
    _, _, events = read("eviction-order")
    table = {e.index: e.block for e in of(Allocate, events) if e.sequence == 0}
    index = {block: position for position, block in table.items()}
    first = of(Evict, events)[:3]
    assert [index[event.block] for event in first] == [3, 2, 1]
    old, recent = of(PrefixLookup, events)[-2:]
    assert recent.hit == 48
    assert old.hit == 16


def test_pool_runs_dry_and_with_more_blocks_it_does_not():
    dry, _, events = read("pool-runs-dry")
    ample, _, ample_events = read("pool-ample")
    assert of(AllocationFailed, events)
    assert of(Preempt, events)
    assert dry.totals.recompute_tokens > 0
    assert not of(Preempt, ample_events)
    assert not of(AllocationFailed, ample_events)
    assert dry.totals.decode_tokens + dry.totals.prefill_tokens == (
        ample.totals.decode_tokens + ample.totals.prefill_tokens
    )


def test_the_dozen_runs_all_at_once_in_blocks_and_by_fours_in_reservations():
    running = {
        name: max(record.queues.running for record, _ in read(name)[1])
        for name in ("naive-reservation", "block-4", "block-16", "block-128")
    }
    assert running["naive-reservation"] == 4
    assert running["block-4"] == running["block-16"] == 12


def test_a_long_prompt_comes_in_chunks_and_makes_others_wait():
    _, steps, events = read("long-context")
    assert max(event.tokens for event in events if type(event).__name__ == "Computed") == 256
    assert any(record.queues.waiting > 0 for record, _ in steps)
    assert max(active for _, active in steps) > 90


def test_each_turn_of_a_conversation_finds_more():
    _, _, events = read("multi-turn")
    hits = [lookup.hit for lookup in of(PrefixLookup, events)]
    assert hits == sorted(set(hits))
    assert len(of(Share, events)) == sum(hits) // 16
    assert {share.why for share in of(Share, events)} == {ShareWhy.PREFIX}
