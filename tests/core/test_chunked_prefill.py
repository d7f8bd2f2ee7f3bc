"""Prompts in pieces: decodes first, the budget and the threshold kept."""

import pytest

from engine.core.config import ConfigError, RequestError
from engine.events.records import Computed, Sampled
from tests.core.driver import Driver, config, of_kind


def computed(driver: Driver) -> dict[int, int]:
    """Tokens of each sequence in the next step."""
    return {event.sequence: event.tokens for event in of_kind(driver.step(), Computed)}


def test_a_prompt_longer_than_the_budget_is_computed_in_pieces_and_samples_at_its_end():
    driver = Driver(config(max_num_batched_tokens=8))
    driver.add(20, max_tokens=2)
    assert [computed(driver) for _ in range(3)] == [{0: 8}, {0: 8}, {0: 4}]
    assert len(of_kind(driver.events, Sampled)) == 1
    assert driver.engine.tally.totals.prefill_tokens == 20


def test_decodes_are_served_before_an_older_prefill():
    driver = Driver(
        config(max_num_seqs=4, max_num_batched_tokens=4, long_prefill_token_threshold=3)
    )
    driver.add(12, max_tokens=2)
    driver.add(1, max_tokens=9)
    assert [computed(driver) for _ in range(4)] == [{0: 3, 1: 1}] * 4


def test_a_decode_is_never_starved_by_prompts():
    driver = Driver(config(num_blocks=64, max_num_batched_tokens=8))
    decode = driver.add(2, max_tokens=12)
    driver.step()
    for _ in range(4):
        driver.add(20, max_tokens=2)
    for _ in range(11):
        assert computed(driver)[0] == 1
    assert decode in driver.finished


def test_a_budget_of_one_token_each_still_ends():
    driver = Driver(config(num_blocks=32, max_num_seqs=3, max_num_batched_tokens=3))
    for number in range(5):
        driver.add(7 + number, max_tokens=4)
    driver.run(most=5 * 15)
    assert len(driver.finished) == 5


def test_no_piece_is_longer_than_the_threshold_and_the_rest_of_the_budget_is_shared():
    driver = Driver(config(num_blocks=32, long_prefill_token_threshold=5))
    driver.add(12, max_tokens=1)
    driver.add(3, max_tokens=1)
    driver.add(11, max_tokens=1)
    assert computed(driver) == {0: 5, 1: 3, 2: 5}
    assert computed(driver) == {0: 5, 2: 5}
    assert computed(driver) == {0: 2, 2: 1}


def test_a_piece_may_end_inside_a_block_and_only_full_blocks_are_cached():
    driver = Driver(config(enable_prefix_caching=True, max_num_batched_tokens=10))
    driver.add(20, max_tokens=1)
    driver.step()
    assert driver.scheduler.running[0].table == [0, 1, 2]
    assert set(driver.ledger.content) == {0, 1}
    driver.step()
    assert set(driver.ledger.content) == {0, 1, 2, 3, 4}


def test_without_chunked_prefill_a_prompt_runs_whole_or_waits():
    driver = Driver(config(enable_chunked_prefill=False, max_num_batched_tokens=24))
    driver.add(14, max_tokens=2)
    driver.add(12, max_tokens=2)
    assert computed(driver) == {0: 14}
    assert computed(driver) == {0: 1, 1: 12}


def test_without_chunked_prefill_a_budget_below_max_model_len_is_refused():
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 23, less than max_model_len"):
        config(enable_chunked_prefill=False, max_num_batched_tokens=23)


def test_without_chunked_prefill_beams_that_could_not_resume_in_one_step_are_refused():
    driver = Driver(config(num_blocks=32, enable_chunked_prefill=False, max_num_batched_tokens=24))
    with pytest.raises(RequestError, match="3 beams of 9 tokens") as caught:
        driver.add(5, n=3, max_tokens=5, use_beam_search=True)
    assert caught.value.parameter == "n"
    driver.add(5, n=2, max_tokens=5, use_beam_search=True)
    driver.run()
    assert len(driver.finished) == 1
