"""Rule 13 on a tiny random Llama in float64, exactly: how memory is managed changes no token."""

import itertools

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.core.config import EngineConfig, SamplingParams
from engine.model.weights import load_model
from tests.model.checked_engine import CheckedEngine, transformers_beams, transformers_greedy

MAX_TOKENS = 10
BEGIN = [7, 3, 200, 9, 14, 77, 5, 1]
PROMPTS = [
    BEGIN,
    [*BEGIN, 4],
    [*BEGIN, *BEGIN],
    [*BEGIN, *BEGIN, 6, 6, 6],
    [11],
    [*BEGIN, *BEGIN, *BEGIN, *BEGIN],
    [9, *BEGIN],
    [*BEGIN, *BEGIN, 6, 6, 5],
]
LONGEST = max(map(len, PROMPTS)) + MAX_TOKENS


@pytest.fixture(scope="module")
def loaded(tiny_model):
    return load_model(str(tiny_model), torch.float64, print)


@pytest.fixture(scope="module")
def reference(tiny_model):
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64)


@pytest.fixture(scope="module")
def expected(reference):
    return [transformers_greedy(reference, prompt, MAX_TOKENS) for prompt in PROMPTS]


def engine_config(block_size: int, pool: str, chunk: int | None, caching: bool) -> EngineConfig:
    needed = -(-LONGEST // block_size)
    return EngineConfig(
        block_size=block_size,
        num_blocks=needed + 1 if pool == "tight" else 40 * needed,
        max_model_len=64,
        max_num_seqs=8,
        max_num_batched_tokens=chunk or 512,
        enable_chunked_prefill=chunk is not None,
        enable_prefix_caching=caching,
    )


@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
@pytest.mark.parametrize("pool", ["tight", "ample"])
@pytest.mark.parametrize("chunk", [8, 64, None])
def test_greedy_output_equals_generate(loaded, expected, block_size, pool, chunk):
    """Caching on and off, n 1 and 4, one at a time and eight together."""
    preempted = hits = 0
    for caching, n, batch in itertools.product([False, True], [1, 4], [1, 8]):
        engine = CheckedEngine(engine_config(block_size, pool, chunk, caching), loaded)
        assert engine.greedy(PROMPTS, MAX_TOKENS, n, batch) == expected, (caching, n, batch)
        preempted += sum(engine.tally.totals.preemptions.values())
        hits += engine.tally.totals.prefix_hit_tokens
        assert caching or not engine.tally.totals.prefix_hit_tokens
    assert bool(preempted) == (pool == "tight")
    assert bool(hits) == (block_size < 32), "no prompt begins with a whole block of 32"


def test_a_key_of_four_bits_costs_hits_and_never_gives_a_wrong_one(loaded, expected):
    config = engine_config(4, "ample", 64, True)
    for bits in (4, 8, 64):
        narrow = msgspec.structs.replace(config, prefix_hash_bits=bits)
        engine = CheckedEngine(narrow, loaded)
        assert engine.greedy(PROMPTS, MAX_TOKENS, 1, batch=1) == expected
        assert engine.greedy(PROMPTS, MAX_TOKENS, 1, batch=1) == expected


@pytest.mark.parametrize("pool", ["tight", "ample"])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("ends", [False, True])
def test_beam_search_equals_that_of_transformers(loaded, reference, pool, length_penalty, ends):
    beams, prompts = 3, PROMPTS[:5]
    needed = beams * -(-(max(map(len, prompts)) + MAX_TOKENS) // 4)
    config = EngineConfig(
        block_size=4,
        num_blocks=needed if pool == "tight" else 10 * needed,
        max_model_len=64,
        max_num_seqs=12,
        max_num_batched_tokens=64,
    )
    # An end token that the model likes: one of those that its own beams contain.
    plain = [
        transformers_beams(reference, p, beams, MAX_TOKENS, None, length_penalty) for p in prompts
    ]
    eos = plain[0][0][MAX_TOKENS // 2] if ends else None
    expected = plain
    if ends:
        expected = [
            transformers_beams(reference, p, beams, MAX_TOKENS, eos, length_penalty)
            for p in prompts
        ]
        assert expected != plain, "no beam met the end token"
    engine = CheckedEngine(config, loaded, frozenset() if eos is None else frozenset({eos}))
    params = SamplingParams(
        n=beams, max_tokens=MAX_TOKENS, use_beam_search=True, length_penalty=length_penalty
    )
    requests = engine.run(prompts, params)
    assert [[beam.output for beam in r.beams.best] for r in requests] == expected
    assert engine.tally.totals.cow_copies
    if pool == "tight":
        assert sum(engine.tally.totals.preemptions.values())
