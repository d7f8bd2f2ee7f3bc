"""Each rule of `glasspool check` is found broken, at the record that breaks it."""

from collections.abc import Callable

import msgspec
import pytest
import pyzstd

from engine.events.checking import check_trace
from engine.events.records import (
    Allocate,
    AllocationFailed,
    BlockSource,
    Cache,
    Computed,
    CopyOnWrite,
    Evict,
    Keyframe,
    PrefixLookup,
    QueueLengths,
    Release,
    ReleaseWhy,
    RequestFinished,
    RequestRow,
    Sampled,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Share,
    ShareWhy,
    Step,
    TokenCounts,
)
from engine.events.rules.broken import RULES
from tests.events.checked import RUN, check
from tests.events.traces import steps_of, write_trace

replace = msgspec.structs.replace


def edit(kind, change: Callable, wanted: Callable = lambda event: True):
    """The run with the first event of a kind (that is wanted) changed; the changed step.

    `change` gets the step's events and the event's place, and changes the list or returns a step's
    other fields.
    """
    head, records = RUN
    for number, record in enumerate(records):
        if not isinstance(record, Step):
            continue
        for place, event in enumerate(record.events):
            if isinstance(event, kind) and wanted(event):
                events = list(record.events)
                fields = change(events, place) or {}
                changed = replace(record, **{"events": events, **fields})
                return head, [*records[:number], changed, *records[number + 1 :]], changed
    raise AssertionError(f"the run has no such {kind.__name__}")


def put(**fields):
    """Change fields of the event."""

    def change(events, place):
        events[place] = replace(events[place], **fields)

    return change


def drop(events, place):
    del events[place]


def repeat(events, place):
    events.insert(place, events[place])


MUTATIONS = {
    "a token sampled twice": (4, "samples with", Sampled, repeat),
    "a copy left out": (5, "which has ref count 2", CopyOnWrite, drop),
    "a fork that allocates": (6, "instead of a share", Share, None),
    "a fork that shares less": (6, "forks from", Share, None),
    "a failure with blocks enough": (8, "are said to be available", AllocationFailed, None),
    "a failure without need": (8, "fails with", AllocationFailed, put(needed=0)),
    "a hash of the wrong parent": (9, "another block than the one before", Cache, put(parent="x")),
    "a block cached twice": (9, "is cached already", Cache, repeat),
    "a hit too long": (10, "has a hit of", PrefixLookup, put(hit=4)),
    "another prompt": (10, "its prompt has", PrefixLookup, put(queried=99)),
    "evicted called free": (
        11,
        "but was evicted just before",
        Allocate,
        put(source=BlockSource.FREE),
    ),
    "free called evicted": (11, "but was not evicted", Allocate, put(source=BlockSource.EVICTED)),
    "evicted and kept": (11, "evicted and not handed out", Evict, repeat),
    "computed twice": (12, "runs twice in one step", Computed, repeat),
    "a release left out": (13, "is preempted, and", Release, drop),
    "resumed called first": (
        13,
        "is scheduled as",
        SequenceScheduled,
        put(kind=ScheduledKind.FIRST),
    ),
    "recomputed called new": (13, "tokens again", Computed, put(recomputed=0)),
    "an unknown sequence": (19, "unknown sequence", Computed, put(sequence=99)),
    "a block that is taken": (19, "is not free", Allocate, None),
    "preemptions forgotten": (20, "preemptions, it had", RequestFinished, put(preemptions=7)),
    "output forgotten": (20, "its sequences have", RequestFinished, put(output_tokens=77)),
    "time that runs back": (20, "first token after", RequestFinished, put(queue_seconds=99.0)),
    "too much output": (12, "max_tokens is", SequenceFinished, put(output_tokens=50)),
    "an end too early": (4, "of them computed", SequenceFinished, put(output_tokens=1)),
}

WANTED = {
    "a fork that allocates": lambda e: e.why is ShareWhy.FORK,
    "a fork that shares less": lambda e: e.why is ShareWhy.FORK,
    "evicted called free": lambda e: e.source is BlockSource.EVICTED,
    "free called evicted": lambda e: e.source is BlockSource.FREE,
    "a release left out": lambda e: e.why is ReleaseWhy.PREEMPTED,
    "resumed called first": lambda e: e.kind is ScheduledKind.RESUMED,
    "recomputed called new": lambda e: e.recomputed,
    "a hash of the wrong parent": lambda e: e.parent is not None,
    "another prompt": lambda e: not e.resumed and e.hit == 0,
    "an end too early": lambda e: e.reason == "length" and e.output_tokens > 2,
    "output forgotten": lambda e: e.reason == "length",
    "too much output": lambda e: e.reason == "length",
}


def allocate_instead(events, place):
    share = events[place]
    events[place] = Allocate(6, share.sequence, share.index, BlockSource.FREE)


def share_less(events, place):
    last = max(i for i, e in enumerate(events) if isinstance(e, Share) and e.why is ShareWhy.FORK)
    del events[last]


def one_more_available(events, place):
    event = events[place]
    events[place] = replace(event, available=event.available + 1, needed=event.needed + 9)


def take_the_first_again(events, place):
    events.insert(place + 1, replace(events[place], index=events[place].index + 1))


SPECIAL = {
    "a fork that allocates": allocate_instead,
    "a fork that shares less": share_less,
    "a failure with blocks enough": one_more_available,
    "a block that is taken": take_the_first_again,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_found_where_it_is_broken(name):
    rule, words, kind, change = MUTATIONS[name]
    head, records, changed = edit(
        kind, SPECIAL.get(name, change), WANTED.get(name, lambda event: True)
    )
    found = check(head, records)
    assert found is not None
    assert (found[0], found[2]) == (rule, changed), found[1]
    assert words in found[1]


def edit_step(wanted, **fields):
    """The run with fields of the first wanted step changed."""
    head, records = RUN
    for number, record in enumerate(records):
        if isinstance(record, Step) and wanted(record):
            changed = replace(record, **fields)
            return head, [*records[:number], changed, *records[number + 1 :]], changed
    raise AssertionError("no such step")


@pytest.mark.parametrize(
    ("rule", "words", "fields"),
    [
        (19, "records are missing", {"seq": 6}),
        (19, "has number 9, 5 comes next", {"step": 9}),
        (19, "began at", {"time": -1.0}),
        (20, "the step counts", {"tokens": TokenCounts(prefill=1)}),
        (20, "its events lead to", {"queues": QueueLengths(0, 0, 9)}),
    ],
)
def test_a_step_that_miscounts_is_found(rule, words, fields):
    head, records, changed = edit_step(lambda step: step.seq == 5, **fields)
    found = check(head, records)
    assert (found[0], found[2]) == (rule, changed)
    assert words in found[1]


def test_prefill_called_decode_is_found():
    head, records, changed = edit_step(
        lambda step: step.tokens.prefill > 2, tokens=TokenCounts(decode=0)
    )
    right = steps_of(RUN[1])[changed.seq].tokens
    wrong = TokenCounts(right.prefill - 1, right.decode + 1, right.recompute)
    records = [replace(r, tokens=wrong) if r is changed else r for r in records]
    rule, words, _ = check(head, records)
    assert rule == 20
    assert "prefill tokens" in words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_num_batched_tokens", 3, "tokens run, max_num_batched_tokens is 3"),
        ("max_num_seqs", 1, "sequences run, max_num_seqs is 1"),
        ("long_prefill_token_threshold", 2, "long_prefill_token_threshold is 2"),
    ],
)
def test_a_step_over_its_limits_is_found(name, value, words):
    head, records = RUN
    rule, text, _ = check(replace(head, config={**head.config, name: value}), records)
    assert rule == 12
    assert words in text


def test_a_cached_block_in_an_engine_without_caching_is_found():
    head, records = RUN
    off = replace(head, config={**head.config, "enable_prefix_caching": False})
    assert check(off, records)[:2] == (9, check(off, records)[1])
    assert "caching is off" in check(off, records)[1]


def first_block(keyframe, **fields):
    return [replace(keyframe.blocks[0], **fields), *keyframe.blocks[1:]]


KEYFRAME_FAULTS = {
    "a ref count": (2, lambda k: {"blocks": first_block(k, ref_count=7)}),
    "a block left out": (2, lambda k: {"blocks": k.blocks[1:]}),
    "a total": (20, lambda k: {"totals": replace(k.totals, released=999)}),
    "a sequence left out": (19, lambda k: {"sequences": k.sequences[1:]}),
    "a request too many": (19, lambda k: {"requests": [*k.requests, RequestRow("?", 1, 1, 1, 0.0)]}),
    "another record": (19, lambda k: {"seq": k.seq + 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYFRAME_FAULTS)
def test_a_keyframe_that_is_not_the_fold_is_found(name):
    rule, change = KEYFRAME_FAULTS[name]
    head, records = RUN
    number = [n for n, r in enumerate(records) if isinstance(r, Keyframe)][5]
    changed = replace(records[number], **change(records[number]))
    found = check(head, [*records[:number], changed, *records[number + 1 :]])
    assert (found[0], found[2]) == (rule, changed)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (1, lambda k: {"blocks": first_block(k, ref_count=k.blocks[0].ref_count + 1)}),
        (1, lambda k: {"sequences": k.sequences[1:]}),
        (19, lambda k: {"requests": []}),
        (9, lambda k: {"blocks": [replace(b, hash="same") if b.hash else b for b in k.blocks]}),
    ],
)  # fmt: skip
def test_a_first_keyframe_that_contradicts_itself_is_found(rule, change):
    head, records = RUN
    number = next(
        n for n, r in enumerate(records)
        if isinstance(r, Keyframe) and sum(b.hash is not None for b in r.blocks) > 1
    )  # fmt: skip
    found = check(head, [replace(records[number], **change(records[number]))])
    assert found[0] == rule


def test_a_fault_is_one_sentence_with_step_record_line_and_rule(tmp_path):
    head, records, changed = edit(CopyOnWrite, drop)
    path = write_trace(tmp_path / "bad.jsonl.zst", head, records, events_per_keyframe=40)
    report = check_trace(path)
    assert (report.fault.seq, report.fault.step) == (changed.seq, changed.step)
    lines = pyzstd.ZstdFile(path).read().splitlines()
    assert f'"seq":{changed.seq},'.encode() in lines[report.fault.line - 1]
    assert str(report.fault).endswith(RULES[5])
    assert "\n" not in str(report.fault)
