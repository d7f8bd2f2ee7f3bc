"""The recorded runs in demo_data/ are real, whole, and contain what they are said to contain."""

import pytest

from engine.events import PoolState, TraceReader, check_state, check_step
from engine.events.records import Keyframe, Step
from tests.demo_data import TRACES


def test_there_is_a_recorded_run():
    assert TRACES


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_record_folds_and_passes_all_checks(path):
    with TraceReader(path) as reader:
        state = PoolState(reader.header)
        for record in reader:
            if isinstance(record, Keyframe) and state.complete:
                assert record.totals == state.totals
            state.apply(record)
            assert check_state(state) == []
            if isinstance(record, Step):
                assert check_step(state, record) == []
    assert reader.cut_off is None
    assert path.stat().st_size < 400_000
    totals = state.totals
    assert totals.allocated_free > 96
    assert totals.allocated_evicted > 0
    assert totals.prefix_hit_tokens > 0
    assert totals.cow_copies > 0
    assert sum(totals.preemptions.values()) > 0
    assert totals.recompute_tokens > 0
    assert totals.scheduled_resumed > 0


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_the_run_is_one_of_the_demos_model_with_its_text(path):
    with TraceReader(path) as reader:
        assert reader.header.model == "SmolLM2-135M-Instruct"
        assert reader.header.num_blocks == 96
        assert "text" not in reader.header.redacted
        kinds = {type(e).__name__ for r in reader if isinstance(r, Step) for e in r.events}
    assert {
        "Allocate",
        "Share",
        "CopyOnWrite",
        "Preempt",
        "Fork",
        "Sampled",
        "Cache",
        "Evict",
    } <= kinds
