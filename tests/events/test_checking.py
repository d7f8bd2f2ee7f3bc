"""`glasspool check` finds every rule that a trace breaks, and names the first bad record."""

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.config import Policy, RequestError
from engine.events.checking import TraceChecker, check_trace, unchecked_rules
from engine.events.records import (
    Allocate,
    AllocationFailed,
    BlockSource,
    Cache,
    Computed,
    CopyOnWrite,
    Durations,
    Evict,
    Fork,
    Gap,
    Keyframe,
    Preempt,
    PrefixLookup,
    QueueLengths,
    Release,
    ReleaseWhy,
    RequestAdded,
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
from tests.core.driver import Driver, config
from tests.events.traces import busy_run, full_header, steps_of, write_trace

replace = msgspec.structs.replace
RUN = busy_run()


def check(head, records):
    """Number of the broken rule, its text and the record that breaks it; None where all hold."""
    checker = TraceChecker(head)
    for record in records:
        broken = checker.apply(record)
        if broken is not None:
            return broken.rule, broken.text, record
    broken = checker.end()
    return None if broken is None else (broken.rule, broken.text, None)


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


def test_a_gap_must_say_what_it_leaves_out():
    head, records = RUN
    begin = next(n for n, r in enumerate(records) if isinstance(r, Keyframe) and r.seq == 8)
    before = [r for r in records[:begin] if r.seq <= 5]
    after = records[begin:]
    assert check(head, [*before, Gap(5, 3, "slow"), *after]) is None
    assert check(head, [*before, Gap(5, 2, "slow"), *after])[0] == 19
    assert check(head, [*before, Gap(4, 4, "slow"), *after])[0] == 19
    assert check(head, [*before, Gap(5, 0, "slow"), *after])[0] == 19


# -- rules that take a made-up run ---------------------------------------------------------------


class Story:
    """Step records written by hand: two requests of one engine, block_size 4."""

    def __init__(self, **sizes) -> None:
        self.driver = Driver(config(**sizes))
        self.head = full_header(self.driver.config)
        self.records = [self.driver.engine.keyframe()]
        follow = self.driver.engine.on_record
        self.driver.engine.on_record = lambda r: (self.records.append(r), follow(r))

    def then(self, *events):
        """What the checker says of one more record with these events, as the next in the run."""
        checker = TraceChecker(self.head)
        for record in self.records:
            assert checker.apply(record) is None
        state = checker.state
        computed = [e for e in events if isinstance(e, Computed)]
        step = Step(
            seq=state.seq + 1,
            step=state.step + bool(computed),
            time=state.time,
            durations=Durations(0.0, 0.0, 0.0),
            tokens=TokenCounts(decode=sum(e.tokens for e in computed)),
            queues=state.queues,
            events=list(events),
        )
        broken = checker.apply(step)
        return None if broken is None else (broken.rule, broken.text)


@pytest.fixture
def two():
    """Requests of 6 tokens run: sequence 0 in blocks 0, 1 and sequence 1 in blocks 2, 3."""
    story = Story()
    story.driver.add(6, max_tokens=9)
    story.driver.add(6, max_tokens=9)
    story.driver.step()
    return story


@pytest.fixture
def forked():
    """Sequences 0 and 1 share block 0, which is full, and block 1, which is not."""
    story = Story()
    story.driver.add(6, n=2, max_tokens=9)
    story.driver.step()
    return story


def released(sequence, *blocks, left=0):
    return [Release(block, sequence, ReleaseWhy.PREEMPTED, left) for block in blocks]


def test_an_older_sequence_is_not_preempted_for_a_younger(two):
    rule, text = two.then(Preempt(0, "no_free_block", 1, 2, 6), *released(0, 1, 0))
    assert rule == 14
    assert "the younger 1 runs on" in text
    assert two.then(Preempt(1, "no_free_block", 0, 2, 6), *released(1, 3, 2))[0] == 20, "queues"


def test_one_that_waits_longer_starts_first():
    story = Story()
    added = [RequestAdded(f"r{n}", n, 6, 1, 9, 0.0) for n in (0, 1)]
    assert story.then(*added, SequenceScheduled(1, "first"))[0] == 14
    assert story.then(*added, SequenceScheduled(0, "first"))[0] != 14


def test_a_full_block_is_never_copied(forked):
    assert forked.then(CopyOnWrite(0, 2, 0, 0, BlockSource.FREE))[0] == 6


def test_a_copy_is_of_the_block_that_is_written_next(forked):
    """The source is partial and shared, but the sequence does not write there."""
    good = CopyOnWrite(1, 2, 0, 1, BlockSource.FREE)
    assert forked.then(good, Computed(0, 1), Computed(1, 1)) is None
    again = CopyOnWrite(2, 3, 0, 1, BlockSource.FREE)
    assert forked.then(good, again)[0] == 19, "a block of one owner"


def test_a_copys_source_is_not_handed_out_in_its_step(forked):
    copy = CopyOnWrite(1, 2, 0, 1, BlockSource.FREE)
    preempt = [Preempt(1, "no_free_block", 0, 2, 6), *released(1, 1), *released(1, 0, left=1)]
    rule, text = forked.then(copy, *preempt, Allocate(1, 0, 2, BlockSource.FREE))
    assert rule == 7
    assert "block 1" in text


def test_a_block_more_than_the_tokens_need_is_found(two):
    assert two.then(Allocate(4, 0, 2, BlockSource.FREE), Computed(0, 1), Computed(1, 1))[0] == 3
    assert two.then(Computed(0, 1), Computed(1, 1)) is None


def test_what_failed_to_start_gets_no_block(two):
    added = RequestAdded("r2", 2, 40, 1, 9, 0.0)
    failed = AllocationFailed(2, 10, 4)
    start = SequenceScheduled(2, "first")
    rule, text = two.then(added, failed, start, Allocate(4, 2, 0, BlockSource.FREE))
    assert rule == 8
    assert "after its allocation failed" in text


@pytest.fixture
def cached():
    """A pool of 6 with blocks 0 and 1 cached (used one after the other), and 2 active."""
    story = Story(num_blocks=6, enable_prefix_caching=True)
    for tokens in ([1, 2, 3, 4, 5], [11, 12, 13, 14, 15]):
        story.driver.add(tokens, max_tokens=1)
        story.driver.run()
    story.driver.add([21, 22], max_tokens=9)
    story.driver.step()
    return story


def hashes(story):
    return {e.hash: e.block for r in story.records[1:] for e in r.events if isinstance(e, Cache)}


def test_blocks_without_content_are_handed_out_before_one_is_evicted(cached):
    digest, block = next(iter(hashes(cached).items()))
    rule, text = cached.then(Evict(block, digest), Allocate(block, 2, 1, BlockSource.EVICTED))
    assert rule == 11
    assert "without content are free" in text


def test_the_least_recently_used_block_is_evicted_first(cached):
    (first, one), (second, two) = hashes(cached).items()
    free = sorted({0, 1, 2, 3, 4, 5} - {one, two} - set(cached.driver.state.owners))
    index = range(1, 9)
    takes = [Allocate(b, 2, i, BlockSource.FREE) for b, i in zip(free, index, strict=False)]
    at = len(takes) + 1
    wrong = [Evict(two, second), Allocate(two, 2, at, BlockSource.EVICTED)]
    rule, text = cached.then(*takes, *wrong)
    assert rule == 11
    assert f"block {one} was not used for longer" in text
    right = [Evict(one, first), Allocate(one, 2, at, BlockSource.EVICTED)]
    assert cached.then(*takes, *right)[0] == 3, "only the table is too long then"


def test_a_prefix_is_only_shared_from_the_index(cached):
    added = [RequestAdded("new", 3, 9, 1, 2, 0.0), SequenceScheduled(3, "first")]
    (active,) = cached.driver.state.owners
    assert cached.then(*added, Share(active, 3, 0, ShareWhy.PREFIX))[0] == 10


def test_a_block_is_cached_only_as_it_is_filled(cached):
    (active,) = cached.driver.state.owners
    rule, text = cached.then(Computed(2, 1), Cache(active, "new"))
    assert (rule, "not filled just now" in text) == (9, True) or rule == 19


# -- the whole file -------------------------------------------------------------------------------


def test_a_fault_is_one_sentence_with_step_record_line_and_rule(tmp_path):
    head, records, changed = edit(CopyOnWrite, drop)
    path = write_trace(tmp_path / "bad.jsonl.zst", head, records, events_per_keyframe=40)
    report = check_trace(path)
    assert (report.fault.seq, report.fault.step) == (changed.seq, changed.step)
    import pyzstd

    lines = pyzstd.ZstdFile(path).read().splitlines()
    assert f'"seq":{changed.seq},'.encode() in lines[report.fault.line - 1]
    assert str(report.fault).endswith(RULES[5])
    assert "\n" not in str(report.fault)


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
