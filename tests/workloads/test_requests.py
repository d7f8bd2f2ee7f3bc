"""Drawn lengths and arrivals: the same for a seed, within bounds, with the asked means."""

import math
from itertools import islice, pairwise
from statistics import correlation, fmean, pstdev

import pytest

from engine.workloads.arrivals import at_once, poisson
from engine.workloads.lengths import Lengths, fixed, lognormal, uniform
from engine.workloads.request import WorkloadError, WorkloadRequest, planned, rescheduled, scaled

DRAWS = 20_000


def draws(lengths):
    return list(islice(lengths, DRAWS))


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: uniform((1, 1000), (1, 1000), seed),
        lambda seed: lognormal(200, 100, 1.0, seed),
        lambda seed: poisson(10, seed),
    ],
)
def test_a_seed_gives_the_same_workload_and_another_seed_another(make):
    assert list(islice(make(3), 50)) == list(islice(make(3), 50))
    assert list(islice(make(3), 50)) != list(islice(make(4), 50))


def test_prompts_stay_as_they_are_when_the_outputs_mean_changes():
    short, long = draws(lognormal(200, 10, 1.0, 0)), draws(lognormal(200, 1000, 1.0, 0))
    assert [a.prompt for a in short] == [b.prompt for b in long]


@pytest.mark.parametrize("factor", [1e30, 1e308, 1_000_001])
def test_lengths_beyond_what_can_be_made_up_are_refused(factor):
    with pytest.raises(WorkloadError, match="is more than 10,000,000: give shorter lengths"):
        list(scaled([WorkloadRequest(0, 10, 1)], length=factor))
    (longest,) = scaled([WorkloadRequest(0, 10, 1)], length=1_000_000)
    assert longest.prompt_tokens == 10**7


def test_prompt_and_output_lengths_are_independent():
    lengths = draws(lognormal(2000, 2000, 1.0, 0))
    prompts = [math.log(length.prompt) for length in lengths]
    outputs = [math.log(length.output) for length in lengths]
    assert abs(correlation(prompts, outputs)) < 0.03


def test_fixed_lengths_do_not_vary():
    assert set(draws(fixed(7, 3))) == {Lengths(7, 3)}


def test_uniform_lengths_take_every_number_between_their_bounds():
    lengths = draws(uniform((3, 5), (1, 2), 0))
    assert {length.prompt for length in lengths} == {3, 4, 5}
    assert {length.output for length in lengths} == {1, 2}


def test_lognormal_lengths_have_the_asked_means_and_spread():
    lengths = draws(lognormal(400, 150, 0.8, 0))
    assert fmean(length.prompt for length in lengths) == pytest.approx(400, rel=0.05)
    assert fmean(length.output for length in lengths) == pytest.approx(150, rel=0.05)
    assert pstdev(math.log(length.prompt) for length in lengths) == pytest.approx(0.8, rel=0.05)


def test_lognormal_lengths_are_at_least_1():
    assert min(min(length) for length in draws(lognormal(1, 1, 2.0, 0))) == 1


def test_poisson_gaps_have_the_asked_mean_and_as_much_spread_as_mean():
    arrivals = [0.0, *islice(poisson(50, 0), DRAWS)]
    gaps = [b - a for a, b in pairwise(arrivals)]
    assert min(gaps) >= 0
    assert fmean(gaps) == pytest.approx(0.02, rel=0.05)
    assert pstdev(gaps) == pytest.approx(0.02, rel=0.05)


def test_a_plan_pairs_arrivals_with_lengths():
    assert list(islice(planned(at_once(), fixed(7, 3)), 2)) == [WorkloadRequest(0, 7, 3)] * 2


REQUEST = WorkloadRequest(10, 1000, 30, (4, 9), 512)


def test_a_scaled_rate_brings_requests_closer_together():
    (request,) = scaled([REQUEST], rate=4)
    assert request == WorkloadRequest(2.5, 1000, 30, (4, 9), 512)


def test_a_scaled_length_scales_shared_blocks_too():
    (request,) = scaled([REQUEST], length=0.5)
    assert request == WorkloadRequest(10, 500, 15, (4, 9), 256)


def test_no_length_is_scaled_to_nothing():
    assert list(scaled([WorkloadRequest(0, 3, 2)], length=0.01)) == [WorkloadRequest(0, 1, 1)]


def test_rescheduled_requests_keep_all_but_their_arrival():
    assert list(rescheduled([REQUEST], at_once())) == [WorkloadRequest(0, 1000, 30, (4, 9), 512)]
