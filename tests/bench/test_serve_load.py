"""A load on a scripted server: what is sent when, and what becomes of failures."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import pytest

from engine.bench.serve_client import Client, RequestRecord
from engine.bench.serve_load import Load
from engine.bench.serve_prompts import Endpoint, Prompts
from engine.workloads.arrivals import at_once
from engine.workloads.lengths import fixed
from engine.workloads.request import WorkloadRequest, planned
from tests.bench.fake_openai import Answer, FakeServer
from tests.servers import wait_until

DEADLINE = 60


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Answers that wait for this event are let go at the test's end, whatever happens."""
    event = threading.Event()
    yield event
    event.set()


def requests(count: int, output: int = 3) -> list[WorkloadRequest]:
    return list(islice(planned(at_once(), fixed(8, output)), count))


def run(
    server: FakeServer,
    planned: Sequence[WorkloadRequest],
    max_concurrency: int | None = None,
    closed_loop: bool = False,
    endpoint: Endpoint = Endpoint.COMPLETIONS,
    timeout: float = 30,
    meanwhile: Callable[[Load], object] = lambda _: None,
    stop_when: Callable[[Load], bool] | None = None,
) -> Load:
    """Run a load to its end within a deadline; `meanwhile` runs in a thread beside it."""

    async def go() -> Load:
        async with Client(server.url, endpoint, None, timeout) as client:
            load = Load(client, Prompts(endpoint, "fake", False, 0), max_concurrency)
            beside = asyncio.ensure_future(asyncio.to_thread(meanwhile, load))
            running = asyncio.ensure_future(load.run(planned, closed_loop))
            if stop_when is not None:
                await asyncio.to_thread(wait_until, lambda: stop_when(load), 20, "time to stop")
                load.stop()
            await asyncio.wait_for(running, DEADLINE)
            await beside
            return load

    return asyncio.run(go())


def failures(load: Load) -> list[tuple[int | None, str]]:
    return [(r.failure.status, r.failure.message) for r in load.records if r.failure is not None]


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_both_endpoints_are_read_to_their_usage(endpoint):
    with FakeServer() as server:
        load = run(server, requests(3), endpoint=endpoint)
    assert [record.ok for record in load.records] == [True] * 3
    for reading in (record.reading for record in load.records):
        assert (reading.prompt_tokens, reading.output_tokens, len(reading.gaps)) == (8, 3, 2)


def test_times_are_the_servers_delays_at_least():
    with FakeServer(lambda _: Answer(first_after=0.2, gap=0.1)) as server:
        (record,) = run(server, requests(1)).records
    assert record.reading.first - record.sent >= 0.2
    assert record.reading.last - record.sent >= 0.4
    assert record.ended >= record.reading.last
    assert record.reading.last - record.reading.first == pytest.approx(sum(record.reading.gaps))


def test_all_at_once_waits_for_nobody(held):
    with FakeServer(lambda _: Answer(hold=held)) as server:

        def release(_: Load) -> None:
            wait_until(lambda: server.in_flight == 6, 20, "all six are in flight")
            held.set()

        assert run(server, requests(6), meanwhile=release).ended == 6


def test_no_more_than_max_concurrency_are_in_flight_and_so_many_are():
    with FakeServer(lambda _: Answer(gap=0.02)) as server:
        load = run(server, requests(12), max_concurrency=3, closed_loop=True)
    assert (load.ended, server.most_in_flight) == (12, 3)


def test_connections_are_used_again():
    with FakeServer() as server:
        run(server, requests(60), max_concurrency=20, closed_loop=True)
    assert len(server.bodies) == 60
    assert len(server.connections) <= 40


def test_in_a_closed_loop_a_request_is_due_when_another_has_ended():
    with FakeServer(lambda _: Answer(gap=0.05)) as server:
        first, second = run(server, requests(2), max_concurrency=1, closed_loop=True).records
    assert second.due >= first.ended


def test_in_an_open_loop_waiting_for_a_place_is_lateness():
    with FakeServer(lambda _: Answer(gap=0.1)) as server:
        first, second = run(server, requests(2), max_concurrency=1).records
    assert second.due == first.due
    assert second.sent >= first.ended


def test_requests_are_sent_at_their_arrivals_and_never_before():
    arrivals = [0.0, 0.1, 0.1, 0.3]
    with FakeServer() as server:
        records = run(server, [WorkloadRequest(arrival, 8, 1) for arrival in arrivals]).records
    assert [r.due - records[0].due for r in records] == pytest.approx(arrivals)
    assert all(record.sent >= record.due for record in records)


def test_an_open_loop_sends_on_while_earlier_answers_are_slow(held):
    with FakeServer(lambda number: Answer(hold=held if number == 0 else None)) as server:

        def release(load: Load) -> None:
            wait_until(lambda: load.ended == 2, 20, "the two later ones ended")
            assert not load.records[0].ok
            held.set()

        planned = [WorkloadRequest(arrival, 8, 2) for arrival in (0, 0.05, 0.1)]
        assert run(server, planned, meanwhile=release).ended == 3


SCRIPT = {
    1: Answer(status=503, error="queue full"),
    2: Answer(cut_after=1),
    3: Answer(whole=True),
    5: Answer(usage=False),
}


def test_each_failure_is_told_and_the_others_go_on():
    with FakeServer(lambda number: SCRIPT.get(number, Answer())) as server:
        load = run(server, requests(7), max_concurrency=1, closed_loop=True)
    (full, cut, whole), ended = failures(load), [record.ok for record in load.records]
    assert ended == [True, False, False, False, True, True, True]
    assert full == (503, "queue full")
    assert cut[0] is None
    assert "closed" in cut[1]
    assert whole[0] == 200
    assert "application/json, not text/event-stream" in whole[1]
    assert load.records[5].reading.output_tokens is None
    assert (load.failed, load.gone) == (3, None)


def test_a_beam_search_that_is_not_answered_in_full_is_a_failure():
    beams = [WorkloadRequest(0, 8, 3, n=4, use_beam_search=True) for _ in range(3)]
    script = {0: Answer(choices=3), 1: Answer(status=400, error="no beams here")}
    with FakeServer(lambda number: script.get(number, Answer())) as server:
        load = run(server, beams, max_concurrency=1, closed_loop=True)
    assert [record.ok for record in load.records] == [False, False, True]
    assert failures(load) == [
        (200, "the answer has 3 of 4 choices with a finish reason"),
        (400, "no beams here"),
    ]
    assert load.records[2].reading.output_tokens == 12


def test_a_silent_server_is_a_failure_after_the_timeout(held):
    with FakeServer(lambda number: Answer(hold=held if number == 0 else None)) as server:
        load = run(server, requests(2), max_concurrency=1, closed_loop=True, timeout=0.5)
    assert failures(load) == [(None, "no byte for 0.5 s")]
    assert load.records[1].ok
    assert load.gone is None


def test_a_server_that_dies_ends_the_run_with_what_there_is(held):
    with FakeServer(lambda number: Answer(hold=held if number > 1 else None)) as server:

        def kill(load: Load) -> None:
            wait_until(lambda: load.ended == 2 and server.in_flight == 2, 20, "two are held")
            server.die()

        load = run(server, requests(500), max_concurrency=2, closed_loop=True, meanwhile=kill)
    assert load.gone is not None
    assert sorted(record.ok for record in load.records) == [False, False, True, True]
    assert all(r.ok or r.failure is not None or r.cut_off for r in load.records)
    assert not load.interrupted


def test_stopping_cuts_off_what_is_in_flight_and_keeps_what_ended(held):
    with FakeServer(lambda number: Answer(hold=held if number > 0 else None)) as server:
        load = run(
            server,
            requests(9),
            max_concurrency=2,
            closed_loop=True,
            stop_when=lambda load: load.ended == 1 and server.in_flight == 2,
        )
    assert load.interrupted
    assert sorted(record.ok for record in load.records) == [False, False, True]
    assert [record.cut_off for record in load.records] == [not r.ok for r in load.records]
    assert failures(load) == []


def test_a_fault_of_the_generator_itself_is_raised(monkeypatch):
    async def broken(self: Client, record: RequestRecord, body: bytes) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(Client, "send", broken)
    with FakeServer() as server, pytest.raises(ExceptionGroup):
        run(server, requests(2))
