"""An engine with a model whose every step is checked, and transformers' own generate beside it."""

import torch
from transformers import PreTrainedModel

from engine.core.config import EngineConfig, SamplingParams
from engine.core.sequence import Request
from engine.events import PoolState, check_state, check_step
from engine.llm import LLMEngine
from engine.model.runner import ModelRunner
from engine.model.weights import LoadedModel
from tests.core.driver import header, sorted_rows
from tests.core.invariants import check_core, check_plan


class CheckedEngine(LLMEngine):
    """After every step all rules hold, and the live state equals the fold of the records."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        eos_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        runner = ModelRunner(
            loaded.model,
            config.num_blocks,
            config.block_size,
            loaded.num_layers,
            loaded.num_kv_heads,
            loaded.head_dim,
            eos_token_ids=eos_token_ids,
        )
        super().__init__(config, runner, eos_token_ids=eos_token_ids)
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

    def run(
        self, prompts: list[list[int]], params: SamplingParams, batch: int = 8
    ) -> list[Request]:
        """Ask for a continuation of each prompt, `batch` of them at a time."""
        requests = []
        for number, prompt in enumerate(prompts):
            requests.append(Request(f"r{number}", prompt, params, self.clock()))
            self.add(requests[-1])
            if len(self.scheduler.requests) == batch:
                self.run_until_idle()
        self.run_until_idle()
        return requests

    def run_until_idle(self) -> None:
        while self.has_work:
            self.step()
            assert sorted_rows(self.keyframe()) == sorted_rows(self.fold.keyframe())

    def greedy(
        self, prompts: list[list[int]], max_tokens: int, n: int = 1, batch: int = 8
    ) -> list[list[int]]:
        """The output of each prompt; its n completions must be equal."""
        params = SamplingParams(n=n, max_tokens=max_tokens, temperature=0, ignore_eos=True)
        requests = self.run(prompts, params, batch)
        for request in requests:
            assert len({tuple(sequence.output) for sequence in request.sequences}) == 1
        return [request.sequences[0].output for request in requests]


def transformers_greedy(model: PreTrainedModel, prompt: list[int], max_tokens: int) -> list[int]:
    """What `generate` gives for the prompt alone."""
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


def transformers_beams(
    model: PreTrainedModel,
    prompt: list[int],
    beams: int,
    max_tokens: int,
    eos_token_id: int | None,
    length_penalty: float,
) -> list[list[int]]:
    """The best `beams` outputs of transformers' beam search, cut after their end token."""
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=max_tokens,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=length_penalty,
        early_stopping=False,
        do_sample=False,
        eos_token_id=eos_token_id,
        pad_token_id=0,
    )
    outputs = [row[len(prompt) :].tolist() for row in out]
    if eos_token_id is None:
        return outputs
    return [o[: o.index(eos_token_id) + 1] if eos_token_id in o else o for o in outputs]
