"""Tokens a second against batch size: naive reservation and paging in the same memory.

Naive reservation is the same engine with one block of max_model_len tokens a sequence: a sequence takes
all of it when it starts, however short it stays. Paging takes blocks of 16 as tokens come. So the two
differ in nothing but the block size, and the memory decides how many sequences run together.
"""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import altair as alt

from engine.core.config import ConfigError, EngineConfig, SamplingParams
from engine.core.sequence import Request
from engine.llm import LLMEngine
from engine.model.runner import ModelRunner
from engine.model.weights import LoadedModel

PAGED_BLOCK = 16


@dataclass(frozen=True)
class ThroughputSettings:
    """`memory_tokens` slots in all, in both ways. Lengths are drawn, the same for every point."""

    memory_tokens: int
    max_model_len: int
    batch_sizes: tuple[int, ...]
    requests: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    repeats: int
    seed: int = 0


def measure(
    loaded: LoadedModel, settings: ThroughputSettings, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One row a batch size: tokens a second of both ways, medians of interleaved runs.

    Raises ConfigError where the memory does not hold a single sequence.
    """
    if settings.memory_tokens < settings.max_model_len:
        raise ConfigError(
            f"memory of {settings.memory_tokens} tokens holds no sequence of max_model_len "
            f"{settings.max_model_len}: raise the first or lower the second"
        )
    rows = []
    for batch in settings.batch_sizes:
        rates: dict[str, list[float]] = {"naive": [], "paged": []}
        most: dict[str, int] = {"naive": 0, "paged": 0}
        preemptions = 0
        for repeat in range(settings.repeats):
            for way, block in (("naive", settings.max_model_len), ("paged", PAGED_BLOCK)):
                progress(f"batch {batch}, {way}, run {repeat + 1} of {settings.repeats}")
                rate, running, preempted = _run(loaded, settings, batch, block)
                rates[way].append(rate)
                most[way] = max(most[way], running)
                preemptions += preempted if way == "paged" else 0
        naive, paged = (statistics.median(rates[way]) for way in ("naive", "paged"))
        rows.append(
            {
                "batch asked": batch,
                "batch naive": most["naive"],
                "batch paged": most["paged"],
                "naive": naive,
                "paged": paged,
                "paged / naive": statistics.median(
                    p / n for p, n in zip(rates["paged"], rates["naive"], strict=True)
                ),
                "preemptions": preemptions,
            }
        )
    return rows


UNITS = {"naive": "tokens/s", "paged": "tokens/s"}


def chart(rows: list[dict[str, Any]]) -> alt.Chart:
    """Tokens a second over the batch that was asked for."""
    points = [
        {"batch": row["batch asked"], "tokens/s": row[way], "memory": way}
        for row in rows
        for way in ("naive", "paged")
    ]
    return (
        alt.Chart(alt.Data(values=points), title="Throughput in the same memory")
        .mark_line(point=True)
        .encode(
            x=alt.X("batch:Q", title="most running sequences (max_num_seqs)"),
            y=alt.Y("tokens/s:Q", title="output tokens a second"),
            color=alt.Color("memory:N", title=None),
        )
        .properties(width=480, height=300)
    )


def _run(
    loaded: LoadedModel, settings: ThroughputSettings, batch: int, block_size: int
) -> tuple[float, int, int]:
    """Serve all requests; returns output tokens a second, most running at once, preemptions."""
    config = EngineConfig(
        block_size=block_size,
        num_blocks=settings.memory_tokens // block_size,
        max_model_len=settings.max_model_len,
        max_num_seqs=batch,
        max_num_batched_tokens=max(512, batch),
        enable_prefix_caching=False,
    )
    runner = ModelRunner(
        loaded.model,
        config.num_blocks,
        config.block_size,
        loaded.num_layers,
        loaded.num_kv_heads,
        loaded.head_dim,
    )
    engine = LLMEngine(config, runner)
    draw = random.Random(settings.seed)
    vocabulary = loaded.model.get_input_embeddings().weight.shape[0]
    output = 0
    for number in range(settings.requests):
        prompt = [draw.randrange(vocabulary) for _ in range(draw.randint(*settings.prompt_tokens))]
        length = draw.randint(*settings.output_tokens)
        output += length
        params = SamplingParams(max_tokens=length, temperature=0, ignore_eos=True)
        engine.add(Request(f"r{number}", prompt, params, engine.clock()))
    most = 0
    started = time.perf_counter()
    while engine.has_work:
        engine.step()
        most = max(most, engine.scheduler.queues.running)
    seconds = time.perf_counter() - started
    return output / seconds, most, sum(engine.tally.totals.preemptions.values())
