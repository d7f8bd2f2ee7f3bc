"""The figures of a trace, against what a count by hand over its records gives."""

import itertools
import math

import msgspec
import pytest

from engine.events import TraceReader, measure_trace
from engine.events.records import (
    Computed,
    Fork,
    Gap,
    PrefixLookup,
    RequestAdded,
    RequestFinished,
    SequenceFinished,
    Step,
)
from engine.events.summaries import Percentiles, Values
from tests.demo_data import TRACES
from tests.events.traces import busy_run, steps_of, write_trace

RUN = busy_run()


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write_trace(tmp_path_factory.mktemp("stats") / "run.jsonl.zst", *RUN)


@pytest.fixture(scope="module")
def stats(trace):
    return measure_trace(trace)


def states(path):
    with TraceReader(path) as reader:
        yield from reader.fold()


def near(value, tolerance=0.006):
    return pytest.approx(value, rel=tolerance)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_counters_are_those_of_the_fold(path):
    *_, (_, state) = states(path)
    stats = measure_trace(path)
    assert stats.totals == state.totals
    totals = stats.totals
    computed = totals.prefill_tokens + totals.decode_tokens + totals.recompute_tokens
    assert stats.recompute_tax == totals.recompute_tokens / computed
    assert stats.prefix_hit_rate == totals.prefix_hit_tokens / totals.prefix_queried_tokens
    assert stats.computed_tokens == computed
    assert stats.per_second(computed) == computed / stats.seconds


def test_steps_records_and_events_are_counted(stats):
    steps = steps_of(RUN[1])
    assert stats.steps == sum(step.tokens.total > 0 for step in steps)
    assert stats.events == sum(len(step.events) for step in steps)
    last = steps[-1]
    spent = last.durations.schedule + last.durations.model + last.durations.sample
    assert stats.seconds == pytest.approx(last.time + spent - RUN[1][0].time)


def test_levels_are_weighted_by_time_and_by_step(trace, stats):
    points = []
    for record, state in states(trace):
        if isinstance(record, Step) or not points:
            active = state.active_blocks
            points.append((record.time, active / state.num_blocks, isinstance(record, Step)))
    end = points[0][0] + stats.seconds
    times = [time for time, *_ in points] + [end]
    spans = [until - since for since, until in itertools.pairwise(times)]
    weighted = sum(span * level for span, (_, level, _) in zip(spans, points, strict=True))
    assert stats.utilisation.mean_by_time == pytest.approx(weighted / stats.seconds)
    by_step = [level for _, level, step in points if step]
    assert stats.utilisation.mean_by_step == pytest.approx(sum(by_step) / len(by_step))
    assert stats.utilisation.max == max(level for _, level, _ in points) == 1.0
    assert stats.utilisation.min == 0.0


def test_sharing_and_fill_are_of_active_blocks_alone(trace, stats):
    sharing = [s.references / s.active_blocks for _, s in states(trace) if s.active_blocks]
    fill = [s.slots_filled / s.slots_allocated for _, s in states(trace) if s.active_blocks]
    assert stats.sharing.max == max(sharing) > 1
    assert (stats.fill.min, stats.fill.max) == (min(fill), max(fill))


def test_latencies_are_those_of_the_requests_that_ended(stats):
    ended = [e for step in steps_of(RUN[1]) for e in step.events if isinstance(e, RequestFinished)]
    for name in ("queue_seconds", "first_token_seconds", "duration_seconds"):
        values = sorted(v for e in ended if (v := getattr(e, name)) is not None)
        found = getattr(stats, name.replace("duration", "request"))
        assert found.count == len(values)
        assert found.mean == pytest.approx(sum(values) / len(values))
        assert found.max == values[-1]
        assert found.p50 == near(values[math.ceil(len(values) / 2) - 1])
    assert stats.output_tokens == sum(event.output_tokens for event in ended)


def test_seconds_between_tokens_are_those_of_one_request_alone(tmp_path):
    """Without beams and forks: a token comes at the end of every step that computes all but it."""
    from tests.core.driver import Driver, config
    from tests.events.traces import full_header

    driver = Driver(config())
    records = [driver.engine.keyframe()]
    follow = driver.engine.on_record
    driver.engine.on_record = lambda record: (records.append(record), follow(record))
    driver.add(5, max_tokens=8)
    driver.run()
    path = write_trace(tmp_path / "one.jsonl.zst", full_header(driver.config), records)
    ends = [
        s.time + s.durations.schedule + s.durations.model + s.durations.sample
        for s in steps_of(records)
        if any(isinstance(event, Computed) for event in s.events)
    ]
    gaps = [later - sooner for sooner, later in itertools.pairwise(ends)]
    found = measure_trace(path).inter_token_seconds
    assert found.count == len(gaps) == 7
    assert found.mean == pytest.approx(sum(gaps) / 7)
    assert found.max == pytest.approx(max(gaps))


def test_a_preempted_sequence_waits_for_its_next_token_as_long_as_it_is_out(tmp_path, stats):
    longest_step = stats.step_seconds.max
    assert stats.inter_token_seconds.max > 2 * longest_step
    sampled = sum(type(e).__name__ == "Sampled" for s in steps_of(RUN[1]) for e in s.events)
    kinds = [e for s in steps_of(RUN[1]) for e in s.events]
    firsts = sum(isinstance(e, RequestAdded) for e in kinds)
    assert any(isinstance(e, PrefixLookup) and e.resumed for e in kinds)
    assert any(isinstance(e, Fork) for e in kinds)
    # A beam that is overtaken in the step has drawn a token that nobody is told.
    pruned = sum(isinstance(e, SequenceFinished) and e.reason == "pruned" for e in kinds)
    assert stats.inter_token_seconds.count <= sampled - firsts + pruned
    assert stats.inter_token_seconds.count == stats.totals.inter_token_latency.count


def test_who_was_preempted_is_told(stats):
    ended = [e for step in steps_of(RUN[1]) for e in step.events if isinstance(e, RequestFinished)]
    victims = {e.request: e.preemptions for e in ended if e.preemptions}
    assert victims
    assert stats.preempted_requests == len(victims)
    assert {victim.request: victim.preemptions for victim in stats.victims} == victims


def test_time_in_a_gap_counts_for_nothing(tmp_path):
    path = write_trace(tmp_path / "gap.jsonl.zst", *RUN, gap=(8, 14))
    stats = measure_trace(path)
    steps = steps_of(RUN[1])
    assert (stats.gaps, stats.left_out) == (1, 7)
    assert stats.unseen_seconds == pytest.approx(steps[14].time - steps[7].time)
    assert stats.steps == sum(s.tokens.total > 0 for s in steps if not 8 <= s.seq <= 14)
    assert stats.totals.steps == sum(s.tokens.total > 0 for s in steps), "the engine's own count"


def test_a_trace_that_begins_late_tells_what_was_counted_before(tmp_path):
    late = [record for record in RUN[1] if record.seq >= 9]
    stats = measure_trace(write_trace(tmp_path / "late.jsonl.zst", RUN[0], late[1:]))
    assert stats.before.steps > 0
    assert stats.counted("steps") == stats.steps


@pytest.mark.parametrize(
    ("lacking", "names"),
    [
        ("latencies", {"queue_seconds", "first_token_seconds", "request_seconds"}),
        ("durations", {"step_seconds", "model_seconds"}),
        ("fills", {"fill"}),
        ("ref_counts", {"sharing"}),
        ("recompute", {"recompute_tax"}),
        ("block_hashes", {"prefix_hit_rate"}),
    ],
)
def test_what_the_producer_does_not_know_is_unknown_not_zero(tmp_path, lacking, names):
    head = msgspec.structs.replace(RUN[0], knows=[k for k in RUN[0].knows if k != lacking])
    stats = measure_trace(write_trace(tmp_path / "run.jsonl.zst", head, RUN[1]))
    assert {name for name in names if getattr(stats, name) is not None} == set()
    assert stats.utilisation is not None


def test_percentiles_are_near_those_of_all_values():
    values = Values()
    numbers = [0.0, *(1.37**power for power in range(-30, 30)), *[2.0] * 40]
    for number in numbers:
        values.add(number)
    values.add(None)
    ordered = sorted(numbers)
    ranks = [ordered[math.ceil(share * 101) - 1] for share in (0.5, 0.9, 0.99)]
    p50, p90, p99 = map(near, ranks)
    assert values.summary() == Percentiles(
        101, pytest.approx(sum(numbers) / 101), p50, p90, p99, ordered[-1]
    )


def test_gaps_are_in_the_stream_that_was_measured(tmp_path):
    path = write_trace(tmp_path / "gap.jsonl.zst", *RUN, gap=(8, 14))
    assert any(isinstance(record, Gap) for record, _ in states(path))
