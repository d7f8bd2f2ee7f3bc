"""Two runs are compared by what happened, not by when or under which names."""

import msgspec
import pytest

from engine.events import diff_traces
from engine.events.records import Allocate, Cache, Computed, RequestAdded, RequestFinished, Step
from tests.core.driver import Driver, config
from tests.events.traces import busy_run, full_header, write_trace

replace = msgspec.structs.replace
RUN = busy_run()


@pytest.fixture
def a(tmp_path):
    return write_trace(tmp_path / "a.jsonl.zst", *RUN)


def disguised(record):
    """The same record of a run at another time, with other names and salts."""
    if not isinstance(record, Step):
        return None
    events = []
    for event in record.events:
        match event:
            case RequestAdded():
                event = replace(event, request=f"other-{event.request}", arrived=5.0)
            case RequestFinished():
                event = replace(event, request=f"other-{event.request}", duration_seconds=9.0)
            case Cache():
                parent = event.parent and event.parent[::-1]
                event = replace(event, hash=event.hash[::-1], parent=parent)
            case _ if hasattr(event, "hash"):
                event = replace(event, hash=event.hash[::-1])
            case _ if hasattr(event, "request"):
                event = replace(event, request=f"other-{event.request}")
        events.append(event)
    return replace(record, time=record.time + 77, events=events)


def test_time_names_and_salts_are_not_compared(a, tmp_path):
    other = [RUN[1][0], *filter(None, map(disguised, RUN[1]))]
    head = replace(RUN[0], engine_id="another", wall_time=5.0)
    diff = diff_traces(a, write_trace(tmp_path / "b.jsonl.zst", head, other))
    assert diff.same
    assert diff.settings == []
    assert {figure.name for figure in diff.figures} > {"seconds"}
    assert not any(figure.name.startswith("totals") for figure in diff.figures)


def test_a_trace_equals_itself_whatever_its_keyframes(a, tmp_path):
    diff = diff_traces(a, write_trace(tmp_path / "b.jsonl.zst", *RUN, events_per_keyframe=500))
    assert diff.same
    assert [figure.name for figure in diff.figures] == ["records"]


def run_with(output):
    driver = Driver(config())
    records = [driver.engine.keyframe()]
    follow = driver.engine.on_record
    driver.engine.on_record = lambda record: (records.append(record), follow(record))
    driver.add(5, max_tokens=8)
    driver.add(5, max_tokens=output)
    driver.run()
    return full_header(driver.config), records


def test_the_first_event_that_differs_is_told_in_a_sentence(tmp_path):
    paths = [write_trace(tmp_path / f"{n}.zst", *run_with(n)) for n in (6, 7)]
    diff = diff_traces(*paths)
    assert (diff.first.seq, diff.first.step) == (0, 0)
    assert "request_added of sequence 1: max_tokens 6 in A, 7 in B" in diff.first.text
    figures = {figure.name: (figure.a, figure.b) for figure in diff.figures}
    assert figures["output_tokens"] == (14, 15)
    assert figures["totals.decode_tokens"][1] == figures["totals.decode_tokens"][0] + 1


def changed(kind, change):
    """The run with the first event of a kind changed by `change(events, place)`."""
    for number, record in enumerate(RUN[1]):
        if isinstance(record, Step):
            for place, event in enumerate(record.events):
                if isinstance(event, kind):
                    events = list(record.events)
                    change(events, place)
                    other = replace(record, events=events)
                    return record, [*RUN[1][:number], other, *RUN[1][number + 1 :]]
    raise AssertionError(kind)


def compare(records):
    """Compare without folding what has been broken on purpose: only up to the changed record."""
    from engine.events.diff import _compare, _Names

    names = _Names(), _Names()
    for one, other in zip(RUN[1], records, strict=True):
        if isinstance(one, Step):
            found = _compare(one, names[0], other, names[1])
            if found is not None:
                return found
    return None


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (Allocate, lambda e, p: e.__setitem__(p, replace(e[p], block=6)), "block 0 in A, 6 in B"),
        (Computed, lambda e, p: e.pop(), "the other run goes on with"),
        (Allocate, lambda e, p: e.__setitem__(p, Computed(0, 1)), "A has allocate"),
        (Cache, lambda e, p: e.__setitem__(p, replace(e[p], parent="x")), "parent"),
    ],
)
def test_what_differs_is_named(kind, change, words):
    record, records = changed(kind, change)
    found = compare(records)
    assert (found.seq, found.step) == (record.seq, record.step)
    assert words in found.text


def test_equal_hashes_in_one_run_must_be_equal_in_the_other():
    """Salts differ, but a block that follows another must do so in both runs."""
    _, records = changed(Cache, lambda e, p: e.__setitem__(p, replace(e[p], hash="fresh")))
    assert "parent" in compare(records).text


def test_a_run_that_ends_sooner_is_told(a, tmp_path):
    shorter = [record for record in RUN[1] if record.seq <= 9]
    diff = diff_traces(a, write_trace(tmp_path / "b.jsonl.zst", RUN[0], shorter))
    assert diff.first.seq == 10
    assert "B ends here" in diff.first.text


def test_a_gap_is_a_difference(a, tmp_path):
    diff = diff_traces(a, write_trace(tmp_path / "b.jsonl.zst", *RUN, gap=(8, 14)))
    assert diff.first.seq == 8
    assert "B has 7 records left out after 7 (slow disk)" in diff.first.text


def test_other_settings_are_listed(a, tmp_path):
    head = replace(RUN[0], config={**RUN[0].config, "watermark": 0.5}, dtype="float16")
    diff = diff_traces(a, write_trace(tmp_path / "b.jsonl.zst", head, RUN[1]))
    assert {figure.name: figure.b for figure in diff.settings} == {
        "config.watermark": 0.5,
        "dtype": "float16",
    }
