"""What is taken for equal: a block that enters no index equals one that is in it, and which one.

Written event by event, with blocks of two tokens: every block here is one step's.
"""

from engine.events.records import (
    Allocate,
    AnyEvent,
    BlockRow,
    BlockSource,
    Cache,
    Computed,
    Evict,
    Fork,
    Keyframe,
    LookupStop,
    PrefixLookup,
    RequestAdded,
    SequenceRow,
    SequenceStatus,
    Share,
    ShareWhy,
    Totals,
)
from engine.simulate.contents import BlockNames


def followed(*parts: list[AnyEvent], start: Keyframe | None = None) -> BlockNames:
    names = BlockNames(block_size=2, caching=True)
    if start is not None:
        names.load(start)
    for part in parts:
        for event in part:
            names.apply(event)
    return names


def added(request: str, sequence: int) -> list[AnyEvent]:
    return [RequestAdded(request, sequence, 2, 2, 4, 0.0)]


def hit(sequence: int, block: int) -> list[AnyEvent]:
    """The first block was found in the index."""
    share = Share(block, sequence, 0, ShareWhy.PREFIX)
    return [share, PrefixLookup(sequence, 3, 2, LookupStop.MISS)]


def forked(parent: int, child: int, block: int) -> list[AnyEvent]:
    return [Fork(parent, child), Share(block, child, 0, ShareWhy.FORK)]


def computed(
    sequence: int, index: int, block: int, name: str | None = None, parent: str | None = None
) -> list[AnyEvent]:
    """A full block, which enters the index where it has a name."""
    cached = [] if name is None else [Cache(block, name, parent)]
    return [Allocate(block, sequence, index, BlockSource.FREE), Computed(sequence, 2), *cached]


# Request a has blocks p and a. Request b begins with p too; of its three sequences, 1 goes on with b.
BEGUN = (
    *(added("a", 0), computed(0, 0, 10, "p"), computed(0, 1, 11, "a", "p")),
    *(added("b", 1), hit(1, 10), forked(1, 2, 10), forked(1, 3, 10)),
    computed(1, 1, 12, "b", "p"),
)


def test_of_several_blocks_that_it_can_equal_it_is_the_siblings():
    names = followed(*BEGUN, computed(2, 1, 13))
    assert names.of(1) == ["p", "b"]
    assert names.of(2) == ["p", "b"]


def test_of_several_blocks_none_is_guessed_where_no_sibling_has_one_of_them():
    names = followed(*BEGUN, added("c", 4), hit(4, 10), computed(4, 1, 13))
    assert names.of(4) == ["p", None]


def test_of_several_blocks_none_is_guessed_where_siblings_have_two_of_them():
    names = followed(*BEGUN, computed(2, 1, 13, "d", "p"), computed(3, 1, 14))
    assert names.of(2) == ["p", "d"]
    assert names.of(3) == ["p", None]


def test_a_siblings_block_that_has_left_the_index_is_none_of_them():
    names = followed(*BEGUN, computed(2, 1, 13, "d", "p"), [Evict(12, "b")], computed(3, 1, 14))
    assert names.of(3) == ["p", "d"]


def test_the_only_block_that_it_can_equal_needs_no_sibling():
    only = (added("a", 0), computed(0, 0, 10, "p"), added("b", 1))
    assert followed(*only, computed(1, 0, 11)).of(1) == ["p"]


def test_what_another_request_has_says_nothing_of_this_one():
    """After a beginning in the middle of a run, not every cached block is some known sequence's."""
    start = Keyframe(
        seq=7,
        step=7,
        time=0.0,
        blocks=[BlockRow(10, 1, 2, 7, "a"), BlockRow(11, 0, 2, 7, "b")],
        sequences=[SequenceRow(0, "a", SequenceStatus.RUNNING, 2, [10])],
        requests=[],
        totals=Totals(),
    )
    names = followed(added("b", 1), computed(1, 0, 12), start=start)
    assert names.of(0) == ["a"]
    assert names.of(1) == [None]
