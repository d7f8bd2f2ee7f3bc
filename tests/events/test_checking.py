"""`glasspool check` finds nothing wrong with the engine's own runs, and reports on whole files."""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.config import Policy, RequestError
from engine.events.checking import TraceChecker, check_trace, unchecked_rules
from engine.events.records import (
    Computed,
    Fork,
    Gap,
    Keyframe,
    QueueLengths,
    RequestAdded,
    Sampled,
    SequenceScheduled,
    Step,
)
from engine.events.rules.broken import RULES
from tests.core.driver import Driver, config
from tests.events.checked import RUN, check
from tests.events.traces import full_header, steps_of, write_trace

replace = msgspec.structs.replace


def test_a_good_run_keeps_every_rule():
    head, records = RUN
    assert check(head, records) is None
    assert check(head, [r for r in records if isinstance(r, Step) or r.seq == -1]) is None
    assert unchecked_rules(head) == {}


@pytest.mark.parametrize("start", range(0, 20, 3))
def test_a_run_may_begin_at_any_keyframe(start):
    head, records = RUN
    begin = [n for n, record in enumerate(records) if isinstance(record, Keyframe)][start]
    assert check(head, records[begin:]) is None


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 12), st.integers(1, 3), st.integers(1, 8),
                  st.booleans(), st.integers(0, 2)),
        st.tuples(st.just("step"), st.integers(1, 4)),
        st.tuples(st.just("abort"), st.integers(0, 9)),
        st.tuples(st.just("reset")),
        st.tuples(st.just("keyframe")),
    ),
    min_size=5,
    max_size=40,
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    operations=OPERATIONS,
    caching=st.booleans(),
    policy=st.sampled_from(Policy),
    bits=st.sampled_from([8, 64]),
    threshold=st.sampled_from([0, 3]),
    watermark=st.sampled_from([0.0, 0.2]),
)
def test_no_run_of_the_engine_breaks_a_rule(
    operations, caching, policy, bits, threshold, watermark
):
    sizes = {"enable_prefix_caching": caching, "policy": policy, "prefix_hash_bits": bits}
    driver = Driver(config(long_prefill_token_threshold=threshold, watermark=watermark, **sizes))
    checker = TraceChecker(full_header(driver.config))
    broken = [checker.apply(driver.engine.keyframe())]
    follow = driver.engine.on_record
    driver.engine.on_record = lambda r: (broken.append(checker.apply(r)), follow(r))
    for name, *values in operations:
        match name:
            case "add":
                prompt, n, output, beams, priority = values
                if policy is Policy.FCFS:
                    priority = 0
                with contextlib.suppress(RequestError):
                    driver.add(
                        prompt,
                        n=n,
                        max_tokens=output,
                        use_beam_search=beams and n > 1,
                        priority=priority,
                    )
            case "step":
                for _ in range(values[0]):
                    driver.engine.step()
            case "abort":
                driver.engine.abort(f"r{values[0]}")
            case "reset":
                driver.engine.reset_prefix_cache()
            case "keyframe":
                broken.append(checker.apply(driver.engine.keyframe()))
    driver.run()
    broken.append(checker.end())
    assert [b.text for b in broken if b is not None] == []


def test_a_gap_must_say_what_it_leaves_out():
    head, records = RUN
    begin = next(n for n, r in enumerate(records) if isinstance(r, Keyframe) and r.seq == 8)
    before = [r for r in records[:begin] if r.seq <= 5]
    after = records[begin:]
    assert check(head, [*before, Gap(5, 3, "slow"), *after]) is None
    assert check(head, [*before, Gap(5, 2, "slow"), *after])[0] == 19
    assert check(head, [*before, Gap(4, 4, "slow"), *after])[0] == 19
    assert check(head, [*before, Gap(5, 0, "slow"), *after])[0] == 19


def test_a_good_trace_is_counted(tmp_path):
    head, records = RUN
    report = check_trace(write_trace(tmp_path / "run.jsonl.zst", head, records))
    steps = steps_of(records)
    assert report.fault is None
    assert report.checked == list(RULES)
    assert report.steps == len(steps)
    assert report.events == sum(len(step.events) for step in steps)
    assert report.records == len(steps) + report.keyframes
    assert report.seconds == steps[-1].time - records[0].time


@pytest.mark.parametrize(
    ("knows", "lacking"),
    [
        (["queues"], "physical_blocks"),
        (["physical_blocks", "queues"], "block_hashes"),
    ],
)
def test_rules_about_what_the_producer_does_not_know_are_not_checked(knows, lacking):
    unchecked = unchecked_rules(replace(RUN[0], knows=knows))
    assert lacking in unchecked.values()
    assert 12 not in unchecked


def test_a_run_without_blocks_is_checked_as_far_as_it_tells():
    """Another engine may tell of requests and tokens, and know no blocks."""
    head, records = RUN
    told = RequestAdded | SequenceScheduled | Computed | Sampled | Fork
    step = steps_of(records)[0]
    step = replace(step, events=[event for event in step.events if isinstance(event, told)])
    plain = replace(head, knows=["queues"], config={})
    assert check(plain, [records[0], step]) is None
    assert check(plain, [records[0], replace(step, queues=QueueLengths(0, 0, 0))])[0] == 20
