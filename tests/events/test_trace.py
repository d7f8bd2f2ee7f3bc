import pytest
import pyzstd
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.events import (
    PoolState,
    RecordError,
    TraceError,
    TraceReader,
    TraceWriter,
    decode,
    encode,
)
from engine.events.records import Header, Keyframe
from engine.events.trace import EVENTS_A_RECORD, EVENTS_PER_KEYFRAME, KeyframePolicy
from tests.core.driver import Driver, config, header
from tests.events.traces import busy_run, write_trace


def write_run(path, keyframe_every=None):
    """Record a run with every kind of event; returns its records."""
    driver = Driver(config(num_blocks=5, max_model_len=16))
    records = []
    fold = driver.engine.on_record
    driver.engine.on_record = lambda record: (records.append(record), fold(record))
    writer = TraceWriter(path, header(driver.config), driver.engine.keyframe())
    for n in (1, 2, 2):
        driver.add(6, n=n, max_tokens=6)
    while driver.engine.has_work:
        driver.engine.step()
        writer.write(encode(records[-1]))
        if keyframe_every and len(records) % keyframe_every == 0:
            writer.write_keyframe(driver.engine.keyframe())
    writer.close()
    return records


def test_a_trace_reads_back_what_was_written(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    records = write_run(path)
    with TraceReader(path) as reader:
        keyframe, *steps = reader
    assert isinstance(keyframe, Keyframe)
    assert steps == records
    assert reader.cut_off is None


def test_each_keyframe_starts_a_frame_and_equals_the_fold_up_to_it(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    write_run(path, keyframe_every=4)
    with TraceReader(path) as reader:
        state = PoolState(reader.header)
        keyframes = 0
        for record in reader:
            if isinstance(record, Keyframe):
                keyframes += 1
                if state.complete:
                    fresh = PoolState(reader.header)
                    fresh.apply(record)
                    assert fresh.ref_count == state.ref_count
                    assert fresh.filled == state.filled
                    assert fresh.sequences == state.sequences
                    assert fresh.totals == state.totals
            state.apply(record)
    assert keyframes > 3
    data, frames = path.read_bytes(), 0
    while data[:4] == b"\x28\xb5\x2f\xfd":
        size = pyzstd.get_frame_size(data)
        first = pyzstd.decompress(data[:size]).split(b"\n")[1 if frames == 0 else 0]
        assert isinstance(decode(first), Keyframe)
        data, frames = data[size:], frames + 1
    assert frames == keyframes


def test_a_keyframe_is_due_after_so_many_events_or_one_for_two_blocks():
    for num_blocks, most in ((64, EVENTS_PER_KEYFRAME), (10**6, 10**6 // 2)):
        policy = KeyframePolicy(num_blocks)
        while not policy.due:
            policy.count(100 - EVENTS_A_RECORD)
            most -= 100
        assert -100 < most <= 0
        policy.restart()
        assert not policy.due


def test_records_without_events_count_too():
    policy = KeyframePolicy(64)
    for _ in range(EVENTS_PER_KEYFRAME // EVENTS_A_RECORD + 1):
        policy.count(0)
    assert policy.due


def test_the_fold_passes_over_keyframes_but_not_over_missing_records(tmp_path):
    head, records = busy_run()
    path = write_trace(tmp_path / "run.jsonl.zst", head, records)
    with TraceReader(path) as reader:
        *_, (_, state) = reader.fold()
    assert state.seq == records[-1].seq
    writer = TraceWriter(path, head, records[0])
    for record in records[1:]:
        if record.seq == 9 and isinstance(record, Keyframe):
            writer.write_keyframe(record)
        elif record.seq < 9 and not isinstance(record, Keyframe):
            writer.write(encode(record))
    writer.close()
    with (
        TraceReader(path) as reader,
        pytest.raises(TraceError, match="of record 9 follows record 8"),
    ):
        list(reader.fold())


def test_a_flipped_bit_in_a_finished_frame_is_noticed_by_its_checksum(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    write_run(path)
    assert pyzstd.get_frame_info(path.read_bytes()).decompressed_size is None
    data = bytearray(path.read_bytes())
    assert data[4] & 0b100, "the frame's header says that a checksum follows"


def test_a_plain_zstd_decompression_gives_json_lines(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    write_run(path, keyframe_every=4)
    lines = pyzstd.ZstdFile(path).read().splitlines()
    assert isinstance(decode(lines[0]), Header)


def read_cut(path, data):
    """What is read of a cut-off trace, and what the reader says; None where its header is cut."""
    path.write_bytes(data)
    try:
        reader = TraceReader(path)
    except TraceError as error:
        return None, str(error)
    with reader:
        return list(reader), reader.cut_off


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 0.999))
def test_a_cut_off_trace_reads_up_to_its_last_whole_record_and_says_so(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "run.jsonl.zst"
    write_run(path, keyframe_every=4)
    data = path.read_bytes()
    whole, _ = read_cut(path, data)
    got, said = read_cut(path, data[: int(len(data) * share)])
    if got is None:
        assert "empty or cut off in its header" in said
        return
    assert got == whole[: len(got)]
    if len(got) < len(whole):
        # A cut between two frames leaves a readable file; any other is noticed.
        assert said or isinstance(whole[len(got)], Keyframe)


@pytest.mark.parametrize("encoded", [False, True])
def test_lines_are_compressed_some_at_a_time_and_none_is_lost(tmp_path, monkeypatch, encoded):
    monkeypatch.setattr("engine.events.trace.GATHERED_BYTES", 2000)
    records = write_run(tmp_path / "other.jsonl.zst")
    driver = Driver(config())
    path = tmp_path / "run.jsonl.zst"
    writer = TraceWriter(path, header(driver.config), driver.engine.keyframe())
    compressed = []
    write = writer._file.write
    writer._file.write = lambda lines: compressed.append(len(lines)) or write(lines)
    for record in records:
        writer.write(encode(record)) if encoded else writer.write_record(record)
    assert 2 < len(compressed) < len(records) / 2
    longest = max(len(encode(record)) for record in records)
    assert all(2000 <= size <= 2000 + longest for size in compressed)
    writer.close()
    with TraceReader(path) as reader:
        assert list(reader)[1:] == records


def test_what_was_flushed_can_be_read_while_the_writer_is_still_open(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    driver = Driver(config())
    writer = TraceWriter(path, header(driver.config), driver.engine.keyframe())
    driver.add(4, max_tokens=2)
    writer.write(encode(driver.engine.step()))
    writer.flush()
    with TraceReader(path) as reader:
        assert len(list(reader)) == 2
        assert "cut off" in reader.cut_off
    writer.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"hello, this is no trace", pyzstd.compress(b'{"type":"step"}\n'), pyzstd.compress(b"")],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "other.zst"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"other\.zst") as caught:
        TraceReader(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"nothing\.zst: No such file"):
        TraceReader(tmp_path / "nothing.zst")


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    write_run(path)
    lines = pyzstd.ZstdFile(path).read().splitlines(keepends=True)
    lines[3] = b'{"type":"step","seq":"x"}\n'
    path.write_bytes(pyzstd.compress(b"".join(lines)))
    with (
        TraceReader(path) as reader,
        pytest.raises(TraceError, match="line 4: not a Glasspool record"),
    ):
        list(reader)


def test_a_trace_of_another_version_is_refused(tmp_path):
    line = encode(header(config())).replace(b'"schema_version":1', b'"schema_version":99')
    with pytest.raises(RecordError, match="schema version 99 is not supported"):
        decode(line)
