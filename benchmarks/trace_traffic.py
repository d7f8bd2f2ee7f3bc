"""Long recorded runs in little time: the model-free engine on a simulated clock.

Requests keep every place of the engine taken: when one ends the next is asked. Prompts begin with one
of a few system prompts, then differ; one request in `1 / FORKED` has two completions. What a step
would take is added to the clock, not slept.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.core.config import EngineConfig, SamplingParams
from engine.core.runner import ModelFreeRunner, StepCost
from engine.core.sequence import Request
from engine.events import KeyframePolicy, TraceWriter, encode
from engine.events.records import Header, Producer, Step
from engine.llm import LLMEngine

BLOCK_SIZE = 16
FORKED = 0.1


class Traffic(msgspec.Struct, frozen=True):
    """Sizes of a run. Prompt and output tokens are means; `system` tokens begin every prompt."""

    running: int
    num_blocks: int
    system: int
    prompt: int
    output: int
    max_num_batched_tokens: int = 8192
    seed: int = 0


class SimulatedClock:
    """Seconds that pass only when something is said to take time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def record_run(
    path: Path,
    traffic: Traffic,
    steps: int,
    policy: KeyframePolicy,
    tell: Callable[[int], None] = lambda step: None,
) -> int:
    """Record `steps` engine steps to `path`; returns the bytes of its records before compression."""
    clock = SimulatedClock()
    config = EngineConfig(
        block_size=BLOCK_SIZE,
        num_blocks=traffic.num_blocks,
        max_model_len=8 * (traffic.system + traffic.prompt + traffic.output),
        max_num_seqs=traffic.running,
        max_num_batched_tokens=traffic.max_num_batched_tokens,
    )
    records: list[Step] = []
    engine = LLMEngine(
        config,
        ModelFreeRunner(32000, StepCost(0.005, 0.00005, 0.00005, 0.0000001), clock.pass_by),
        on_record=records.append,
        clock=clock,
    )
    requests = _Requests(traffic)
    writer = TraceWriter(path, run_header(config), engine.keyframe())
    written = 0
    while engine.steps < steps - 1:
        while len(engine.scheduler.requests) < traffic.running * 1.05 + 1:
            engine.add(requests.next(clock.now))
        engine.step()
        for record in records:
            line = encode(record)
            written += len(line) + 1
            writer.write(line)
            policy.count(len(record.events))
        records.clear()
        if policy.due:
            writer.write_keyframe(engine.keyframe())
            policy.restart()
        if engine.steps % 1024 == 0:
            tell(engine.steps)
    writer.close()
    return written


def run_header(config: EngineConfig) -> Header:
    """The header of a model-free run."""
    return Header(
        schema_version=1,
        producer=Producer("glasspool-benchmark", "0"),
        knows=["physical_blocks", "ref_counts", "fills", "block_hashes", "recompute", "latencies",
               "durations", "queues"],
        engine_id="benchmark",
        engine_name="benchmark",
        model="none",
        dtype="float16",
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        bytes_per_block=1,
        num_layers=1,
        num_kv_heads=1,
        head_dim=1,
        config={**msgspec.structs.asdict(config), "policy": str(config.policy)},
        wall_time=time.time(),
        monotonic=0.0,
        redacted=["token_ids", "text"],
    )  # fmt: skip


class _Requests:
    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.draw = random.Random(traffic.seed)
        self.count = 0

    def next(self, now: float) -> Request:
        draw, traffic = self.draw, self.traffic
        most = 4 * (traffic.prompt + traffic.output)
        own = min(most, 1 + int(draw.expovariate(1 / traffic.prompt)))
        output = min(most, 1 + int(draw.expovariate(1 / traffic.output)))
        system = draw.randrange(4)
        prompt = [system * 1000 + i for i in range(traffic.system)]
        prompt += [draw.randrange(32000) for _ in range(own)]
        self.count += 1
        params = SamplingParams(
            n=2 if draw.random() < FORKED else 1, max_tokens=output, ignore_eos=True,
            seed=self.count,
        )  # fmt: skip
        return Request(f"r{self.count}", prompt, params, now)
