"""A real run of the tiny model, as records and as a trace: all requests are there at the start."""

import random
from pathlib import Path

import torch

from engine.core.config import EngineConfig, SamplingParams
from engine.core.sequence import Request
from engine.events.records import Step
from engine.llm import LLMEngine
from engine.model.runner import ModelRunner
from engine.model.weights import load_model
from tests.events.traces import full_header, steps_of, write_trace

EOS = frozenset({256})
CONFIG = EngineConfig(
    block_size=4,
    num_blocks=22,
    max_model_len=64,
    max_num_seqs=8,
    max_num_batched_tokens=24,
    watermark=0.05,
)
"""A pool so small that it runs dry, and prompts that are computed in chunks."""


def asked_of_the_model(seed: int = 0) -> list[tuple[list[int], SamplingParams]]:
    """Prompts that begin alike, greedy ones that ignore the end token, and sampled ones that may end."""
    draw = random.Random(seed)
    system = [draw.randrange(256) for _ in range(9)]

    def prompt(own: int, shared: bool = True) -> list[int]:
        return [*(system if shared else []), *(draw.randrange(256) for _ in range(own))]

    greedy = {"temperature": 0.0, "ignore_eos": True}
    # The end token is biased up, so that some completions end before their max_tokens.
    ending = {"temperature": 1.0, "logit_bias": {256: 3.0}}
    return [
        (prompt(3), SamplingParams(max_tokens=14, **greedy)),
        (prompt(6), SamplingParams(max_tokens=30, n=2, seed=11, **ending)),
        (prompt(10, shared=False), SamplingParams(max_tokens=12, **greedy)),
        (prompt(1), SamplingParams(max_tokens=24, n=3, seed=12, **ending)),
        (prompt(5), SamplingParams(max_tokens=20, n=2, **greedy)),
    ]


def real_run(
    folder: Path, asked: list[tuple[list[int], SamplingParams]], path: Path | None = None
) -> tuple[list[Step], list[Request]]:
    """Serve what is asked with the model in `folder`; write the trace to `path`."""
    config = CONFIG
    torch.manual_seed(0)
    loaded = load_model(str(folder), torch.float32, lambda what: None)
    runner = ModelRunner(
        loaded.model,
        config.num_blocks,
        config.block_size,
        loaded.num_layers,
        loaded.num_kv_heads,
        loaded.head_dim,
        eos_token_ids=EOS,
    )
    engine = LLMEngine(config, runner, eos_token_ids=EOS)
    records: list = [engine.keyframe()]
    engine.on_record = records.append
    requests = [
        Request(f"r{number}", prompt, params, engine.clock())
        for number, (prompt, params) in enumerate(asked)
    ]
    for request in requests:
        engine.add(request)
    while engine.has_work:
        engine.step()
    if path is not None:
        write_trace(path, full_header(config), records)
    return steps_of(records), requests
