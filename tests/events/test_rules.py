"""Rules that no small change of a recorded run breaks: records written by hand, after a short run."""

import msgspec
import pytest

from engine.events.checking import TraceChecker
from engine.events.records import (
    Allocate,
    AllocationFailed,
    BlockSource,
    Cache,
    Computed,
    CopyOnWrite,
    Durations,
    Evict,
    FinishReason,
    Fork,
    Keyframe,
    LookupStop,
    Preempt,
    PrefixLookup,
    Release,
    ReleaseWhy,
    RequestAdded,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Share,
    ShareWhy,
    Step,
    TokenCounts,
)
from tests.core.driver import Driver, config
from tests.events.traces import full_header

replace = msgspec.structs.replace
FREE, EVICTED = BlockSource.FREE, BlockSource.EVICTED


class Story:
    """A short run, after which `then` tells what the checker says of one more record."""

    def __init__(self, **sizes) -> None:
        self.driver = Driver(config(**sizes))
        self.head = full_header(self.driver.config)
        self.records = [self.driver.engine.keyframe()]
        follow = self.driver.engine.on_record
        self.driver.engine.on_record = lambda r: (self.records.append(r), follow(r))

    def then(self, *events, tokens=None, **fields):
        """Rule and text; None where the record keeps every rule."""
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
            tokens=tokens or TokenCounts(decode=sum(e.tokens for e in computed)),
            queues=state.queues,
            events=list(events),
        )
        broken = checker.apply(replace(step, **fields))
        return None if broken is None else (broken.rule, broken.text)


def breaks(found, rule, words):
    assert found is not None
    assert found[0] == rule, found
    assert words in found[1]
    return True


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


@pytest.fixture
def cached():
    """Blocks 0 and 1 of 6 are cached, used one after the other; sequence 2 runs in another."""
    story = Story(num_blocks=6, enable_prefix_caching=True)
    for tokens in ([1, 2, 3, 4, 5], [11, 12, 13, 14, 15]):
        story.driver.add(tokens, max_tokens=1)
        story.driver.run()
    story.driver.add([21, 22], max_tokens=9)
    story.driver.step()
    return story


def hashes(story):
    """Hash -> block, in the order of caching."""
    return {e.hash: e.block for r in story.records[1:] for e in r.events if isinstance(e, Cache)}


def released(sequence, *blocks, left=0, why=ReleaseWhy.PREEMPTED):
    return [Release(block, sequence, why, left) for block in blocks]


NEW = [RequestAdded("new", 2, 6, 1, 9, 0.0)]
"""A third request, that waits."""
START = [*NEW, SequenceScheduled(2, ScheduledKind.FIRST)]


def test_the_stories_go_on_without_a_fault(two, forked):
    assert two.then(Computed(0, 1), Computed(1, 1)) is None
    copy = CopyOnWrite(1, 2, 0, 1, FREE)
    assert forked.then(copy, Computed(0, 1), Computed(1, 1)) is None


# -- blocks ---------------------------------------------------------------------------------------


def test_a_block_more_than_the_tokens_need_is_found(two):
    extra = two.then(Allocate(4, 0, 2, FREE), Computed(0, 1), Computed(1, 1))
    assert breaks(extra, 3, "7 computed tokens in 3 blocks")


def test_a_block_of_the_prefix_index_is_not_written(two):
    """Only a keyframe can say that a block that is not full is in the index."""
    keyframe = two.driver.engine.keyframe()
    blocks = [replace(row, hash="x") if row.block == 1 else row for row in keyframe.blocks]
    two.records = [replace(keyframe, blocks=blocks)]
    assert breaks(two.then(Computed(0, 1), Computed(1, 1)), 5, "which is in the prefix index")


def test_a_full_block_is_never_copied(forked):
    assert breaks(forked.then(CopyOnWrite(0, 2, 0, 0, FREE)), 6, "block 0 is full")


def test_a_copy_is_of_the_block_that_is_written_next():
    """A sequence at a block's end writes into the next block, so nothing is to be copied."""
    story = Story()
    story.driver.add(4, n=2, max_tokens=9)
    story.driver.step()
    keyframe = story.driver.engine.keyframe()
    rows = [replace(row, filled=3) for row in keyframe.blocks]
    story.records = [replace(keyframe, blocks=rows)]
    assert breaks(story.then(CopyOnWrite(0, 2, 0, 0, FREE)), 6, "but writes at token 4")


def test_a_copys_source_is_not_handed_out_in_its_step(forked):
    copy = CopyOnWrite(1, 2, 0, 1, FREE)
    preempt = [Preempt(1, "no_free_block", 0, 2, 6), *released(1, 1), *released(1, 0, left=1)]
    assert breaks(forked.then(copy, *preempt, Allocate(1, 0, 2, FREE)), 7, "block 1")


def test_a_source_that_is_held_counts_as_taken(forked):
    """It is free, but can't be had before the copy has run."""
    copy = CopyOnWrite(1, 2, 0, 1, FREE)
    preempt = [Preempt(1, "no_free_block", 0, 2, 6), *released(1, 1), *released(1, 0, left=1)]
    held = forked.then(copy, *preempt, AllocationFailed(0, 9, 6))
    assert breaks(held, 8, "6 blocks are said to be available, 5 are")


def test_what_failed_to_start_gets_no_block(two):
    found = two.then(*NEW, AllocationFailed(2, 10, 4), START[1], Allocate(4, 2, 0, FREE))
    assert breaks(found, 8, "after its allocation failed")


def test_blocks_without_content_are_handed_out_before_one_is_evicted(cached):
    digest, block = next(iter(hashes(cached).items()))
    found = cached.then(Evict(block, digest), Allocate(block, 2, 1, EVICTED))
    assert breaks(found, 11, "without content are free")


def take_all_free(story):
    taken = {*hashes(story).values(), *story.driver.state.owners}
    free = [block for block in range(6) if block not in taken]
    return [Allocate(block, 2, index, FREE) for index, block in enumerate(free, 1)]


def test_the_least_recently_used_block_is_evicted_first(cached):
    (first, one), (second, two) = hashes(cached).items()
    takes = take_all_free(cached)
    at = len(takes) + 1
    wrong = cached.then(*takes, Evict(two, second), Allocate(two, 2, at, EVICTED))
    assert breaks(wrong, 11, f"block {one} was not used for longer")
    right = cached.then(*takes, Evict(one, first), Allocate(one, 2, at, EVICTED))
    assert breaks(right, 3, "computed tokens in"), "all but that the table is too long"


@pytest.mark.parametrize("start", ["records", "keyframe"])
def test_the_order_of_use_is_known_from_a_keyframe_too(cached, start):
    if start == "keyframe":
        keyframe = cached.driver.engine.keyframe()
        assert isinstance(keyframe, Keyframe)
        digests, takes = hashes(cached), take_all_free(cached)
        cached.records = [keyframe]
    else:
        digests, takes = hashes(cached), take_all_free(cached)
    (_, one), (second, two) = digests.items()
    found = cached.then(*takes, Evict(two, second), Allocate(two, 2, len(takes) + 1, EVICTED))
    assert breaks(found, 11, f"block {one} was not used for longer")


def test_an_evicted_block_is_handed_out_at_once(cached):
    (first, one), *_ = hashes(cached).items()
    takes = take_all_free(cached)
    alone = cached.then(*takes, Evict(one, first))
    assert breaks(alone, 11, f"block {one} is evicted and not handed out")
    other = cached.then(*takes, Evict(one, first), Computed(2, 1))
    assert breaks(other, 11, "evicted and not handed out")
    (active,) = cached.driver.state.owners
    another = cached.then(*takes, Evict(one, first), Allocate(active, 2, 9, EVICTED))
    assert breaks(another, 11, f"block {one} is evicted, but block {active} is handed out")


def test_a_prefix_is_shared_from_the_index_and_after_what_it_follows(cached):
    (active,) = cached.driver.state.owners
    start = [RequestAdded("new", 3, 9, 1, 2, 0.0), SequenceScheduled(3, ScheduledKind.FIRST)]
    found = cached.then(*start, Share(active, 3, 0, ShareWhy.PREFIX))
    assert breaks(found, 10, "is not in the index")
    one, two = hashes(cached).values()
    shares = [Share(one, 3, 0, ShareWhy.PREFIX), Share(two, 3, 1, ShareWhy.PREFIX)]
    assert breaks(cached.then(*start, *shares), 10, "another prefix")


def test_a_block_is_cached_only_as_it_is_filled():
    story = Story(enable_prefix_caching=True)
    story.driver.add(4, max_tokens=9)
    story.driver.step()
    event = next(e for r in story.records[1:] for e in r.events if isinstance(e, Cache))
    keyframe = story.driver.engine.keyframe()
    story.records = [replace(keyframe, blocks=[replace(keyframe.blocks[0], hash=None)])]
    late = story.then(Allocate(1, 0, 1, FREE), Computed(0, 1), Cache(0, event.hash))
    assert breaks(late, 9, "was not filled just now")


# -- sequences ------------------------------------------------------------------------------------


def test_an_older_sequence_is_not_preempted_for_a_younger(two):
    found = two.then(Preempt(0, "no_free_block", 1, 2, 6), *released(0, 1, 0))
    assert breaks(found, 14, "the younger 1 runs on")
    younger = two.then(*START, Preempt(2, "no_free_block", 2, 0, 0))
    assert younger[0] == 20, "the youngest gives way to itself; only the queues are wrong"


def test_none_is_preempted_for_one_that_waits_behind_it(two):
    found = two.then(*NEW, Preempt(1, "no_free_block", 2, 2, 6), *released(1, 3, 2))
    assert breaks(found, 14, "is preempted for the younger 2")


def test_one_that_waits_longer_starts_first():
    story = Story()
    added = [RequestAdded(f"r{n}", n, 6, 1, 9, 0.0) for n in (0, 1)]
    found = story.then(*added, SequenceScheduled(1, ScheduledKind.FIRST))
    assert breaks(found, 14, "sequence 1 starts while 0 waits before it")


def test_a_preemption_releases_all_before_anything_else(two):
    preempt = Preempt(1, "no_free_block", 0, 2, 6)
    found = two.then(preempt, *released(1, 3), Computed(0, 1), *released(1, 2))
    assert breaks(found, 13, "a computed comes instead of a release of block 2")
    assert breaks(two.then(preempt, *released(1, 3)), 13, "a release of block 2 is missing")


@pytest.mark.parametrize(
    ("events", "rule", "words"),
    [
        ([SequenceScheduled(0, ScheduledKind.RESUMED)], 12, "sequence 0 runs already"),
        ([*NEW, Fork(2, 3)], 6, "sequence 2 forks and does not run"),
        ([*NEW, Preempt(2, "no_free_block", 0, 0, 0)], 13, "sequence 2 is preempted and does not"),
        ([*NEW, SequenceFinished(2, FinishReason.STOP, 0)], 13, "sequence 2 ends and does not run"),
        ([*NEW, Allocate(4, 2, 0, FREE), Computed(2, 1)], 12, "is waiting, and is computed"),
        ([*START, PrefixLookup(2, 7, 0, LookupStop.OFF)], 10, "its prompt has 6"),
        ([*START, PrefixLookup(2, 6, 0, LookupStop.OFF, True)], 13, "its lookup says else"),
        ([*START, PrefixLookup(2, 6, 0, LookupStop.LAST_TOKEN_KEPT)], 10, "kept 6 tokens"),
        ([*START, PrefixLookup(2, 6, 0, LookupStop.SHORTER_THAN_BLOCK)], 10, "a whole block"),
    ],
)
def test_what_does_not_run_does_nothing(two, events, rule, words):
    assert breaks(two.then(*events), rule, words)


def test_a_hit_leaves_a_token_to_compute(cached):
    one, _ = hashes(cached).values()
    start = [RequestAdded("new", 3, 4, 1, 2, 0.0), SequenceScheduled(3, ScheduledKind.FIRST)]
    share = Share(one, 3, 0, ShareWhy.PREFIX)
    found = cached.then(*start, share, PrefixLookup(3, 4, 4, LookupStop.MISS))
    assert breaks(found, 10, "leaves it no token")


# -- books ----------------------------------------------------------------------------------------


def test_a_step_counts_its_tokens(two):
    both = [Computed(0, 1), Computed(1, 1)]
    assert breaks(two.then(*both, tokens=TokenCounts(decode=3)), 20, "counts 3 tokens")
    wrong = TokenCounts(decode=1, recompute=1)
    assert breaks(two.then(*both, tokens=wrong), 20, "counts 1 recomputed tokens")


def test_a_keyframe_has_no_block_that_nobody_touched(two):
    keyframe = two.driver.engine.keyframe()
    checker = TraceChecker(two.head)
    for record in two.records:
        assert checker.apply(record) is None
    row = replace(keyframe.blocks[0], block=6, ref_count=0, filled=0, last_change=0)
    broken = checker.apply(replace(keyframe, blocks=[*keyframe.blocks, row]))
    assert (broken.rule, "nobody touched" in broken.text) == (2, True)


def test_the_last_word_is_a_count_of_the_whole_pool(two):
    checker = TraceChecker(two.head)
    for record in two.records:
        assert checker.apply(record) is None
    assert checker.end() is None
    checker.state.ref_count[0] = 5
    assert checker.end().rule == 1
