"""The cost of a step, fitted to a recorded run."""

import random
from pathlib import Path

import msgspec
import pytest

from engine.core.config import ConfigError
from engine.core.runner import StepCost
from engine.events import TraceReader, TraceWriter, encode
from engine.simulate.cost import parse_cost
from engine.simulate.fit import fit_samples, fit_trace
from engine.simulate.runs import run_one
from tests.simulate.test_simulation import BASE, COST, busy, scene


def rewritten(source: Path, target: Path, change=lambda step: step, header=None) -> Path:
    """A copy of a trace, each step changed."""
    with TraceReader(source) as reader:
        records = list(reader)
        writer = TraceWriter(target, header or reader.header, records[0])
    for record in records[1:]:
        writer.write(encode(change(record) if hasattr(record, "durations") else record))
    writer.close()
    return target


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "run.jsonl.zst"
    rounds = [
        msgspec.structs.replace(request, arrival=request.arrival + 1000.0 * number)
        for number in range(8)
        for request in busy()
    ]
    run_one(scene(rounds), BASE, path)
    return path


def test_the_cost_of_a_simulated_run_is_found_again(trace):
    fit = fit_trace(trace)
    for name, value in msgspec.structs.asdict(COST).items():
        assert getattr(fit.cost, name) == pytest.approx(value, rel=1e-6), name
    assert fit.r2 == pytest.approx(1)
    assert fit.median_error < 1e-9
    assert fit.left_out == 0


def test_noise_and_a_stall_move_the_cost_a_little_and_are_told(trace, tmp_path):
    draw = random.Random(0)

    def noisy(step):
        factor = 20 if step.seq == 3 else draw.uniform(0.9, 1.1)
        durations = msgspec.structs.replace(step.durations, model=step.durations.model * factor)
        return msgspec.structs.replace(step, durations=durations)

    fit = fit_trace(rewritten(trace, tmp_path / "noisy.jsonl.zst", noisy))
    assert fit.left_out == 1
    assert 0.02 < fit.median_error < 0.08
    assert fit.r2 < 0.999
    # The clock did not wait for the stall, so steps overlap: nothing lies between them.
    assert fit.between == 0
    assert fit.cost.step == pytest.approx(0.5, rel=0.1)


def test_time_between_steps_is_a_part_of_the_fixed_cost(trace, tmp_path):
    def later(step):
        return msgspec.structs.replace(step, time=step.time + 0.1 * step.seq)

    fit = fit_trace(rewritten(trace, tmp_path / "later.jsonl.zst", later))
    assert fit.between == pytest.approx(0.1)
    assert fit.cost.step == pytest.approx(0.6)


def test_no_part_of_a_cost_is_negative():
    # Rows of one made steps shorter here: without the bound their weight would be below 0.
    samples = [(0, decode, 0, 1.0 - 0.01 * decode) for decode in range(1, 40)]
    cost = fit_samples(samples).cost
    assert min(msgspec.structs.astuple(cost)) >= 0
    assert cost.decode == 0
    assert cost.step == pytest.approx(0.8, rel=0.01)


def test_too_few_steps_and_a_producer_without_durations_are_refused(trace, tmp_path):
    short = tmp_path / "short.jsonl.zst"
    run_one(scene(busy()[-1:]), BASE, short)
    with pytest.raises(ConfigError, match="3 steps that ran a model, too few"):
        fit_trace(short)
    with TraceReader(trace) as reader:
        header = msgspec.structs.replace(reader.header, knows=["physical_blocks"])
    blind = rewritten(trace, tmp_path / "blind.jsonl.zst", header=header)
    with pytest.raises(ConfigError, match="does not know how long steps took"):
        fit_trace(blind)


def test_steps_that_took_no_time_give_no_cost():
    with pytest.raises(ConfigError, match="took no time"):
        fit_samples([(1, 2, 3, 0.0)] * 30)


def test_a_cost_is_read_by_name_or_in_seconds():
    assert parse_cost("cpu") == StepCost()
    assert parse_cost("step=0.01, key=2e-8") == StepCost(0.01, 0, 0, 2e-8)


@pytest.mark.parametrize("text", ["tpu", "step", "step=x", "step=-1", "pages=1", "step=inf", ""])
def test_a_cost_that_means_nothing_is_refused_with_the_remedy(text):
    with pytest.raises(ConfigError, match="write seconds like step="):
        parse_cost(text)


def test_a_cost_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="stand still"):
        parse_cost("step=0")
