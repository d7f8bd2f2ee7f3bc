"""A model-free engine for tests: every operation is followed by all checks, and by the fold."""

from dataclasses import dataclass, field

from engine.core.config import EngineConfig, SamplingParams
from engine.core.sequence import Request
from engine.events import PoolState, check_state, check_step, decode, encode
from engine.events.records import Event, Header, Keyframe, Producer, Step
from engine.llm import LLMEngine
from tests.core.invariants import check_core, check_plan
from tests.core.kv_runner import KvRunner
from tests.core.ledger import Ledger


def config(**changes) -> EngineConfig:
    """A tiny engine: 8 blocks of 4 tokens, without prefix caching."""
    sizes = {
        "block_size": 4,
        "num_blocks": 8,
        "max_model_len": 24,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "enable_prefix_caching": False,
    }
    return EngineConfig(**{**sizes, **changes})


def header(of: EngineConfig) -> Header:
    return Header(
        schema_version=1,
        producer=Producer("test", "0"),
        knows=["physical_blocks", "ref_counts", "fills"],
        engine_id="test",
        engine_name="test",
        model="none",
        dtype="none",
        block_size=of.block_size,
        num_blocks=of.num_blocks,
        bytes_per_block=1,
        num_layers=1,
        num_kv_heads=1,
        head_dim=1,
        config={},
        wall_time=0.0,
        monotonic=0.0,
        redacted=[],
    )


@dataclass
class Driver:
    """An engine, the fold of its records, an independent ledger, and what it said.

    Token 0 ends a sequence, unless it was added with ignore_eos.
    """

    config: EngineConfig
    vocab_size: int = 50
    finished: list[Request] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runner = KvRunner(self.config.block_size, self.vocab_size)
        self.ledger = Ledger(self.config)
        self.now = 0.0
        self.engine = LLMEngine(
            self.config,
            self.runner,
            eos_token_ids=frozenset({0}),
            token_text=lambda token: f"{token} ",
            on_record=self._on_record,
            clock=self._clock,
        )
        self.state = PoolState(header(self.config))
        self.state.apply(self.engine.keyframe())
        self.scheduler = self.engine.scheduler
        # Which contents share a key must be the same in every run of a test.
        self.scheduler.index._salt = bytes(16)
        self._watch_scheduler()

    def _watch_scheduler(self) -> None:
        """Check each plan before it runs, and let the ledger know each sequence."""
        schedule, new_sequence = self.scheduler.schedule, self.scheduler.new_sequence

        def checked_schedule():
            before = list(self.scheduler.pool.ref_count)
            plan = schedule()
            check_plan(self.scheduler, plan, before)
            self.ledger.plan(plan)
            return plan

        def noted_sequence(request, tokens):
            sequence = new_sequence(request, tokens)
            self.ledger.sequences[sequence.sequence] = sequence
            return sequence

        self.scheduler.schedule = checked_schedule
        self.scheduler.new_sequence = noted_sequence

    def _clock(self) -> float:
        self.now += 0.001
        return self.now

    def _on_record(self, record: Step) -> None:
        record = decode(encode(record))
        self.events += record.events
        self.state.apply(record)
        self.ledger.apply(record)
        assert check_state(self.state) + check_step(self.state, record) == []

    def add(
        self,
        prompt: int | list[int],
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        **params,
    ) -> Request:
        """Queue a prompt of so many (or these) tokens; ends at max_tokens unless told otherwise."""
        tokens = prompt if isinstance(prompt, list) else list(range(1, prompt + 1))
        params = {"ignore_eos": True, "seed": 1, **params}
        request = Request(
            request_id or f"r{self.scheduler._next_arrival}",
            tokens,
            SamplingParams(**params),
            self.now,
            self.finished.append,
            priority,
            cache_salt,
        )
        self.engine.add(request)
        return request

    def step(self, times: int = 1) -> list[Event]:
        """Step, check everything, and return the events of these steps."""
        start = len(self.events)
        for _ in range(times):
            had_work = self.engine.has_work
            record = self.engine.step()
            assert not had_work or record.tokens.total > 0, "a step without progress"
            self.check()
        return self.events[start:]

    def run(self, most: int = 2000) -> list[Event]:
        """Step until nothing is left to do; fails where that takes more than `most` steps."""
        start = len(self.events)
        while self.engine.has_work:
            most -= 1
            assert most > 0, "the engine makes no progress"
            self.step()
        return self.events[start:]

    def check(self) -> None:
        """The core's invariants, and that the live state equals the fold of its records."""
        check_core(self.scheduler)
        assert sorted_rows(self.engine.keyframe()) == sorted_rows(self.state.keyframe())
        self.ledger.compare(self.scheduler)
        totals = self.engine.tally.totals
        assert totals.prefix_hit_tokens <= totals.prefix_queried_tokens
        if not self.engine.has_work:
            assert self.state.active_blocks == 0, "idle, and a block is active"


def of_kind(events: list[Event], kind: type[Event]) -> list:
    return [event for event in events if isinstance(event, kind)]


def sorted_rows(keyframe: Keyframe) -> tuple:
    """A keyframe's content without the order of its sequences and requests."""
    return (
        keyframe.seq,
        keyframe.step,
        keyframe.time,
        keyframe.blocks,
        sorted(keyframe.sequences, key=lambda row: row.sequence),
        sorted(keyframe.requests, key=lambda row: row.request),
        keyframe.totals,
    )
