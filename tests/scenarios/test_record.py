"""A scenario records the same block events every time: the committed trace is what the command makes."""

import subprocess
import sys

import pytest

from engine.events import TraceReader
from engine.events.records import Cache, Evict, RequestAdded, RequestFinished, Sampled, Step
from engine.scenarios.record import record
from engine.scenarios.runs import SCENARIOS
from engine.scenarios.scenario import Ask, Scenario
from engine.service.model_parts import model_parts
from engine.service.parts import model_free_parts
from engine.service.settings import ServeSettings
from tests.demo_data import FOLDER


def memory_events(path):
    """(step, event) of all that concerns memory. Times, salted hashes and text differ by the day."""
    apart = (Cache, Evict, RequestAdded, RequestFinished, Sampled)
    with TraceReader(path) as trace:
        return [
            (step.step, event)
            for step in trace
            if isinstance(step, Step)
            for event in step.events
            if not isinstance(event, apart)
        ]


def arrivals(path):
    """(step, event) of each request that came."""
    with TraceReader(path) as trace:
        return [
            (step.step, event)
            for step in trace
            if isinstance(step, Step)
            for event in step.events
            if isinstance(event, RequestAdded)
        ]


def test_the_committed_run_is_what_the_command_records(tmp_path):
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "block-table")
    settings = ServeSettings(model="SmolLM2-135M-Instruct", record_text=True)
    path = record(scenario, settings, model_parts(settings), tmp_path, lambda step: None)
    assert memory_events(path) == memory_events(FOLDER / scenario.file_name)


@pytest.fixture
def model_free():
    return ServeSettings(model="none", num_gpu_blocks_override=64), model_free_parts()


def test_requests_come_before_their_step_or_when_all_is_idle(tmp_path, model_free):
    asks = (Ask("a", 4), Ask("b", 4, at=2), Ask("c", 4, at=100))
    path = record(Scenario("three", "", asks), *model_free, tmp_path, lambda step: None)
    assert [step for step, _ in arrivals(path)] == [0, 2, 6]


def test_a_turn_that_follows_another_begins_with_its_prompt_and_answer(tmp_path, model_free):
    asks = (Ask("a", 40), Ask("b", 4, follows=0))
    path = record(Scenario("turns", "", asks), *model_free, tmp_path, lambda step: None)
    prompts = [event.prompt_tokens for _, event in arrivals(path)]
    assert prompts[1] == prompts[0] + 40 + len(asks[1].prompt)


def test_an_unknown_scenario_is_refused_with_the_known_ones():
    argv = [sys.executable, "-m", "engine.scenarios", "block-tabel"]
    found = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("demo-data: block-tabel is no scenario: choose from block-table")
    assert found.stderr.count("\n") == 1
