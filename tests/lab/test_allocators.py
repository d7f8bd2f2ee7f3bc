"""Each allocator places sequences at real addresses: nothing overlaps, nothing is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lab import Kind, KvShape, LabSettings, make_allocator
from engine.lab.allocators.allocator import Extent
from engine.lab.allocators.buddy import BuddyAllocator
from engine.lab.allocators.contiguous import ExactAllocator

TINY = LabSettings(max_model_len=24, block_size=4, shape=KvShape(2, 32768, 2, itemsize=2))
"""A page of 16 tokens."""


@given(
    kind=st.sampled_from(list(Kind)),
    memory=st.integers(1, 150),
    draws=st.lists(st.tuples(st.integers(1, 24), st.integers(0, 23), st.booleans()), max_size=40),
)
@settings(max_examples=120, deadline=None)
def test_every_slot_has_one_owner_or_is_in_one_hole(kind, memory, draws):
    allocator = make_allocator(kind, memory, TINY)
    fresh = allocator.holes()
    living: dict[int, tuple[int, int]] = {}
    for number, (final, less, leaves) in enumerate(draws):
        tokens = max(1, final - less)
        before = allocator.free
        if allocator.admit(number, tokens, final):
            living[number] = (tokens, final)
            assert before - allocator.free == allocator_takes(allocator, number)
            assert allocator.room(number) >= tokens
        else:
            assert allocator.free == before
        if leaves and living:
            gone = min(living)
            allocator.release(gone)
            del living[gone]
        grown = max(living, default=None)
        if grown is not None:
            tokens, final = living[grown]
            before = allocator.extents(grown)
            if allocator.grow(grown, final):
                living[grown] = (final, final)
                assert allocator.room(grown) >= final
                assert allocator.extents(grown)[: len(before)] == before
            else:
                assert allocator.extents(grown) == before
        assert_covers_memory(allocator, living)
    for number in living:
        allocator.release(number)
    assert allocator.free == memory
    assert allocator.holes() == fresh, "freed memory is joined again"


def allocator_takes(allocator, number) -> int:
    return sum(extent.slots for extent in allocator.extents(number))


def assert_covers_memory(allocator, living) -> None:
    taken = [extent for number in living for extent in allocator.extents(number)]
    holes = allocator.holes()
    assert sum(hole.slots for hole in holes) == allocator.free
    at = 0
    for extent in sorted([*taken, *holes]):
        assert extent.start == at
        assert extent.slots > 0
        at = extent.end
    assert at == allocator.memory


def test_first_fit_takes_the_lowest_hole_that_is_long_enough():
    exact = ExactAllocator(100)
    for number, length in enumerate((10, 30, 5, 20)):
        assert exact.admit(number, length, length)
    exact.release(0)
    exact.release(2)
    assert exact.holes() == [Extent(0, 10), Extent(40, 45), Extent(65, 100)]
    assert exact.admit(4, 5, 5)
    assert exact.extents(4) == [Extent(0, 5)]
    assert exact.admit(5, 8, 8)
    assert exact.extents(5) == [Extent(65, 73)]


def test_contiguous_memory_refuses_what_its_holes_hold_in_sum_and_paging_does_not():
    exact = make_allocator(Kind.EXACT, 64, TINY)
    paged = make_allocator(Kind.PAGED, 64, TINY)
    for allocator in (exact, paged):
        for number in range(4):
            assert allocator.admit(number, 16, 16)
        allocator.release(0)
        allocator.release(2)
        assert allocator.free == 32
    assert not exact.admit(9, 20, 20)
    assert exact.external(20) == 32
    assert paged.admit(9, 20, 20)
    assert paged.external(20) == 0


def test_a_buddy_splits_in_halves_and_joins_with_its_own_half_only():
    buddy = BuddyAllocator(16)
    assert buddy.admit(0, 3, 3)
    assert buddy.holes() == [Extent(4, 8), Extent(8, 16)]
    assert buddy.admit(1, 4, 4)
    assert buddy.admit(2, 4, 4)
    assert buddy.extents(2) == [Extent(8, 12)]
    buddy.release(1)
    assert buddy.holes() == [Extent(4, 8), Extent(12, 16)]
    assert not buddy.admit(3, 5, 5), "4..8 and 12..16 are no buddies"
    buddy.release(2)
    assert buddy.holes() == [Extent(4, 8), Extent(8, 16)]
    buddy.release(0)
    assert buddy.holes() == [Extent(0, 16)]


def test_a_memory_that_is_no_power_of_two_begins_as_several_pieces():
    buddy = BuddyAllocator(13)
    assert buddy.holes() == [Extent(0, 8), Extent(8, 12), Extent(12, 13)]
    assert buddy.fits_ever(8)
    assert not buddy.fits_ever(9)


@pytest.mark.parametrize(
    ("kind", "least"),
    [(Kind.NAIVE, 24), (Kind.BUDDY, 32), (Kind.EXACT, 17), (Kind.PAGED, 20), (Kind.MAPPED, 32)],
)
def test_what_never_fits_is_known_beforehand(kind, least):
    assert make_allocator(kind, least, TINY).fits_ever(17)
    assert not make_allocator(kind, least - 1, TINY).fits_ever(17)


def test_on_demand_memory_is_taken_when_tokens_reach_it():
    for kind, unit in ((Kind.PAGED, 4), (Kind.MAPPED, 16)):
        allocator = make_allocator(kind, 64, TINY)
        assert allocator.admit(0, unit, 24)
        assert allocator.free == 64 - unit
        assert allocator.grow(0, unit + 1)
        assert allocator.free == 64 - 2 * unit
