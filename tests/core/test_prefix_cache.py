"""Hits, misses and evictions of the prefix index."""

import pytest

from engine.events.records import (
    AllocationFailed,
    Cache,
    Computed,
    Evict,
    LookupStop,
    PoolReset,
    PrefixLookup,
    Share,
)
from tests.core.driver import Driver, config, of_kind

OFF, MISS = LookupStop.OFF, LookupStop.MISS
KEPT, SHORT = LookupStop.LAST_TOKEN_KEPT, LookupStop.SHORTER_THAN_BLOCK


def cached(**changes) -> Driver:
    return Driver(config(**{"enable_prefix_caching": True, **changes}))


def serve(driver: Driver, prompt, **params) -> PrefixLookup:
    """Run one request to its end; returns its first lookup."""
    driver.add(prompt, **{"max_tokens": 1, **params})
    return of_kind(driver.run(), PrefixLookup)[0]


def found(lookup: PrefixLookup) -> tuple[int, LookupStop]:
    return lookup.hit, lookup.why


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (8, [1, 2, 3, 4, 9, 9, 9, 9, 9], (4, MISS)),
        (8, [9, 2, 3, 4, 5, 6, 7, 8, 9], (0, MISS)),
        (8, 10, (8, SHORT)),
        (8, 3, (0, SHORT)),
        (8, 8, (4, KEPT)),
        (12, 8, (4, KEPT)),
        (8, 12, (8, KEPT)),
        (6, 12, (4, MISS)),
    ],
)
def test_a_hit_covers_whole_blocks_stops_at_the_first_gap_and_tells_why(first, second, expected):
    driver = cached()
    serve(driver, first)
    assert found(serve(driver, second)) == expected


def test_lookups_are_off_without_caching_and_for_prompt_logprobs():
    driver = cached(enable_prefix_caching=False)
    serve(driver, 8)
    assert found(serve(driver, 8)) == (0, OFF)
    assert of_kind(driver.events, Cache) == []
    driver = cached()
    serve(driver, 8)
    assert found(serve(driver, 9, prompt_logprobs=0)) == (0, OFF)


@pytest.mark.parametrize(("block_size", "blocks"), [(4, 1), (4, 2), (4, 5), (1, 1), (1, 5), (3, 4)])
def test_a_fully_cached_prompt_still_computes_its_last_block(block_size, blocks):
    driver = cached(block_size=block_size)
    serve(driver, blocks * block_size)
    lookup = serve(driver, blocks * block_size)
    assert found(lookup) == ((blocks - 1) * block_size, KEPT)
    assert of_kind(driver.events, Computed)[-1].tokens == block_size


def test_a_prompt_that_fills_the_whole_pool_runs_and_runs_again():
    driver = cached(num_blocks=2, max_model_len=12)
    serve(driver, 8)
    assert found(serve(driver, 8)) == (4, KEPT)
    assert driver.state.cached_blocks == 2
    assert len(driver.finished) == 2


def test_an_evicted_block_is_a_miss_when_its_prompt_comes_again():
    driver = cached(num_blocks=3, max_model_len=16)
    serve(driver, 8)
    hashes = [event.hash for event in of_kind(driver.events, Cache)]
    serve(driver, list(range(21, 33)))
    assert [event.hash for event in of_kind(driver.events, Evict)] == hashes[::-1], "tail first"
    assert found(serve(driver, 8)) == (0, MISS)


def test_blocks_without_content_are_taken_before_the_least_recently_used_is_evicted():
    driver = cached(num_blocks=5)
    serve(driver, [1, 1, 1, 1])
    serve(driver, [2, 2, 2, 2])
    serve(driver, [1, 1, 1, 1, 1])  # a hit: now block 1 was used longest ago
    serve(driver, [3] * 12)
    assert of_kind(driver.events, Evict) == []
    serve(driver, [4] * 4)
    assert [event.block for event in of_kind(driver.events, Evict)] == [1]


def test_a_cached_block_that_is_hit_is_charged_and_a_refused_hit_changes_nothing():
    driver = cached(num_blocks=4)
    serve(driver, 8)
    driver.add([20, 21, 22, 23, 24, 25], max_tokens=6)
    driver.step()
    pool = driver.scheduler.pool
    driver.add(9, max_tokens=1)
    before = list(pool.ref_count), pool.cached_blocks(), pool.free_blocks()
    # One new block would fit in the two that can be had, were those two not the hit itself.
    events = driver.step()
    assert of_kind(events, AllocationFailed) == [AllocationFailed(2, 3, 2)]
    assert (list(pool.ref_count), pool.cached_blocks(), pool.free_blocks()) == before
    assert of_kind(events, Share) == []
    driver.run()
    assert len(driver.finished) == 3


def test_the_same_prompt_twice_in_one_step_is_computed_twice_and_indexed_once():
    driver = cached()
    driver.add(8, max_tokens=2)
    driver.add(8, max_tokens=2)
    events = driver.step()
    assert [event.hit for event in of_kind(events, PrefixLookup)] == [0, 0]
    assert [event.block for event in of_kind(events, Cache)] == driver.scheduler.running[0].table
    driver.run()
    assert (driver.state.cached_blocks, driver.state.free_blocks) == (2, 6)
    assert found(serve(driver, 9)) == (8, SHORT)


def test_running_sequences_share_a_prefix():
    driver = cached()
    driver.add(9, max_tokens=4)
    driver.step()
    driver.add(9, max_tokens=4)
    shares = of_kind(driver.step(), Share)
    assert [(share.block, share.index) for share in shares] == [(0, 0), (1, 1)]
    assert driver.scheduler.pool.ref_count[:2] == [2, 2]


def test_a_cache_salt_separates():
    driver = cached(num_blocks=32)
    serve_with = {
        salt: driver.add(9, max_tokens=1, cache_salt=salt) for salt in (None, "mine", "yours")
    }
    driver.run()
    hashes = [event.hash for event in of_kind(driver.events, Cache)]
    assert len(set(hashes)) == 2 * len(serve_with)
    for salt in serve_with:
        driver.add(9, max_tokens=1, cache_salt=salt)
    assert [event.hit for event in of_kind(driver.run(), PrefixLookup)] == [8, 8, 8]
    driver.add(9, max_tokens=1, cache_salt="new")
    assert [event.hit for event in of_kind(driver.run(), PrefixLookup)] == [0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([65, 65], [321, 321]),
        ([1, 23], [12, 3]),
        ([255, 0], [-1, 0]),
        ([2**32, 1], [0, 1]),
        ([2**31, 1], [-(2**31), 1]),
        ([0, 1], [1, 0]),
    ],
)
def test_prompts_that_bytes_or_digits_could_confuse_have_different_hashes(one, other):
    driver = cached(block_size=2)
    serve(driver, [*one, 7])
    assert found(serve(driver, [*other, 7])) == (0, MISS)
    assert found(serve(driver, [*one, 7])) == (2, SHORT)
    hashes = [event.hash for event in of_kind(driver.events, Cache)]
    assert len(hashes) == len(set(hashes)) == 2


@pytest.mark.parametrize("bits", [4, 8])
def test_a_key_that_two_contents_share_costs_hits_and_never_gives_a_wrong_one(bits):
    driver = cached(num_blocks=64, max_model_len=32, prefix_hash_bits=bits)
    prompts = [[i % 5, i // 5, 1, 1, 2] for i in range(20)]
    for prompt in prompts + prompts:
        serve(driver, prompt)  # the ledger compares what was shared with what was asked
    assert 0 < len(driver.ledger.content) <= min(2**bits, 20)
    assert driver.engine.tally.totals.prefix_hit_tokens % 4 == 0


def test_an_index_of_four_bits_still_hits():
    driver = cached(prefix_hash_bits=4)
    serve(driver, 5)
    assert found(serve(driver, 5)) == (4, SHORT)


def test_the_pool_is_reset_only_when_idle():
    driver = cached()
    driver.add(8, max_tokens=3)
    assert driver.engine.reset_prefix_cache(), "nothing is active yet"
    driver.step()
    assert not driver.engine.reset_prefix_cache()
    assert len(driver.ledger.content) == 2, "nothing changed"
    driver.run()
    assert driver.engine.reset_prefix_cache()
    driver.check()
    assert isinstance(driver.events[-1], PoolReset)
    assert driver.state.free_blocks == 8
    assert found(serve(driver, 8)) == (0, MISS)


def test_many_requests_with_common_prefixes_leave_the_pool_whole():
    driver = cached(max_num_seqs=4)
    for number in range(40):
        driver.add([1, 2, 3, 4, number % 3, 6, 7], max_tokens=1 + number % 5)
    while driver.engine.has_work:
        driver.step()
        assert driver.state.active_blocks <= driver.state.num_blocks
    assert len(driver.finished) == 40
    assert driver.state.active_blocks == 0
    assert driver.state.cached_blocks + driver.state.free_blocks == 8
    totals = driver.engine.tally.totals
    assert 0 < totals.prefix_hit_tokens <= totals.prefix_queried_tokens
