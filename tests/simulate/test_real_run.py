"""Where timing plays no part, a simulated run and a real one of the same lengths are one run."""

import pytest

pytest.importorskip("torch")

from engine.core.runner import StepCost
from engine.core.sequence import Request
from engine.events.records import CopyOnWrite, FinishReason, Fork, Preempt, SequenceFinished, Share
from engine.simulate.asked import Asked, asked
from engine.simulate.recorded import read_recorded, recorded_config
from engine.simulate.runs import Scene, run_one
from engine.simulate.settings import Variation
from engine.simulate.simulation import Simulation
from engine.workloads.request import WorkloadRequest
from tests.simulate.events_of import comparable, steps_of_trace
from tests.simulate.real import CONFIG, asked_of_the_model, real_run

COST = StepCost(1.0, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def real(tiny_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("real") / "real.jsonl.zst"
    return (*real_run(tiny_model, asked_of_the_model(), path), path)


def test_the_real_run_has_what_could_differ(real):
    events = [event for step in real[0] for event in step.events]
    kinds = {type(event) for event in events}
    assert {CopyOnWrite, Fork, Preempt} <= kinds
    assert any(isinstance(event, Share) and event.why == "prefix" for event in events)
    reasons = {event.reason for event in events if isinstance(event, SequenceFinished)}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}


def test_a_simulation_of_the_same_prompts_and_lengths_has_the_same_events(real):
    steps, requests, _ = real
    told = []
    simulation = Simulation(CONFIG, COST, on_record=told.append)
    simulation.run(
        Asked(
            request.request_id,
            0.0,
            request.prompt,
            tuple(sequence.output for sequence in request.sequences),
            request.params.max_tokens,
            n=request.params.n,
        )
        for request in requests
    )
    assert comparable(told) == comparable(steps)


def test_a_workload_that_knows_lengths_only_has_the_same_events(tiny_model):
    """Random outputs in place of the model's: completions that differ take, copy and drop the same."""
    # Greedy completions of one request are equal, and random ones are not.
    distinct = [
        (prompt, params)
        for prompt, params in asked_of_the_model()
        if params.n == 1 or params.temperature
    ]
    steps, requests = real_run(tiny_model, distinct)
    system = distinct[0][0][:8]
    told = []
    simulation = Simulation(CONFIG, COST, on_record=told.append)
    simulation.run(asked((_as_workload(request, system) for request in requests), seed=0))
    assert any(isinstance(event, Preempt) for step in told for event in step.events)
    assert comparable(told) == comparable(steps)


def _as_workload(request: Request, system: list[int]) -> WorkloadRequest:
    """Lengths, and that its first two blocks of four are the system prompt's, where they are."""
    shared = request.prompt[:8] == system
    lengths = tuple(sequence.num_output for sequence in request.sequences)
    return WorkloadRequest(
        0.0,
        len(request.prompt),
        max(lengths),
        n=request.params.n,
        outputs=lengths,
        max_tokens=request.params.max_tokens,
        prefix_ids=(0,) if shared else (),
        prefix_block_tokens=8 if shared else 0,
    )


def test_what_if_under_the_recorded_configuration_is_the_recorded_run(real, tmp_path):
    steps, _, path = real
    recorded = read_recorded(path)
    scene = Scene(
        recorded, recorded_config(recorded.header, {}), COST, recorded.shape, recorded.anchor
    )
    again = tmp_path / "again.jsonl.zst"
    run_one(scene, Variation({}), again)
    assert comparable(steps_of_trace(again)) == comparable(steps)
