"""Rule 16, without a model: output does not depend on how the engine came to it."""

import functools
import itertools

import pytest

from tests.core.driver import Driver, config

REQUESTS = [
    (list(range(1, 10)), {"max_tokens": 9}),
    (list(range(1, 10)), {"max_tokens": 7, "n": 3, "seed": 2}),
    (list(range(1, 14)), {"max_tokens": 3, "ignore_eos": False, "seed": 3}),
    (list(range(1, 7)), {"max_tokens": 6, "n": 2, "use_beam_search": True}),
    ([5], {"max_tokens": 12, "n": 2, "seed": 4}),
    (list(range(1, 10)), {"max_tokens": 5, "n": 3, "use_beam_search": True, "ignore_eos": False}),
]
LIMITS = {
    "whole": {},
    "small budget": {"max_num_batched_tokens": 4, "max_num_seqs": 4},
    "threshold": {"long_prefill_token_threshold": 3},
    "unchunked": {"enable_chunked_prefill": False},
}


def outputs(**changes) -> tuple[list, Driver]:
    driver = Driver(config(**{"num_blocks": 400, **changes}), vocab_size=12)
    requests = [driver.add(list(prompt), **params) for prompt, params in REQUESTS]
    driver.run()
    told = []
    for request in requests:
        beams = request.beams
        told.append(beams.best if beams else [sequence.output for sequence in request.sequences])
    return told, driver


@functools.cache
def expected() -> list:
    return outputs()[0]


@pytest.mark.parametrize(
    ("block_size", "caching", "limits"),
    list(itertools.product([1, 3, 4, 16], [False, True], LIMITS)),
)
def test_output_does_not_depend_on_block_size_chunks_caching_or_pool(block_size, caching, limits):
    changes = {"block_size": block_size, "enable_prefix_caching": caching, **LIMITS[limits]}
    if limits == "unchunked":
        changes["max_num_batched_tokens"] = 48
    tight = -(-15 // block_size) * 3  # the last three beams, each with a table of its own
    for num_blocks in (tight, 400):
        told, driver = outputs(num_blocks=num_blocks, **changes)
        assert told == expected()
        assert bool(driver.engine.tally.totals.preemptions) <= (num_blocks == tight)


@pytest.mark.parametrize("max_num_seqs", [3, 4, 8])
def test_output_does_not_depend_on_the_batch(max_num_seqs):
    assert outputs(max_num_seqs=max_num_seqs)[0] == expected()


def test_the_tight_pool_of_the_matrix_preempts_and_hits():
    _, driver = outputs(num_blocks=12, enable_prefix_caching=True)
    totals = driver.engine.tally.totals
    assert totals.preemptions
    assert totals.prefix_hit_tokens > 0
    assert totals.cow_copies > 0
    assert totals.evicted > 0
