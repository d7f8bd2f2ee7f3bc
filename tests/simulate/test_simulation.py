"""A simulated run: the engine's own events, on a clock that the cost alone moves."""

import gc
import itertools
from pathlib import Path

import pytest

from engine.core.config import EngineConfig
from engine.core.runner import StepCost
from engine.core.sequence import Request, Sequence
from engine.events import TraceReader, check_trace, measure_trace
from engine.events.records import (
    CopyOnWrite,
    Preempt,
    PrefixLookup,
    RequestAdded,
    RequestFinished,
    SequenceFinished,
)
from engine.simulate.asked import STOP, Asked, asked
from engine.simulate.recording import Shape
from engine.simulate.runs import Scene, run_one
from engine.simulate.settings import Variation
from engine.simulate.simulation import Simulation
from engine.simulate.source import Workload
from engine.workloads.request import WorkloadRequest
from tests.simulate.events_of import steps_of_trace

BASE = Variation({})
COST = StepCost(step=0.5, prefill=0.01, decode=0.02, key=0.001)


def config(**changes) -> EngineConfig:
    sizes = {
        "block_size": 4,
        "num_blocks": 17,
        "max_model_len": 64,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 32,
    }
    return EngineConfig(**{**sizes, **changes})


def busy() -> list[WorkloadRequest]:
    """Shared beginnings, n = 2, beams, more than the pool holds at once, and a pause."""
    shared = {"prefix_ids": (1, 2), "prefix_block_tokens": 4}
    return [
        WorkloadRequest(0.0, 9, 20, **shared),
        WorkloadRequest(0.0, 10, 18, **shared, n=2, outputs=(18, 7), max_tokens=30),
        WorkloadRequest(0.3, 21, 16),
        WorkloadRequest(0.4, 13, 12, **shared),
        WorkloadRequest(0.5, 6, 5, n=2, use_beam_search=True),
        WorkloadRequest(500.0, 9, 3, **shared),
    ]


def scene(requests: list[WorkloadRequest], cost: StepCost = COST, **changes) -> Scene:
    return Scene(Workload("test", requests, seed=3), config(**changes), cost, Shape("test"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "run.jsonl.zst"
    run_one(scene(busy()), BASE, path)
    return path


def events(trace: Path, kind: type) -> list:
    return [e for step in steps_of_trace(trace) for e in step.events if isinstance(e, kind)]


def test_a_simulated_trace_keeps_every_rule_and_says_that_it_is_simulated(trace):
    report = check_trace(trace)
    assert report.fault is None
    assert not report.unchecked
    with TraceReader(trace) as reader:
        assert reader.header.simulated


def test_the_run_has_what_paging_is_about(trace):
    assert events(trace, CopyOnWrite)
    assert events(trace, Preempt)
    assert any(lookup.hit for lookup in events(trace, PrefixLookup))


def test_the_same_inputs_give_the_same_bytes_and_another_seed_others(trace, tmp_path):
    again, other = tmp_path / "again.jsonl.zst", tmp_path / "other.jsonl.zst"
    run_one(scene(busy()), BASE, again)
    assert again.read_bytes() == trace.read_bytes()
    run_one(Scene(Workload("test", busy(), seed=4), config(), COST, Shape("test")), BASE, other)
    assert other.read_bytes() != trace.read_bytes()


def test_a_run_needs_no_garbage_collector_and_leaves_no_request_behind():
    def objects() -> int:
        return sum(type(o) in (Sequence, Request) for o in gc.get_objects())

    gc.collect()
    before, collecting = objects(), []
    try:
        gc.disable()
        run_one(scene(busy()), BASE, progress=lambda now: collecting.append(gc.isenabled()))
        assert objects() == before
        assert not gc.isenabled()
    finally:
        gc.enable()
    run_one(
        scene([WorkloadRequest(0.0, 9, 600)], max_model_len=700, num_blocks=200),
        BASE,
        progress=lambda now: collecting.append(gc.isenabled()),
    )
    assert gc.isenabled()
    assert collecting
    assert not any(collecting)


def test_every_completion_has_exactly_its_length_and_ends_for_the_right_reason(trace):
    added = {event.request: event for event in events(trace, RequestAdded)}
    assert added["r1"].max_tokens == 30, "admission sees what the client allowed"
    ended = {}
    family = {event.sequence: event.request for event in events(trace, RequestAdded)}
    for step in steps_of_trace(trace):
        for event in step.events:
            if event.__class__.__name__ == "Fork":
                family[event.child] = family[event.parent]
            if isinstance(event, SequenceFinished):
                ended.setdefault(family[event.sequence], []).append(
                    (event.output_tokens, str(event.reason))
                )
    assert ended["r0"] == [(20, "length")]
    assert sorted(ended["r1"]) == [(7, "stop"), (18, "stop")]
    assert ended["r2"] == [(16, "length")]


def test_a_step_takes_what_its_cost_says(trace):
    first = steps_of_trace(trace)[0]
    # Both requests of second 0 are computed whole: 19 tokens in two rows.
    assert first.durations.model == pytest.approx(0.5 + 19 * 0.01 + 19 * 0.001)
    assert (first.durations.schedule, first.durations.sample) == (0, 0)


def test_idle_time_is_jumped_over_and_busy_time_is_not(trace):
    steps = steps_of_trace(trace)
    starts = [step.time for step in steps]
    assert 500.0 in starts
    between = [
        late.time - (early.time + early.durations.model)
        for early, late in itertools.pairwise(steps)
        if early.queues.running + early.queues.waiting + early.queues.preempted
    ]
    assert between
    assert max(between) == pytest.approx(0)


def test_a_request_enters_at_the_first_step_at_or_after_its_arrival(trace):
    steps = steps_of_trace(trace)
    for number, step in enumerate(steps):
        for event in step.events:
            if isinstance(event, RequestAdded):
                assert event.arrived <= step.time
                assert number == 0 or event.arrived > steps[number - 1].time


def test_what_never_fits_is_counted_and_told_at_its_time(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    requests = [
        WorkloadRequest(0.0, 60, 30),
        WorkloadRequest(50.0, 4, 2),
        WorkloadRequest(90.0, 4, 2, n=9),
    ]
    outcome = run_one(scene(requests), BASE, path)
    assert outcome.refusals == {"prompt_too_long": 1, "too_many_sequences": 1}
    assert outcome.figures.refused == 2
    assert outcome.figures.finished == 1
    assert "max_model_len 64" in outcome.first_refusal
    assert check_trace(path).fault is None
    assert steps_of_trace(path)[0].time == 0.0


def test_a_malformed_request_is_refused_without_an_end_of_the_run():
    simulation = Simulation(config(), COST)
    simulation.run([Asked("empty", 0.0, [], ([1],), 1), Asked("good", 0.0, [1, 2], ([1],), 1)])
    assert simulation.refused == {"malformed": 1}
    assert simulation.engine.tally.totals.requests_finished == {"length": 1}


def test_priorities_order_requests_only_where_the_policy_asks_for_them():
    requests = [
        WorkloadRequest(0.0, 8, 4, priority=5),
        WorkloadRequest(0.0, 8, 4, priority=1),
    ]

    def first(policy: str) -> str:
        from engine.core.config import Policy

        finished = []
        simulation = Simulation(config(policy=Policy(policy), max_num_seqs=1), COST)
        simulation.engine.on_record = lambda record: finished.extend(
            event.request for event in record.events if isinstance(event, RequestFinished)
        )
        simulation.run(asked(requests, 0))
        return finished[0]

    assert first("fcfs") == "r0"
    assert first("priority") == "r1"


def test_the_figures_are_those_that_the_trace_gives(trace):
    figures, stats = run_one(scene(busy()), BASE).figures, measure_trace(trace)
    assert stats.simulated
    assert figures.seconds == pytest.approx(stats.seconds)
    assert figures.steps == stats.steps
    assert figures.output_tokens == stats.output_tokens
    assert figures.preemptions == sum(stats.totals.preemptions.values()) > 0
    assert figures.utilisation_mean == pytest.approx(stats.utilisation.mean_by_time)
    assert figures.utilisation_peak == pytest.approx(stats.utilisation.max)
    assert figures.recompute_share == pytest.approx(stats.recompute_tax)
    assert figures.prefix_hit_rate == pytest.approx(stats.prefix_hit_rate)
    for ours, theirs in (
        (figures.first_token_seconds, stats.first_token_seconds),
        (figures.inter_token_seconds, stats.inter_token_seconds),
        (figures.request_seconds, stats.request_seconds),
    ):
        assert ours.p50 == pytest.approx(theirs.p50, rel=0.01)


def test_the_stop_token_is_in_no_prompt():
    prompts = [token for request in asked(busy(), 0) for token in request.prompt]
    assert prompts
    assert STOP not in prompts


def test_scale_rate_brings_the_same_requests_sooner():
    source = Workload("test", busy(), seed=3)
    once, twice = list(source.requests()), list(source.requests(scale_rate=2.0))
    assert [r.arrival for r in twice] == [r.arrival / 2 for r in once]
    assert [r.prompt for r in twice] == [r.prompt for r in once]
