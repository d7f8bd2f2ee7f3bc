"""Who waits, in which order, and who is refused: priority, watermark, queue limit."""

import pytest

from engine.core.admission import QueueFullError
from engine.core.config import Policy, RequestError
from engine.events.records import (
    AllocationFailed,
    Preempt,
    RejectWhy,
    RequestFinished,
    RequestRejected,
    SequenceScheduled,
)
from tests.core.driver import Driver, config, of_kind


def ended(driver: Driver) -> list[str]:
    return [event.request for event in of_kind(driver.run(), RequestFinished)]


def test_the_lower_priority_number_is_served_first_then_the_older():
    driver = Driver(config(policy=Policy.PRIORITY, max_num_seqs=1))
    for name, priority in {"low": 1, "plain": 0, "urgent": -1, "second": -1}.items():
        driver.add(4, name, priority, max_tokens=2)
    assert ended(driver) == ["urgent", "second", "plain", "low"]


def test_first_come_first_served_is_the_order_of_arrival_and_refuses_a_priority():
    driver = Driver(config(max_num_seqs=1))
    for name in "cab":
        driver.add(4, name, max_tokens=2)
    with pytest.raises(RequestError, match="first come, first served") as caught:
        driver.add(4, "d", -1, max_tokens=2)
    assert caught.value.parameter == "priority"
    assert ended(driver) == ["c", "a", "b"]


def test_the_one_with_the_lower_priority_is_preempted_though_it_is_older():
    driver = Driver(config(policy=Policy.PRIORITY, num_blocks=4, max_model_len=16))
    driver.add(8, "old", 5, max_tokens=4)
    driver.add(8, "urgent", 0, max_tokens=4)
    driver.step()
    (preempt,) = of_kind(driver.step(), Preempt)
    assert (preempt.sequence, preempt.victim_of) == (0, 1)


def test_a_waiting_request_of_any_priority_displaces_nobody():
    driver = Driver(config(policy=Policy.PRIORITY, num_blocks=4, max_model_len=16))
    driver.add(8, "old", 5, max_tokens=5)
    driver.step()
    driver.add(12, "urgent", -5, max_tokens=2)
    assert ended(driver) == ["old", "urgent"]
    assert of_kind(driver.events, Preempt) == []


def test_a_full_queue_refuses_and_takes_again_once_one_has_started():
    driver = Driver(config(max_num_queued_reqs=2))
    driver.add(4, "a", max_tokens=2)
    driver.add(4, "b", max_tokens=2)
    with pytest.raises(QueueFullError, match="2 requests are waiting"):
        driver.add(4, "c", max_tokens=2)
    rejected = of_kind(driver.step(), RequestRejected)
    assert rejected == [RequestRejected("c", RejectWhy.QUEUE_FULL, 4)]
    driver.add(4, "c", max_tokens=2)
    driver.run()
    assert sorted(r.request_id for r in driver.finished) == ["a", "b", "c"]


def test_preempted_requests_do_not_count_as_queued():
    driver = Driver(config(num_blocks=4, max_model_len=16, max_num_queued_reqs=1))
    driver.add(6, max_tokens=6)
    driver.step()
    driver.add(8, max_tokens=4)
    driver.step(2)
    assert [sequence.preemptions for sequence in driver.scheduler.waiting] == [1]
    driver.add(4, max_tokens=2)
    with pytest.raises(QueueFullError, match="1 requests are waiting"):
        driver.add(4, max_tokens=2)


@pytest.mark.parametrize(("watermark", "second_starts"), [(0.0, True), (0.2, True), (0.3, False)])
def test_the_watermark_keeps_its_share_free_when_a_sequence_joins_running_ones(
    watermark, second_starts
):
    driver = Driver(config(num_blocks=10, watermark=watermark))
    driver.add(16, max_tokens=2)
    driver.add(16, max_tokens=2)
    started = of_kind(driver.step(), SequenceScheduled)
    assert [event.sequence for event in started] == ([0, 1] if second_starts else [0])
    driver.run()
    assert len(driver.finished) == 2


def test_the_watermark_holds_back_neither_the_first_sequence_nor_growth():
    driver = Driver(config(num_blocks=6, watermark=0.5))
    driver.add(20, max_tokens=4)
    assert len(of_kind(driver.run(), RequestFinished)) == 1
    driver = Driver(config(num_blocks=6, watermark=0.5))
    driver.add(8, max_tokens=5)
    driver.add(4, max_tokens=5)
    driver.run()
    assert driver.engine.tally.totals.preemptions == {}


def test_a_failed_allocation_always_tells_of_more_than_could_be_had():
    driver = Driver(config(num_blocks=10, watermark=0.3))
    driver.add(16, max_tokens=2)
    driver.add(16, max_tokens=2)
    (failed,) = of_kind(driver.step(), AllocationFailed)
    assert failed.needed > failed.available


def test_a_prompt_above_the_pool_is_refused_at_once_and_the_next_request_runs():
    driver = Driver(config(num_blocks=2, max_model_len=24))
    with pytest.raises(RequestError, match="needs 3 blocks of 4, the whole pool has 2"):
        driver.add(8, "bad", max_tokens=2)
    driver.add(8, "good", max_tokens=1)
    assert ended(driver) == ["good"]
    rejected = of_kind(driver.events, RequestRejected)
    assert rejected == [RequestRejected("bad", RejectWhy.NEVER_FITS_POOL, 8)]
