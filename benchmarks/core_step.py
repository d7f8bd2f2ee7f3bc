"""What the core costs a step, without a model: schedule, commit, record, encode, and block operations.

    python benchmarks/core_step.py

Every running sequence decodes one token a step. Their lengths differ by up to a block, so that in
each step one of `block_size` sequences takes a new block and publishes a full one. Times are CPU time
of the thread, and of several rounds through all cases the best counts: so other work on a shared
machine weighs little.
"""

import itertools
import statistics
from collections.abc import Callable
from time import thread_time

import msgspec
from rich.console import Console
from rich.table import Table

from engine.core.block_pool import BlockPool
from engine.core.config import EngineConfig, SamplingParams
from engine.core.runner import ModelFreeRunner
from engine.core.sequence import Request
from engine.events import encode
from engine.events.records import Durations
from engine.llm import LLMEngine

BLOCK_SIZE = 16
ROUNDS, STEPS = 8, 10
MOST_TOKENS = ROUNDS * STEPS + 2
Case = tuple[int, int, int, int]
"""Running sequences, blocks of the pool, tokens of a sequence, waiting sequences."""
RUNNING = (16, 64, 256, 1024)
POOLS = (4096, 65536)
LENGTHS = (100, 4000)


class Cost(msgspec.Struct):
    """Median microseconds of one step's parts."""

    schedule: float
    commit: float
    record: float
    encode: float

    @property
    def core(self) -> float:
        """What every step pays: encoding happens only when somebody reads."""
        return self.schedule + self.commit + self.record


def decoding_engine(running: int, num_blocks: int, length: int, waiting: int = 0) -> LLMEngine:
    """An engine whose sequences all have about `length` tokens, and some more that find no room."""
    config = EngineConfig(
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        max_model_len=length + MOST_TOKENS,
        max_num_seqs=running,
        max_num_batched_tokens=running * length,
    )
    engine = LLMEngine(config, ModelFreeRunner(vocab_size=32000))
    for number in range(running + waiting):
        tokens = length - number % BLOCK_SIZE
        prompt = [number * length + i for i in range(tokens)]
        params = SamplingParams(max_tokens=MOST_TOKENS, ignore_eos=True, seed=number)
        engine.add(Request(f"r{number}", prompt, params, 0.0))
    while len(engine.scheduler.running) < running or any(
        sequence.remaining > 1 for sequence in engine.scheduler.running
    ):
        engine.step()
    return engine


def measure(engine: LLMEngine) -> Cost:
    """The calls of LLMEngine.step, with a clock between them."""
    scheduler, runner = engine.scheduler, engine.runner
    took = []
    for _ in range(STEPS):
        start = thread_time()
        plan = scheduler.schedule()
        scheduled = thread_time()
        output = runner.sample(None, plan)
        drawn = thread_time()
        tokens = scheduler.commit(plan, output)
        committed = thread_time()
        record = engine._record(start, Durations(0.0, 0.0, 0.0), tokens)
        recorded = thread_time()
        encode(record)
        end = thread_time()
        took.append((scheduled - start, committed - drawn, recorded - committed, end - recorded))
    return Cost(*(statistics.median(part) * 1e6 for part in zip(*took, strict=True)))


def measure_all(cases: list[Case]) -> dict[Case, Cost]:
    """Several rounds through all cases; of each case the cheapest round counts."""
    engines = {case: decoding_engine(*case) for case in cases}
    rounds = [{case: measure(engine) for case, engine in engines.items()} for _ in range(ROUNDS)]
    return {case: min((costs[case] for costs in rounds), key=lambda c: c.core) for case in cases}


def fits(running: int, num_blocks: int, length: int) -> bool:
    return -(-(length + MOST_TOKENS) // BLOCK_SIZE) * running <= num_blocks


def step_table(console: Console) -> dict[Case, Cost]:
    cases = [(*case, 0) for case in itertools.product(RUNNING, POOLS, LENGTHS) if fits(*case)]
    costs = measure_all([*cases, (256, 65536, 100, 1000)])
    table = Table(title="µs a step (median), every running sequence decodes one token")
    names = ("running", "pool", "tokens", "waiting", "schedule", "commit", "record", "sum", "each")
    for name in (*names, "encode"):
        table.add_column(name, justify="right", style="bold" if name == "sum" else None)
    for case, cost in costs.items():
        table.add_row(
            *(f"{number:,}" for number in case),
            *(f"{us:,.0f}" for us in (cost.schedule, cost.commit, cost.record, cost.core)),
            f"{cost.core / case[0]:.2f}",
            f"{cost.encode:,.0f}",
        )
    console.print(table)
    return costs


def print_ratios(console: Console, costs: dict[Case, Cost]) -> None:
    def ratio(one: Case, other: Case) -> str:
        return f"{costs[other].core / costs[one].core:.2f}"

    usual = (256, 65536, 100, 0)
    console.print(
        f"running sequences x 4: {ratio((64, 65536, 100, 0), usual)} from 64 to 256, "
        f"{ratio(usual, (1024, 65536, 100, 0))} from 256 to 1,024"
    )
    console.print(f"pool 65,536 / 4,096: {ratio((256, 4096, 100, 0), usual)}")
    console.print(f"4,000 / 100 tokens each: {ratio(usual, (256, 65536, 4000, 0))}")
    console.print(f"1,000 / 0 waiting: {ratio(usual, (256, 65536, 100, 1000))}")


def per_call(operation: Callable[[], object], calls: int = 20000) -> float:
    """Best of five, in microseconds."""
    best = float("inf")
    for _ in range(5):
        start = thread_time()
        for _ in range(calls):
            operation()
        best = min(best, thread_time() - start)
    return best / calls * 1e6


def block_table(console: Console) -> None:
    table = Table(title="µs a block operation")
    for name in ("pool", "take, drop", "share, drop", "evict, cache, drop"):
        table.add_column(name, justify="right")
    for num_blocks in (64, 65536):
        free, shared, full = (BlockPool(num_blocks) for _ in range(3))
        block, _ = shared.take()
        for _ in range(num_blocks):
            taken, _ = full.take()
            full.keep_content(taken)
            full.drop(taken)

        def take_and_drop(pool=free):
            pool.drop(pool.take()[0])

        def share_and_drop(pool=shared, block=block):
            pool.share(block)
            pool.drop(block)

        def evict_and_cache(pool=full):
            block, _ = pool.take()
            pool.keep_content(block)
            pool.drop(block)

        times = (per_call(call) for call in (take_and_drop, share_and_drop, evict_and_cache))
        table.add_row(f"{num_blocks:,}", *(f"{time:.2f}" for time in times))
    console.print(table)


if __name__ == "__main__":
    out = Console(width=100)
    print_ratios(out, step_table(out))
    block_table(out)
