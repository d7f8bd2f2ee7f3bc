"""What a recorded run was asked, taken out of its trace and asked again."""

from pathlib import Path

import msgspec
import pytest

from engine.core.config import ConfigError, EngineConfig
from engine.core.runner import StepCost
from engine.events import TraceError, TraceReader, TraceWriter, encode
from engine.events.records import Gap, PrefixLookup, RequestAdded, SequenceFinished, Step
from engine.simulate.recorded import read_recorded, recorded_config
from engine.simulate.runs import Scene, run_one
from engine.simulate.settings import Variation
from engine.simulate.source import Workload
from engine.workloads.request import WorkloadRequest
from tests.core.driver import Driver
from tests.events.traces import busy_run, full_header, write_trace
from tests.simulate.events_of import comparable, steps_of_trace
from tests.simulate.test_simulation import BASE, COST, busy, config, scene

SYSTEM = {"prefix_ids": (7,), "prefix_block_tokens": 16}
ALIKE = [WorkloadRequest(10.0 * i, 20, 6, **SYSTEM) for i in range(4)]
"""Prompts of 20 tokens, the first 16 of them the same; one after another."""


def recorded_run(path: Path, requests: list[WorkloadRequest], **changes) -> Path:
    run_one(scene(requests, **changes), BASE, path)
    return path


def asked_again(path: Path, trace: Path | None = None, cost: StepCost = COST, **changes):
    recorded = read_recorded(path)
    again = Scene(
        recorded, recorded_config(recorded.header, {}), cost, recorded.shape, recorded.anchor
    )
    return run_one(again, Variation(changes), trace)


def hits(path: Path) -> list[int]:
    events = [event for step in steps_of_trace(path) for event in step.events]
    return [e.hit for e in events if isinstance(e, PrefixLookup)]


def edited(source: Path, target: Path, header=None, keep=lambda record: True) -> Path:
    with TraceReader(source) as reader:
        records = list(reader)
        writer = TraceWriter(target, header or reader.header, records[0])
    for record in records[1:]:
        if keep(record):
            writer.write(encode(record))
    writer.close()
    return target


def with_header(source: Path, target: Path, **changes) -> Path:
    with TraceReader(source) as reader:
        header = msgspec.structs.replace(reader.header, **changes)
    return edited(source, target, header)


def without_beams() -> list[WorkloadRequest]:
    return [request for request in busy() if not request.use_beam_search]


def test_the_same_configuration_and_cost_give_the_same_run_with_arrivals_over_time(tmp_path):
    path, again = tmp_path / "a.jsonl.zst", tmp_path / "b.jsonl.zst"
    recorded_run(path, without_beams())
    asked_again(path, again)
    assert comparable(steps_of_trace(again)) == comparable(steps_of_trace(path))
    assert [s.time for s in steps_of_trace(again)] == pytest.approx(
        [s.time for s in steps_of_trace(path)]
    )


def test_requests_that_are_equal_in_one_step_are_known_to_be_equal_by_a_later_block(tmp_path):
    """The second enters no block of the first's into the index; its own block names them as parents."""
    twins = [WorkloadRequest(0.0, 22, 6, **SYSTEM) for _ in range(2)]
    late = WorkloadRequest(50.0, 22, 6, **SYSTEM)
    path, again = tmp_path / "a.jsonl.zst", tmp_path / "b.jsonl.zst"
    recorded_run(path, [*twins, late], max_num_batched_tokens=64)
    asked_again(path, again)
    assert comparable(steps_of_trace(again)) == comparable(steps_of_trace(path))
    # Asked one by one, the second finds what it only equalled before.
    one_by_one = tmp_path / "c.jsonl.zst"
    asked_again(path, one_by_one, max_num_seqs=1)
    assert hits(path) == [0, 0, 16]
    assert hits(one_by_one) == [0, 16, 16]


@pytest.mark.parametrize(("block_size", "found"), [(2, 16), (4, 16), (8, 16), (16, 16), (5, 15)])
def test_what_was_equal_is_equal_under_another_block_size(tmp_path, block_size, found):
    path, again = tmp_path / "a.jsonl.zst", tmp_path / "b.jsonl.zst"
    recorded_run(path, ALIKE)
    asked_again(path, again, block_size=block_size)
    assert hits(again) == [0, found, found, found]


def test_equality_within_a_recorded_block_is_not_made_up(tmp_path):
    """Recorded with blocks of 8 a prompt of 20 has 16 in full blocks, the rest is not known."""
    same = [WorkloadRequest(10.0 * i, 20, 6, prefix_ids=(7,), prefix_block_tokens=20)
            for i in range(2)]  # fmt: skip
    path, again = tmp_path / "a.jsonl.zst", tmp_path / "b.jsonl.zst"
    recorded_run(path, same, block_size=8)
    asked_again(path, again, block_size=2)
    assert hits(again) == [0, 16]


def test_another_block_size_keeps_the_memory(tmp_path):
    path = recorded_run(tmp_path / "a.jsonl.zst", ALIKE, num_blocks=24)
    outcome = asked_again(path, block_size=8)
    assert (outcome.num_blocks, outcome.block_size) == (12, 8)
    outcome = asked_again(path, block_size=8, num_gpu_blocks_override=20)
    assert outcome.num_blocks == 20


def test_caching_can_be_turned_off_and_its_hits_are_gone(tmp_path):
    path, again = tmp_path / "a.jsonl.zst", tmp_path / "b.jsonl.zst"
    recorded_run(path, ALIKE)
    assert asked_again(path).figures.prefix_hit_rate == pytest.approx(48 / 80)
    asked_again(path, again, enable_prefix_caching=False)
    assert hits(again) == [0, 0, 0, 0]


def test_without_caching_nothing_is_known_to_be_equal_and_that_is_said(tmp_path):
    path, again = tmp_path / "a.jsonl.zst", tmp_path / "b.jsonl.zst"
    recorded_run(path, ALIKE, enable_prefix_caching=False)
    asked_again(path, again, enable_prefix_caching=True)
    assert hits(again) == [0, 0, 0, 0]
    assert "nothing is known to be equal" in " ".join(read_recorded(path).notes)


def test_recorded_text_tells_what_was_equal_within_a_block_too(tmp_path):
    """The driver records text, and takes its prompts from 1, 2, 3, …: all are equal."""
    driver = Driver(config(block_size=8, enable_prefix_caching=True))
    records = [driver.engine.keyframe()]
    follow = driver.engine.on_record
    driver.engine.on_record = lambda record: (records.append(record), follow(record))
    for _ in range(2):
        driver.add(20, max_tokens=4)
        driver.run()
    path = write_trace(tmp_path / "a.jsonl.zst", full_header(driver.config), records)
    again = tmp_path / "b.jsonl.zst"
    asked_again(path, again, block_size=2)
    assert hits(again) == [0, 18]
    assert read_recorded(path).notes == ["Equal tokens are known from the recorded text."]


def test_a_second_turn_finds_the_blocks_of_the_first_answer(tmp_path):
    """Its prompt is the first prompt and answer, which its hashes name."""
    from engine.simulate.asked import Asked
    from engine.simulate.simulation import Simulation
    from tests.core.driver import header

    said = list(range(100, 110))
    turns = [
        Asked("one", 0.0, list(range(6)), (said, list(range(200, 209))), 10, n=2),
        Asked("two", 50.0, [*range(6), *said[:9], 1, 2, 3], ([4, 5],), 2),
        Asked("other two", 60.0, [*range(6), *range(200, 208), 1, 2], ([4, 5],), 2),
    ]
    of = config()
    simulation = Simulation(of, COST)
    records = [simulation.engine.keyframe()]
    simulation.engine.on_record = records.append
    simulation.run(turns)
    path = write_trace(
        tmp_path / "a.jsonl.zst",
        msgspec.structs.replace(full_header(of), redacted=["text"]),
        records,
    )
    assert header(of).block_size == 4
    assert hits(path) == [0, 12, 12]
    again = tmp_path / "b.jsonl.zst"
    asked_again(path, again)
    assert hits(again) == [0, 12, 12]
    assert comparable(steps_of_trace(again)) == comparable(steps_of_trace(path))


def test_the_recorded_figures_stand_beside_the_simulated_ones(tmp_path):
    path = recorded_run(tmp_path / "a.jsonl.zst", without_beams())
    recorded, outcome = read_recorded(path), asked_again(path)
    assert recorded.figures.preemptions == outcome.figures.preemptions > 0
    for name in ("steps", "finished", "output_tokens", "prefix_hit_rate", "utilisation_peak"):
        assert getattr(recorded.figures, name) == pytest.approx(getattr(outcome.figures, name))
    assert recorded.figures.utilisation_mean == pytest.approx(outcome.figures.utilisation_mean)


def test_what_cannot_be_known_is_told(tmp_path):
    """An abort, a refusal and beams, in a trace of hashes only."""
    head, records = busy_run()
    path = write_trace(tmp_path / "a.jsonl.zst", head, records)
    told = " ".join(read_recorded(path).notes)
    assert "Without a single output token: 1." in told
    assert "Refused: 1." in told
    assert "Beam searches: 1." in told
    asked_again(path)


def test_sequences_without_an_end_get_what_they_had(tmp_path):
    path = recorded_run(tmp_path / "a.jsonl.zst", without_beams())
    cut = edited(path, tmp_path / "cut.jsonl.zst", keep=lambda record: record.seq < 8)
    recorded = read_recorded(cut)
    assert "had not ended when the trace did: 4." in " ".join(recorded.notes)
    drawn = {}
    events = [event for step in steps_of_trace(cut) for event in step.events]
    ended = {e.sequence: e.output_tokens for e in events if isinstance(e, SequenceFinished)}
    first = {e.request: e.sequence for e in events if isinstance(e, RequestAdded)}
    for request in recorded.requests():
        drawn[request.request_id] = len(request.outputs[0])
    assert drawn["r0"] == ended.get(first["r0"], 8)
    asked_again(cut)


def test_a_trace_with_a_gap_is_asked_again_without_what_it_hid(tmp_path):
    head, records = busy_run()
    path = write_trace(tmp_path / "a.jsonl.zst", head, records, gap=(6, 9))
    with TraceReader(path) as reader:
        assert any(isinstance(record, Gap) for record in reader)
    assert "Records missing in gaps: 4." in " ".join(read_recorded(path).notes)
    asked_again(path)


def test_a_trace_that_begins_in_the_middle_asks_for_what_was_running(tmp_path):
    """As a recorder does that goes on in a new file: a keyframe with unfinished sequences first."""
    head, records = busy_run()
    middle = next(
        i for i, r in enumerate(records) if not isinstance(r, Step) and len(r.sequences) > 2
    )
    path = write_trace(tmp_path / "a.jsonl.zst", head, records[middle:])
    recorded = read_recorded(path)
    names = {request.request_id for request in recorded.requests()}
    assert {row.request for row in records[middle].requests} <= names
    assert min(request.arrival for request in recorded.requests()) >= records[middle].time
    asked_again(path)


def test_files_that_are_no_trace_and_headers_that_say_too_little_are_refused(tmp_path):
    junk = tmp_path / "junk.jsonl.zst"
    junk.write_bytes(b"no trace")
    with pytest.raises(TraceError, match="not a readable Glasspool trace"):
        read_recorded(junk)
    path = recorded_run(tmp_path / "a.jsonl.zst", ALIKE)
    silent = read_recorded(with_header(path, tmp_path / "b.jsonl.zst", config={}))
    with pytest.raises(ConfigError, match=r"does not say max_model_len, .*--max-num-seqs N"):
        recorded_config(silent.header, {})
    sizes = {"max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 32}
    assert recorded_config(silent.header, sizes) == EngineConfig(
        block_size=4, num_blocks=17, **sizes
    )
    with TraceReader(path) as reader:
        values = {**reader.header.config, "max_num_seqs": "many"}
    odd = read_recorded(with_header(path, tmp_path / "c.jsonl.zst", config=values))
    with pytest.raises(ConfigError, match="can't be used: Expected `int`, got `str`"):
        recorded_config(odd.header, {})


def test_a_trace_in_which_nothing_was_answered_is_refused(tmp_path):
    path = recorded_run(tmp_path / "a.jsonl.zst", ALIKE)
    empty = edited(path, tmp_path / "b.jsonl.zst", keep=lambda record: False)
    with pytest.raises(ConfigError, match="nothing to replay"):
        read_recorded(empty)


def test_a_producer_without_blocks_gives_arrivals_and_lengths(tmp_path):
    path = recorded_run(tmp_path / "a.jsonl.zst", ALIKE, enable_prefix_caching=False)
    with TraceReader(path) as reader:
        known = [name for name in reader.header.knows if "block" not in name]
    blind = with_header(path, tmp_path / "b.jsonl.zst", knows=known)
    assert len(Workload("", ALIKE, 0)._requests) == read_recorded(blind).count
