"""A trace can be entered anywhere, and what is found there is what reading from the start gives."""

import pytest
import pyzstd

from engine.events import PoolState, SeekableTrace, TraceError, TraceReader, index
from engine.events.records import CopyOnWrite, Fork, Gap, Keyframe, Preempt, Step
from tests.core.driver import sorted_rows
from tests.events.traces import busy_run, steps_of, write_trace


@pytest.fixture(scope="module")
def run():
    return busy_run()


@pytest.fixture
def trace(tmp_path, run):
    return SeekableTrace(write_trace(tmp_path / "run.jsonl.zst", *run))


def folded(path, upto):
    with TraceReader(path) as reader:
        for _, state in reader.fold():
            if state.complete and state.seq == upto:
                return state
    raise AssertionError(f"no record {upto}")


def test_the_run_has_what_these_tests_are_about(run):
    kinds = {type(event).__name__ for step in steps_of(run[1]) for event in step.events}
    assert len(kinds) == 17, "every kind of event but pool_reset"


def test_the_state_at_any_record_is_that_of_reading_from_the_start(trace):
    assert len(trace.keyframes) > 5
    for seq in range(trace.first_seq, trace.last_seq + 1):
        state = trace.state_at(seq)
        whole = folded(trace.path, seq)
        assert sorted_rows(state.keyframe()) == sorted_rows(whole.keyframe())
        assert state.queues == whole.queues


def test_records_go_on_from_any_record(trace, run):
    steps = steps_of(run[1])
    for seq in (-1, 0, 7, trace.last_seq - 1, trace.last_seq):
        got = [r for r in trace.records_after(seq) if isinstance(r, Step)]
        assert got == steps[seq + 1 :]


def test_ends_and_keyframes_are_known_without_reading(trace, run):
    steps = steps_of(run[1])
    assert (trace.first_seq, trace.last_seq) == (-1, steps[-1].seq)
    assert trace.last_step == steps[-1].step
    assert (trace.first_time, trace.last_time) == (run[1][0].time, steps[-1].time)
    for frame in trace.keyframes:
        assert frame.totals == folded(trace.path, frame.seq).totals


def test_a_record_is_found_by_its_step_and_by_its_time(trace, run):
    steps = steps_of(run[1])
    for step in steps:
        first = next(s.seq for s in steps if s.step >= step.step)
        assert trace.seq_of_step(step.step) == first
        assert trace.seq_at_time(step.time) == step.seq
        assert trace.seq_at_time(step.time - 1e-9) == step.seq - 1
    assert trace.seq_of_step(10**6) == trace.last_seq


@pytest.mark.parametrize("kinds", [(Preempt,), (CopyOnWrite,), (Fork,), (Preempt, Fork)])
def test_the_next_and_the_previous_event_of_a_kind_are_found(trace, run, kinds):
    having = [s.seq for s in steps_of(run[1]) if any(isinstance(e, kinds) for e in s.events)]
    assert having
    for seq in range(-1, trace.last_seq + 2):
        assert trace.next_with(kinds, seq) == next((s for s in having if s > seq), None)
        assert trace.previous_with(kinds, seq) == next((s for s in having[::-1] if s < seq), None)


def test_parts_without_an_event_are_not_read_for_it(trace, monkeypatch):
    read = []
    steps = trace._steps
    monkeypatch.setattr(trace, "_steps", lambda place: read.append(place) or steps(place))
    assert trace.next_with([Preempt], trace.first_seq) is not None
    totals = [frame.totals.preemptions for frame in trace.keyframes]
    first = next(place for place, later in enumerate(totals[1:]) if later)
    assert read == [first]


@pytest.fixture
def gapped(tmp_path, run):
    return SeekableTrace(write_trace(tmp_path / "run.jsonl.zst", *run, gap=(8, 14)))


def test_a_record_in_a_gap_is_refused_and_those_around_it_are_found(gapped, run):
    for seq in range(8, 14):
        with pytest.raises(TraceError, match=rf"record {seq} was left out.* 8 to 14 \(slow disk\)"):
            gapped.state_at(seq)
    for seq in (7, 14, 15, gapped.last_seq):
        (keyframe,) = [r for r in run[1] if isinstance(r, Keyframe) and r.seq == seq]
        assert sorted_rows(gapped.state_at(seq).keyframe()) == sorted_rows(keyframe)
    assert next(gapped.records_after(7)) == Gap(7, 7, "slow disk")


def test_a_record_outside_the_trace_is_refused_with_its_ends(trace):
    for seq in (-2, trace.last_seq + 1):
        with pytest.raises(TraceError, match=rf"no record {seq}: it goes from -1 to"):
            trace.state_at(seq)


def test_a_cut_off_trace_is_sought_up_to_its_last_whole_record_and_says_what_is_missing(
    tmp_path, run
):
    path = write_trace(tmp_path / "run.jsonl.zst", *run, events_per_keyframe=60)
    data = path.read_bytes()
    for size in range(len(data) // 2, len(data) - 60, 97):
        path.write_bytes(data[:size])
        trace = SeekableTrace(path)
        with TraceReader(path) as reader:
            last = [r.seq for r in reader][-1]
            assert (trace.missing is None) == (reader.cut_off is None)
        assert trace.last_seq == last
        assert trace.state_at(last).seq == last
        if trace.missing:
            assert "cut off" in trace.missing
            with pytest.raises(TraceError, match="cut off"):
                trace.state_at(last + 1)


def test_a_trace_in_one_frame_is_sought_too(tmp_path, run):
    path = write_trace(tmp_path / "run.jsonl.zst", *run)
    lines = pyzstd.ZstdFile(path).read()
    path.write_bytes(pyzstd.compress(lines))
    trace = SeekableTrace(path)
    assert len(trace.keyframes) == 1
    seq = trace.last_seq - 3
    assert sorted_rows(trace.state_at(seq).keyframe()) == sorted_rows(folded(path, seq).keyframe())


def test_the_index_of_a_large_trace_is_kept_and_used_until_the_trace_is_another(
    tmp_path, run, monkeypatch
):
    path = write_trace(tmp_path / "run.jsonl.zst", *run)
    kept = tmp_path / "run.jsonl.zst.index"
    SeekableTrace(path)
    assert not kept.exists(), "a small trace is left alone"
    monkeypatch.setattr(index, "KEPT_FROM_FRAMES", 3)
    first = SeekableTrace(path)
    assert kept.exists()
    built = []
    build = index.build_index
    monkeypatch.setattr(index, "build_index", lambda *a: built.append(1) or build(*a))
    assert SeekableTrace(path).keyframes == first.keyframes
    assert built == []
    write_trace(path, *run, events_per_keyframe=20)
    other = SeekableTrace(path)
    assert built == [1]
    assert other.state_at(other.last_seq).seq == first.last_seq
    kept.write_bytes(b"{}")
    SeekableTrace(path)
    assert built == [1, 1]


def test_where_the_folder_cannot_be_written_the_index_goes_to_the_users_cache(
    tmp_path, run, monkeypatch
):
    monkeypatch.setattr(index, "KEPT_FROM_FRAMES", 3)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_trace(tmp_path / "run.jsonl.zst", *run)
    (tmp_path / "run.jsonl.zst.index").mkdir()
    SeekableTrace(path)
    assert len(list((tmp_path / "cache" / "glasspool" / "traces").glob("*.index"))) == 1


def test_damage_behind_a_keyframe_is_named_with_its_line(tmp_path, run):
    path = write_trace(tmp_path / "run.jsonl.zst", *run, events_per_keyframe=60)
    lines = pyzstd.ZstdFile(path).read().splitlines(keepends=True)
    keyframes = [n for n, line in enumerate(lines) if line.startswith(b'{"type":"keyframe"')]
    bad = keyframes[1] + 2
    lines[bad] = b'{"type":"step","seq":"x"}\n'
    path.write_bytes(
        pyzstd.compress(b"".join(lines[: keyframes[1]]))
        + pyzstd.compress(b"".join(lines[keyframes[1] :]))
    )
    trace = SeekableTrace(path)
    assert f"line {bad + 1}: not a Glasspool record" in trace.missing
    assert trace.state_at(trace.last_seq).complete


def test_progress_is_told_up_to_the_whole_file(tmp_path, run):
    path = write_trace(tmp_path / "run.jsonl.zst", *run)
    told = []
    SeekableTrace(path, lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert told[-1] == (size, size)
    assert told == sorted(told)


def test_the_figures_that_events_move_are_those_that_a_count_gives(run):
    """The fold keeps them for every step, so they must not drift."""
    head, records = run
    state = PoolState(head)
    for record in records:
        if isinstance(record, Step) or not state.complete:
            state.apply(record)
        owners = state.owners.values()
        assert state.cached_blocks == sum(b not in state.owners for b in state.hashes)
        assert state.shared_blocks == sum(len(o) > 1 for o in owners)
        assert state.references == sum(len(o) for o in owners)
        assert state.slots_filled == sum(state.filled[b] for b in state.owners)
        loaded = PoolState(head)
        loaded.apply(state.keyframe())
        for name in ("cached_blocks", "shared_blocks", "references", "slots_filled", "queues"):
            assert getattr(loaded, name) == getattr(state, name)
