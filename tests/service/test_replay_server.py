"""`glasspool replay TRACE --serve`: clients of the live stream get the recording, as it was."""

import time

import httpx
import msgspec
import pytest

from engine.events import PoolState, TraceReader, TraceWriter, encode
from engine.events.records import Gap, Header, Keyframe, Step
from engine.service.ports import free_port
from tests.core.driver import sorted_rows
from tests.demo_data import OVERVIEW
from tests.servers import Process, wait_until
from tests.service.clients import StreamReader

TRACE = OVERVIEW


class Replay(Process):
    """`glasspool replay --serve`, ready."""

    def __init__(self, path, speed: float) -> None:
        port = str(free_port())
        super().__init__("replay", str(path), "--serve", "--port", port, "--speed", str(speed))
        self.events_url = f"ws://127.0.0.1:{port}/v1/events"
        try:
            wait_until(lambda: self._ready(port), 60, "the replay is ready")
        except BaseException:
            self.stop()
            print(self.output)
            raise

    def _ready(self, port: str) -> bool:
        assert self.popen.poll() is None, self.output
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        except httpx.TransportError:
            return False


def recorded(path) -> list:
    with TraceReader(path) as trace:
        return [trace.header, *trace]


def test_a_client_of_the_live_stream_gets_every_record_and_ends_in_the_last_state():
    header, *records = recorded(TRACE)
    steps = [record for record in records if isinstance(record, Step)]
    state = PoolState(header)
    for record in records:
        state.apply(record)
    with Replay(TRACE, 10_000) as replay, StreamReader(replay.events_url) as reader:
        wall_time = reader.header.wall_time
        assert reader.header == msgspec.structs.replace(header, wall_time=wall_time)
        began = wall_time + records[0].time - header.monotonic
        assert abs(began - time.time()) < 30, "its clock says now, not the day of the recording"
        while reader.state.seq < steps[-1].seq:
            reader.read()
        got = [record for record in reader.records if isinstance(record, Step)]
        assert got == steps[: len(got)]
        assert sorted_rows(reader.state.keyframe()) == sorted_rows(state.keyframe())
        with StreamReader(replay.events_url) as late:
            assert isinstance(late.read(), Keyframe)
            assert sorted_rows(late.state.keyframe()) == sorted_rows(state.keyframe())
        wait_until(lambda: "to its end" in replay.output, 10)


def test_it_plays_as_fast_as_asked_from_the_first_viewer_on():
    _, *records = recorded(TRACE)
    steps = [record for record in records if isinstance(record, Step)]
    wanted = next(step for step in steps if step.time > steps[0].time + 20)
    with Replay(TRACE, 10) as replay, StreamReader(replay.events_url) as reader:
        assert reader.read().seq == -1, "it waited for its first viewer"
        started = time.monotonic()
        while reader.state.seq < wanted.seq:
            reader.read()
        took = time.monotonic() - started
    assert 1.9 < took < 8, "20 seconds, ten times as fast"


def test_a_gap_of_the_recording_is_a_gap_of_the_stream(tmp_path):
    header, first, *records = recorded(TRACE)
    assert isinstance(header, Header)
    path = tmp_path / "gap.jsonl.zst"
    state = PoolState(header)
    state.apply(first)
    writer = TraceWriter(path, header, first)
    for record in records[:60]:
        state.apply(record)
        if record.seq < 20:
            writer.write(encode(record))
        elif record.seq == 40:
            writer.write(encode(Gap(19, 21, "a test left them out")))
            writer.write_keyframe(state.keyframe())
        elif record.seq > 40:
            writer.write(encode(record))
    writer.close()
    with Replay(path, 1000) as replay, StreamReader(replay.events_url) as reader:
        while reader.state.seq < state.seq:
            reader.read()
        assert any(isinstance(record, Gap) for record in reader.records)
        assert sorted_rows(reader.state.keyframe()) == sorted_rows(state.keyframe())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-file", "--serve"], "cannot open trace no-such-file"),
        ([str(TRACE), "--serve", "--speed", "0"], "speed is 0.0"),
        ([str(TRACE)], "add --serve"),
        ([__file__, "--serve"], "not a readable Glasspool trace"),
    ],
)
def test_what_cannot_be_played_is_one_line(arguments, words):
    with Process("replay", *arguments, "--port", str(free_port())) as process:
        assert process.popen.wait(60) == 1
        process._reader.join(10)
    (line,) = process.output.strip().splitlines()[-1:]
    assert line.startswith("glasspool: ")
    assert words in line
    assert "Traceback" not in process.output
