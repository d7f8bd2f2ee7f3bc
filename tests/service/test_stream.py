"""WS /v1/events of a started server."""

import asyncio
import concurrent.futures
import contextlib
import threading

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from engine.core.config import SamplingParams
from engine.core.sequence import Request
from engine.events import PoolState, check_state, decode, encode
from engine.events.records import Gap, Header, Keyframe, Step
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.stream import _Sender
from tests.core.driver import Driver, config, header, sorted_rows
from tests.servers import EngineServer
from tests.service.clients import StreamReader


@contextlib.contextmanager
def traffic(server: EngineServer, requests: int = 10):
    """Requests of 1 to 4 sequences that overload the pool of 24 blocks; ends when all are answered."""
    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        answers = [
            pool.submit(
                server.complete,
                f"Question number {i}",
                n=1 + i % 4,
                max_tokens=60,
                seed=i,
                ignore_eos=True,
            )
            for i in range(requests)
        ]
        yield
        assert {answer.result().status_code for answer in answers} == {200}


def test_a_client_that_joins_late_ends_with_the_state_of_one_that_joined_first(engine_server):
    with StreamReader(engine_server.events_url) as early:
        assert isinstance(early.read(), Keyframe)
        with traffic(engine_server):
            while early.state.active_blocks < 20:
                early.read()
            with StreamReader(engine_server.events_url) as late:
                assert isinstance(late.read(), Keyframe)
                assert late.state.active_blocks, "it joined in the middle"
                late.read_until_idle()
        early.read_until_idle()
        while early.state.seq < late.state.seq:
            early.read()
    assert sorted_rows(late.state.keyframe()) == sorted_rows(early.state.keyframe())
    assert early.state.totals.preemptions
    assert early.state.totals.cow_copies
    assert check_state(early.state) == []


def test_step_records_have_no_gaps_and_carry_no_text(engine_server):
    with StreamReader(engine_server.events_url) as reader:
        reader.read()
        with traffic(engine_server, 3):
            reader.read()
            reader.read_until_idle()
    steps = [record for record in reader.records if isinstance(record, Step)]
    assert [step.seq for step in steps] == list(range(steps[0].seq, steps[0].seq + len(steps)))
    assert reader.header.redacted == ["token_ids", "text"]
    for step in steps:
        assert b"text" not in encode(step)


def test_a_client_goes_on_after_the_last_record_it_saw(engine_server):
    with StreamReader(engine_server.events_url) as first:
        first.read()
        with traffic(engine_server, 2):
            for _ in range(5):
                first.read()
    header = first.header
    url = f"{engine_server.events_url}?after={first.state.seq}&engine_id={header.engine_id}"
    with StreamReader(url) as again:
        assert again.header == header
        again.state = first.state
        assert isinstance(again.read(), Step)
        again.read_until_idle()
    with StreamReader(f"{engine_server.events_url}?after=3&engine_id=another") as stranger:
        assert isinstance(stranger.read(), Keyframe)


def test_a_page_of_another_origin_may_not_read(engine_server):
    with (
        pytest.raises(InvalidStatus),
        connect(engine_server.events_url, origin="http://evil.example"),
    ):
        """It must not get here."""
    with connect(engine_server.events_url, origin=engine_server.url) as socket:
        assert "header" in socket.recv()


def test_what_a_client_sends_is_dropped(engine_server):
    with StreamReader(engine_server.events_url) as reader:
        for message in ("{}", b"\x00\xff", "x" * 10_000):
            reader.socket.send(message)
        with traffic(engine_server, 1):
            reader.read()
            reader.read()


def test_a_slow_reader_of_the_log_is_told_of_its_loss_and_costs_nothing_else():
    log = EventLog(size=8)
    driver = Driver(config(num_blocks=32))
    driver.engine.on_record = log.append
    driver.add(3, max_tokens=20)
    driver.engine.step()
    assert len(log.read(-1, 100)) == 1
    for _ in range(7):
        driver.engine.step()
    assert len(log.read(-1, 100)) == 8
    assert len(log.read(-1, 3)) == 3
    driver.engine.step()
    assert log.read(-1, 100) is None
    assert not log.holds(-1)
    assert log.holds(0)
    assert len(log.read(0, 100)) == 8
    assert log.read(8, 100) == []


def test_a_client_that_fell_behind_gets_a_gap_and_a_keyframe_and_ends_right():
    driver = Driver(config(num_blocks=32))
    log = EventLog(size=8)
    thread = EngineThread(driver.engine, log)
    context = ServiceContext(thread, log, header(driver.config), tokenizer=None)
    socket = SlowSocket()

    async def run() -> None:
        thread.start(asyncio.get_running_loop())
        sending = asyncio.ensure_future(_Sender(socket, context).run(-1, ""))
        await socket.sent(2)  # header and keyframe; now it stops reading
        socket.reads.clear()
        done = threading.Event()
        request = Request("r", [1, 2, 3], SamplingParams(max_tokens=20, ignore_eos=True), 0.0)
        request.on_finish = lambda _: done.set()
        await asyncio.wrap_future(thread.add([request]))
        assert await asyncio.to_thread(done.wait, 10)
        socket.reads.set()
        await socket.until(lambda: socket.state.complete and socket.state.seq == log.last)
        sending.cancel()

    try:
        asyncio.run(run())
        live = thread.snapshot().result().keyframe()
    finally:
        thread.stop()
    steps = sum(isinstance(record, Step) for record in socket.records)
    lost = [record.count for record in socket.records if isinstance(record, Gap)]
    assert lost
    assert steps + sum(lost) == log.last + 1, "each record was sent, or counted as lost"
    assert sorted_rows(socket.state.keyframe()) == sorted_rows(live)


class SlowSocket:
    """The sending half of a WebSocket whose other end reads only while `reads` is set."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.records = []
        self.state = None

    async def send_text(self, message: str) -> None:
        await self.reads.wait()
        for line in message.split("\n"):
            record = decode(line)
            self.records.append(record)
            if isinstance(record, Header):
                self.state = PoolState(record)
            else:
                self.state.apply(record)

    async def sent(self, count: int) -> None:
        await self.until(lambda: len(self.records) >= count)

    async def until(self, condition) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)
