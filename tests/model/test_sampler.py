import time
from itertools import pairwise

import torch

from engine.core.config import SamplingParams
from engine.core.sequence import Request, Sequence
from engine.model.sampler import sample


def sequence(seed=0, length=5, **params):
    request = Request("r", [1] * length, SamplingParams(seed=seed, **params), time.monotonic())
    return Sequence(0, request, 0, [1] * length)


def test_temperature_0_takes_the_best_token():
    logits = torch.randn(4, 50)
    tokens = sample(logits, [sequence(temperature=0) for _ in range(4)])
    assert tokens == logits.argmax(-1).tolist()


def test_a_draw_is_the_same_whatever_the_batch():
    torch.manual_seed(0)
    logits = torch.randn(8, 50)
    sequences = [sequence(seed=s, top_p=0.9 if s % 2 else 1.0, top_k=s) for s in range(8)]
    together = sample(logits, sequences)
    alone = [sample(logits[i : i + 1], [s])[0] for i, s in enumerate(sequences)]
    assert together == alone
    assert sample(logits.flip(0), sequences[::-1]) == together[::-1]


def test_top_k_and_top_p_keep_only_the_best_tokens():
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0]]).repeat(400, 1)
    for params, allowed in (
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.8}, {0, 1}),
        ({"top_p": 0.1}, {0}),
    ):
        drawn = sample(logits, [sequence(seed=s, **params) for s in range(400)])
        assert set(drawn) == allowed


def test_draws_follow_the_distribution():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    count = 4000
    logits = probabilities.log().repeat(count, 1)
    drawn = torch.tensor(sample(logits, [sequence(seed=s) for s in range(count)]))
    observed = torch.bincount(drawn, minlength=4)
    chi_square = float(((observed - count * probabilities) ** 2 / (count * probabilities)).sum())
    assert chi_square < 16.3, "3 degrees of freedom, p = 0.001; the seeds are fixed"


def test_completions_of_one_request_draw_from_different_streams():
    request = Request("r", [1], SamplingParams(n=4, seed=3), 0.0)
    streams = []
    for index in range(4):
        one = Sequence(index, request, index, [1])
        draws = []
        for _ in range(12):
            draws += sample(torch.zeros(1, 1000), [one])
            one.tokens.append(draws[-1])
        streams.append(draws)
    for i, first in enumerate(streams):
        for second in streams[i + 1 :]:
            assert not set(pairwise(first)) & set(pairwise(second)), (
                "the streams are shifted copies of each other"
            )
