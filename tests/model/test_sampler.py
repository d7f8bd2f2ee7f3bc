"""Draws follow the distribution that a request asks for, and no request's draw changes another's."""

import math
from itertools import pairwise

import pytest
import torch

from engine.core.config import SamplingParams
from engine.core.sequence import Request, Sequence
from engine.model.sampler import SORTED_FIRST, sample

EOS = frozenset({0})
LOGITS = [2.0, 1.5, 1.0, 0.4, 0.0, -0.5, -0.8, -1.5]
PROMPT = [1, 3, 3]
OUTPUT = [0, 0, 5, 2, 0]


def sequence(seed=0, prompt=(1,) * 5, output=(), **params):
    params = {"max_tokens": 100, **params}
    request = Request("r", list(prompt), SamplingParams(seed=seed, **params), 0.0)
    return Sequence(0, request, 0, [*prompt, *output])


def draw(logits, sequences, eos=frozenset()):
    return [drawn.token for drawn in sample(logits, sequences, eos)]


def test_temperature_0_takes_the_best_token():
    torch.manual_seed(0)
    logits = torch.randn(4, 50)
    tokens = draw(logits, [sequence(temperature=0) for _ in range(4)])
    assert tokens == logits.argmax(-1).tolist()


def test_a_step_without_samples_gives_none():
    assert sample(torch.empty(0, 50), [], EOS) == []


# -- the distribution -------------------------------------------------------------------------


def expected_distribution(params: SamplingParams, prompt, output) -> list[float]:
    """What the documentation says, token by token, in Python's floats."""
    logits = [logit + params.logit_bias.get(token, 0.0) for token, logit in enumerate(LOGITS)]
    for token in range(len(logits)):
        if token in prompt or token in output:
            penalty = params.repetition_penalty
            logits[token] *= penalty if logits[token] < 0 else 1 / penalty
        times = list(output).count(token)
        logits[token] -= params.frequency_penalty * times + params.presence_penalty * bool(times)
    weights = [math.exp(logit / params.temperature) for logit in logits]
    order = sorted(range(len(weights)), key=lambda token: -weights[token])
    kept = [token for token in order if weights[token] >= params.min_p * weights[order[0]]]
    kept = kept[: params.top_k or None]
    total = sum(weights[token] for token in kept)
    nucleus, share = [], 0.0
    for token in kept:
        if share < params.top_p:
            nucleus.append(token)
            share += weights[token] / total
    total = sum(weights[token] for token in nucleus)
    return [weights[t] / total if t in nucleus else 0.0 for t in range(len(weights))]


def chi_square(observed: list[int], probabilities: list[float]) -> float:
    count = sum(observed)
    return sum(
        (seen - count * p) ** 2 / (count * p) if p else math.inf
        for seen, p in zip(observed, probabilities, strict=True)
        if p or seen
    )


def limit(probabilities: list[float]) -> float:
    """The chi-square that 1 of 1000 fair samples exceeds (Wilson and Hilferty, 1931)."""
    freedom = sum(p > 0 for p in probabilities) - 1
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + 3.09 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"repetition_penalty": 1.8},
        {"frequency_penalty": 0.6},
        {"frequency_penalty": -0.4},
        {"presence_penalty": 1.2},
        {"logit_bias": {0: -100.0, 4: 1.5}},
        {"top_k": 4, "top_p": 0.75},
        {"min_p": 0.15, "top_p": 0.8, "temperature": 1.5},
        {
            "temperature": 0.9,
            "top_k": 6,
            "top_p": 0.95,
            "min_p": 0.02,
            "repetition_penalty": 1.2,
            "frequency_penalty": 0.2,
            "presence_penalty": 0.3,
            "logit_bias": {6: 2.0},
        },
    ],
    ids=lambda params: "+".join(params) or "plain",
)
def test_draws_follow_the_distribution_that_is_asked_for(params):
    count = 4000
    sequences = [sequence(s, PROMPT, OUTPUT, **params) for s in range(count)]
    tokens = draw(torch.tensor([LOGITS]).repeat(count, 1), sequences)
    observed = torch.bincount(torch.tensor(tokens), minlength=len(LOGITS)).tolist()
    asked = expected_distribution(sequences[0].request.params, PROMPT, OUTPUT)
    assert chi_square(observed, asked) < limit(asked)
    plain = expected_distribution(SamplingParams(), PROMPT, OUTPUT)
    if params:
        assert chi_square(observed, plain) > 3 * limit(plain), "draws as if nothing were asked for"


def test_top_k_and_top_p_keep_only_the_best_tokens():
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0]]).repeat(400, 1)
    for params, allowed in (
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.8}, {0, 1}),
        ({"top_p": 0.1}, {0}),
        ({"min_p": 0.3}, {0, 1}),
        ({"min_p": 1.0}, {0}),
    ):
        assert set(draw(logits, [sequence(seed=s, **params) for s in range(400)])) == allowed


@pytest.mark.parametrize("params", [{"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.3}])
def test_equal_tokens_stay_or_go_together(params):
    logits = torch.tensor([[1.0, 0.0, -1.0, 0.0, -1.0, 0.0]]).repeat(400, 1)
    assert set(draw(logits, [sequence(s, **params) for s in range(400)])) == {0, 1, 3, 5}


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": SORTED_FIRST + 500}, SORTED_FIRST + 500),
        ({"top_k": 10}, 10),
        ({"top_p": 0.5}, 1500),
        ({"top_p": 0.01}, 30),
        ({"top_k": 2000, "top_p": 0.75}, 1500),
        ({"top_k": 100, "top_p": 0.5}, 50),
    ],
)
def test_the_best_are_found_in_flat_distributions_too(params, kept):
    """Of 3000 tokens that are all but equally likely, the later ones more so."""
    logits = torch.linspace(0, 1e-4, 3000, dtype=torch.float64).repeat(400, 1)
    tokens = draw(logits, [sequence(s, **params) for s in range(400)])
    near = max(1, kept // 20)
    assert 3000 - kept <= min(tokens) <= 3000 - kept + near
    assert max(tokens) >= 3000 - near - 1


@pytest.mark.parametrize("temperature", [1e-320, 1e-9])
def test_the_lowest_temperatures_are_greedy(temperature):
    logits = torch.tensor([[1.0, 30.0, -5.0]]).repeat(50, 1)
    assert set(draw(logits, [sequence(s, temperature=temperature) for s in range(50)])) == {1}


# -- penalties, bias and min_tokens of greedy rows --------------------------------------------


@pytest.mark.parametrize(
    ("logits", "params", "token"),
    [
        ([2.0, 1.9, 0.0], {"repetition_penalty": 1.2}, 1),
        ([-1.0, -1.1, -9.0], {"repetition_penalty": 1.2}, 1),
        # Once in the output and twice in the prompt, which counts for repetition only.
        ([2.0, 1.5, 0.0], {"frequency_penalty": 0.4}, 0),
        ([2.0, 1.5, 0.0], {"frequency_penalty": 0.6}, 1),
        ([2.0, 1.5, 0.0], {"presence_penalty": 0.6}, 1),
        ([2.0, 1.5, 0.0], {"logit_bias": {2: 2.1}}, 2),
        ([2.0, 1.5, 0.0], {"logit_bias": {-1: 5.0, 3: 5.0}}, 0),
    ],
)
def test_greedy_takes_the_best_of_the_changed_logits(logits, params, token):
    logits = torch.tensor([logits])
    before = logits.clone()
    one = sequence(prompt=(0, 0), output=(0,), temperature=0, **params)
    assert draw(logits, [one]) == [token]
    assert torch.equal(logits, before), "logits of the model are not the sampler's to change"


def test_penalties_of_the_output_leave_the_prompt_alone():
    one = sequence(prompt=(0, 0), temperature=0, frequency_penalty=2.0, presence_penalty=2.0)
    assert draw(torch.tensor([[2.0, 1.9]]), [one]) == [0]


@pytest.mark.parametrize("temperature", [0, 1])
def test_nothing_ends_a_sequence_before_min_tokens(temperature):
    logits = torch.tensor([[9.0, 9.0, 0.0, 0.0]]).repeat(100, 1)

    def drawn(num_output):
        asks = {"min_tokens": 3, "stop_token_ids": (1,), "temperature": temperature}
        early = [sequence(s, output=(2,) * num_output, **asks) for s in range(100)]
        return set(draw(logits, early, EOS))

    assert drawn(2) <= {2, 3}
    assert drawn(3) & {0, 1}


def test_min_tokens_leaves_an_ignored_end_of_sequence_token_alone():
    one = sequence(temperature=0, min_tokens=3, ignore_eos=True)
    assert draw(torch.tensor([[9.0, 0.0]]), [one], EOS) == [0]


def test_a_token_is_drawn_even_where_all_are_forbidden():
    asks = {"min_tokens": 3, "stop_token_ids": (0, 1, 2, 99)}
    for params in ({}, {"top_p": 0.5, "min_p": 0.1}, {"temperature": 0}):
        assert draw(torch.zeros(1, 3), [sequence(**asks, **params)])[0] in {0, 1, 2}


# -- independence -----------------------------------------------------------------------------

FEATURES = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 5, "logprobs": 0},
    {"min_p": 0.05, "logprobs": 3},
    {"temperature": 0, "repetition_penalty": 1.3, "logprobs": 5},
    {"frequency_penalty": 0.5, "presence_penalty": -0.5},
    {"logit_bias": {7: 4.0, 8: -4.0}, "top_k": 40, "top_p": 0.5},
    {"temperature": 0, "min_tokens": 9, "stop_token_ids": (3,), "logprobs": 20},
    {"use_beam_search": True, "n": 3, "temperature": 0},
    {"use_beam_search": True, "n": 1},
    {"temperature": 1.3, "repetition_penalty": 1.1, "min_tokens": 9, "top_p": 0.99},
    {"temperature": 9.0, "top_p": 0.99},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_draw_is_the_same_whatever_the_batch(dtype):
    torch.manual_seed(0)
    count = 40
    logits = (torch.randn(count, 3000) * 3).to(dtype)
    sequences = [
        sequence(s, (1, 2, 3), tuple(range(s % 7)), **FEATURES[s % len(FEATURES)])
        for s in range(count)
    ]
    together = sample(logits, sequences, EOS)
    alone = [sample(logits[i : i + 1], [s], EOS)[0] for i, s in enumerate(sequences)]
    assert together == alone
    assert sample(logits.flip(0), sequences[::-1], EOS) == together[::-1]
    assert sample(logits[5:20], sequences[5:20], EOS) == together[5:20]


def test_completions_of_one_request_draw_from_different_streams():
    request = Request("r", [1], SamplingParams(n=4, seed=3), 0.0)
    streams = []
    for index in range(4):
        one = Sequence(index, request, index, [1])
        draws = []
        for _ in range(12):
            draws += draw(torch.zeros(1, 1000), [one])
            one.tokens.append(draws[-1])
        streams.append(draws)
    for i, first in enumerate(streams):
        for second in streams[i + 1 :]:
            assert not set(pairwise(first)) & set(pairwise(second)), (
                "the streams are shifted copies of each other"
            )
