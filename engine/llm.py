"""LLMEngine: the step loop. One turn is schedule, copy, run, sample, commit, and one record of it."""

import time
from collections.abc import Callable

from engine.core.config import EngineConfig
from engine.core.detokenizer import Detokenizer
from engine.core.plan import Plan
from engine.core.runner import Runner
from engine.core.scheduler import Scheduler
from engine.core.sequence import Request
from engine.core.snapshot import Snapshot
from engine.events.records import Durations, Keyframe, Step, TokenCounts
from engine.events.totals import Tally

KNOWS = [
    "physical_blocks",
    "ref_counts",
    "fills",
    "block_hashes",
    "recompute",
    "latencies",
    "durations",
    "queues",
]
"""What the records of this engine tell, as their header says it."""


class LLMEngine:
    """Serves requests with a runner from a paged pool, and tells all of it in step records.

    Not thread-safe: one thread owns it. `on_record` is called with each record, right after the step.
    With `events` off there are no records and no keyframes: to measure what they cost. `hash_salt`
    is given where a run is to be repeated bit by bit; without it hashes differ from run to run.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        *,
        eos_token_ids: frozenset[int] = frozenset(),
        token_text: Callable[[int], str] | None = None,
        new_detokenizer: Callable[[Request], Detokenizer] | None = None,
        on_record: Callable[[Step], None] | None = None,
        events: bool = True,
        clock: Callable[[], float] = time.monotonic,
        hash_salt: bytes | None = None,
    ) -> None:
        self.config = config
        self.runner = runner
        self.clock = clock
        self.on_record = on_record
        self.events = events
        self.scheduler = Scheduler(
            config, clock, eos_token_ids, token_text, new_detokenizer, hash_salt
        )
        self.tally = Tally()
        self.seq = -1
        self.steps = -1
        self._last_time = clock()

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError for one that can never run here."""
        self.scheduler.add(request)

    def abort(self, request_id: str) -> bool:
        """End a request in any state; False where it has ended already."""
        return self.scheduler.abort(request_id)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; False, and nothing changes, while a block is active."""
        return self.scheduler.reset_prefix_cache()

    def step(self) -> Step | None:
        """One turn: returns its record, or None where there was nothing to do and nothing to tell."""
        started = self.clock()
        plan = self.scheduler.schedule()
        if not plan.rows:
            # Arrivals, refusals and aborts are told even when no model runs.
            return self._record(started, Durations(self.clock() - started, 0.0, 0.0), TokenCounts())
        scheduled = self.clock()
        output = self._run(plan)
        ran = self.clock()
        drawn = self.runner.sample(output, plan)
        tokens = self.scheduler.commit(plan, drawn)
        self.steps += 1
        durations = Durations(scheduled - started, ran - scheduled, self.clock() - ran)
        return self._record(started, durations, tokens)

    def keyframe(self) -> Keyframe:
        """The live state after the last record. What happened since then is recorded first."""
        return self.snapshot().keyframe()

    def snapshot(self) -> Snapshot:
        """The same as a copy, from which another thread makes the keyframe."""
        self.tell()
        return Snapshot(self.scheduler, self.tally, self.seq, self.steps, self._last_time)

    def tell(self) -> None:
        """Record what happened since the last step, if anything."""
        self._record(self.clock(), Durations(0.0, 0.0, 0.0), TokenCounts())

    def _run(self, plan: Plan) -> object:
        if plan.copies:
            self.runner.copy_blocks(plan.copies)
        return self.runner.run(plan)

    def _record(self, started: float, durations: Durations, tokens: TokenCounts) -> Step | None:
        """Close a record over the events so far, if any, and start the next."""
        scheduler = self.scheduler
        if not self.events:
            scheduler.events.clear()
        if not scheduler.events:
            return None
        self.seq += 1
        record = Step(
            seq=self.seq,
            step=self.steps,
            time=started,
            durations=durations,
            tokens=tokens,
            queues=scheduler.queues,
            events=scheduler.events.copy(),
        )
        scheduler.events.clear()
        scheduler.pool.seq = self.seq + 1
        self._last_time = started
        self.tally.apply(record)
        if self.on_record is not None:
            self.on_record(record)
        return record
