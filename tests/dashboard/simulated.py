"""A small simulated engine that emits the contract's records, for traces without a model.

It keeps its own books (a free list, tables, ref counts), so its records fold only if both sides
mean the same by each event. Random, but the same for the same seed.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

from engine.events import PoolState, TraceWriter, encode
from engine.events.records import (
    SCHEMA_VERSION,
    Allocate,
    AnyEvent,
    BlockSource,
    Cache,
    Computed,
    CopyOnWrite,
    Durations,
    Evict,
    FinishReason,
    Fork,
    Header,
    Keyframe,
    Preempt,
    PreemptWhy,
    Producer,
    QueueLengths,
    Release,
    ReleaseWhy,
    RequestAdded,
    RequestFinished,
    Sampled,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Share,
    ShareWhy,
    Step,
    TokenCounts,
    Totals,
)
from engine.llm import KNOWS

WORDS = [
    "the ",
    "pool ",
    "holds ",
    "blocks ",
    "of ",
    "sixteen ",
    "slots, ",
    "shared ",
    "or ",
    "free. ",
]


def header(num_blocks: int, block_size: int = 16, knows: list[str] | None = None) -> Header:
    return Header(
        schema_version=SCHEMA_VERSION,
        producer=Producer("simulated", "1"),
        knows=KNOWS if knows is None else knows,
        engine_id="simulated-0",
        engine_name="Simulated_engine",
        model="tiny-*random*-llama",
        dtype="float32",
        block_size=block_size,
        num_blocks=num_blocks,
        bytes_per_block=46_080,
        num_layers=30,
        num_kv_heads=3,
        head_dim=64,
        config={"block_size": block_size},
        wall_time=1_790_000_000.0,
        monotonic=100.0,
        redacted=[],
    )


def empty_keyframe() -> Keyframe:
    return Keyframe(-1, 0, 100.0, [], [], [], Totals())


@dataclass
class Sequence:
    number: int
    request: str
    known: int
    goal: int
    table: list[int] = field(default_factory=list)
    computed: int = 0
    computed_before: int = 0


@dataclass
class Request:
    name: str
    prompt: int
    n: int
    arrived: float
    first_token: float | None = None
    left: int = 0
    output: int = 0
    preemptions: int = 0
    recomputed: int = 0


class SimulatedEngine:
    """Admits requests while there is room, decodes what runs, preempts the youngest."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        *,
        seed: int = 1,
        prompt: tuple[int, int] = (20, 120),
        output: tuple[int, int] = (20, 90),
        max_running: int = 12,
        step_seconds: float = 0.05,
        requests: int | None = None,
    ) -> None:
        self.header = header(num_blocks, block_size)
        self.size = block_size
        self.rng = random.Random(seed)
        self.lengths = prompt, output
        self.max_running = max_running
        self.step_seconds = step_seconds
        self.requests_to_come = requests
        self.time, self.seq = 100.0, -1
        self.free = list(range(num_blocks))
        self.rng.shuffle(self.free)
        self.cached: dict[int, str] = {}
        self.hashes: dict[int, str] = {}
        self.refs = [0] * num_blocks
        self.requests: dict[str, Request] = {}
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.events: list[AnyEvent] = []
        self.next_sequence = self.next_request = 0

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running and self.requests_to_come == 0

    def step(self) -> Step:
        """One turn; the record of it."""
        self.events = []
        self.seq += 1
        self.time += self.step_seconds
        if self.requests_to_come != 0 and len(self.waiting) < 3:
            self._add()
        scheduled: list[tuple[Sequence, int]] = []
        for sequence in list(self.running):
            if sequence in self.running and self._grow(sequence, sequence.computed + 1, scheduled):
                scheduled.append((sequence, 1))
        self._admit(scheduled)
        counts = self._compute(scheduled)
        self._finish()
        preempted = sum(1 for s in self.waiting if s.computed_before)
        return Step(
            seq=self.seq,
            step=self.seq + 1,
            time=self.time,
            durations=Durations(0.001, self.step_seconds * 0.8, 0.001),
            tokens=counts,
            queues=QueueLengths(len(self.waiting) - preempted, len(self.running), preempted),
            events=self.events,
        )

    def _add(self) -> None:
        low, high = self.lengths[0]
        request = Request(
            f"req-{self.next_request}",
            self.rng.randint(low, high),
            self.rng.choice([1, 1, 2, 4]),
            self.time,
        )
        request.left = request.n
        if self.requests_to_come is not None:
            self.requests_to_come -= 1
        self.next_request += 1
        self.requests[request.name] = request
        goal = request.prompt + self.rng.randint(*self.lengths[1])
        sequence = Sequence(self._number(), request.name, request.prompt, goal)
        self.waiting.append(sequence)
        text = [WORDS[i % len(WORDS)] for i in range(request.prompt)]
        self.events.append(
            RequestAdded(
                request.name, sequence.number, request.prompt, request.n, 99, request.arrived, text
            )
        )

    def _number(self) -> int:
        self.next_sequence += 1
        return self.next_sequence - 1

    def _available(self) -> int:
        return len(self.free) + len(self.cached)

    def _take(self) -> tuple[int, BlockSource]:
        if self.free:
            return self.free.pop(), BlockSource.FREE
        block = next(iter(self.cached))
        del self.hashes[block]
        self.events.append(Evict(block, self.cached.pop(block)))
        return block, BlockSource.EVICTED

    def _grow(self, sequence: Sequence, end: int, scheduled: list[tuple[Sequence, int]]) -> bool:
        last = sequence.computed // self.size
        writes_shared = (
            sequence.computed % self.size
            and last < len(sequence.table)
            and self.refs[sequence.table[last]] > 1
        )
        needed = -(-end // self.size) - len(sequence.table) + bool(writes_shared)
        while self._available() < needed:
            victim = self.running[-1]
            self._preempt(victim, sequence)
            scheduled[:] = [entry for entry in scheduled if entry[0] is not victim]
            if victim is sequence:
                return False
            writes_shared = writes_shared and self.refs[sequence.table[last]] > 1
            needed = -(-end // self.size) - len(sequence.table) + bool(writes_shared)
        if writes_shared:
            source = sequence.table[last]
            target, origin = self._take()
            self.refs[source] -= 1
            self.refs[target] = 1
            sequence.table[last] = target
            self.events.append(CopyOnWrite(source, target, sequence.number, last, origin))
        while len(sequence.table) * self.size < end:
            block, origin = self._take()
            self.refs[block] = 1
            self.events.append(Allocate(block, sequence.number, len(sequence.table), origin))
            sequence.table.append(block)
        return True

    def _preempt(self, victim: Sequence, needy: Sequence) -> None:
        self.running.remove(victim)
        self.events.append(
            Preempt(
                victim.number,
                PreemptWhy.NO_FREE_BLOCK,
                needy.number,
                len(victim.table),
                victim.computed,
            )
        )
        victim.computed_before = max(victim.computed, victim.computed_before)
        victim.computed = 0
        self.requests[victim.request].preemptions += 1
        self._release(victim, ReleaseWhy.PREEMPTED)
        self.waiting.insert(0, victim)

    def _release(self, sequence: Sequence, why: ReleaseWhy) -> None:
        while sequence.table:
            block = sequence.table.pop()
            self.refs[block] -= 1
            self.events.append(Release(block, sequence.number, why, self.refs[block]))
            if not self.refs[block]:
                if block in self.hashes:
                    self.cached[block] = self.hashes[block]
                else:
                    self.free.append(block)

    def _admit(self, scheduled: list[tuple[Sequence, int]]) -> None:
        while self.waiting and len(self.running) < self.max_running:
            sequence = self.waiting[0]
            # One block of air, so that what is admitted does not at once push another out.
            if self._available() < -(-sequence.known // self.size) + 1:
                return
            self.waiting.pop(0)
            self.running.append(sequence)
            kind = ScheduledKind.RESUMED if sequence.computed_before else ScheduledKind.FIRST
            self.events.append(SequenceScheduled(sequence.number, kind))
            self._grow(sequence, sequence.known, scheduled)
            scheduled.append((sequence, sequence.known))

    def _compute(self, scheduled: list[tuple[Sequence, int]]) -> TokenCounts:
        prefill = decode = recompute = 0
        for sequence, tokens in scheduled:
            request = self.requests[sequence.request]
            start = sequence.computed
            sequence.computed += tokens
            again = max(0, min(sequence.computed, sequence.computed_before) - start)
            self.events.append(Computed(sequence.number, tokens, again))
            request.recomputed += again
            recompute += again
            if sequence.known > request.prompt:
                decode += tokens - again
            else:
                prefill += tokens - again
            for index in range(start // self.size, sequence.computed // self.size):
                block = sequence.table[index]
                if block not in self.hashes:
                    self.hashes[block] = f"{sequence.number}-{index}"
                    self.events.append(Cache(block, self.hashes[block]))
            first = request.first_token is None
            request.first_token = request.first_token or self.time + 0.02
            for member in [sequence, *(self._fork(sequence, request) if first else [])]:
                member.known += 1
                self.events.append(Sampled(member.number, WORDS[member.known % len(WORDS)]))
        return TokenCounts(prefill, decode, recompute)

    def _fork(self, parent: Sequence, request: Request) -> list[Sequence]:
        children = []
        for _ in range(request.n - 1):
            child = Sequence(
                self._number(), parent.request, parent.known, parent.goal + self.rng.randint(0, 30)
            )
            child.computed = parent.computed
            self.events.append(Fork(parent.number, child.number))
            for index, block in enumerate(parent.table):
                child.table.append(block)
                self.refs[block] += 1
                self.events.append(Share(block, child.number, index, ShareWhy.FORK))
            self.running.append(child)
            children.append(child)
        return children

    def _finish(self) -> None:
        for sequence in [s for s in self.running if s.known >= s.goal]:
            self.running.remove(sequence)
            self._release(sequence, ReleaseWhy.FINISHED)
            request = self.requests[sequence.request]
            output = sequence.known - request.prompt
            self.events.append(SequenceFinished(sequence.number, FinishReason.LENGTH, output))
            request.left -= 1
            request.output += output
            if not request.left:
                del self.requests[request.name]
                self.events.append(
                    RequestFinished(
                        request.name,
                        FinishReason.LENGTH,
                        request.output,
                        request.preemptions,
                        request.recomputed,
                        0.01,
                        request.first_token - request.arrived,
                        self.time + 0.03 - request.arrived,
                    )
                )


def write_trace(path: Path, engine: SimulatedEngine, steps: int, keyframe_every: int = 100) -> Path:
    """Record `steps` turns of `engine`, or fewer when it has nothing left to do."""
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    writer = TraceWriter(path, engine.header, empty_keyframe())
    for number in range(1, steps + 1):
        if engine.idle:
            break
        step = engine.step()
        state.apply(step)
        writer.write(encode(step))
        if number % keyframe_every == 0:
            writer.write_keyframe(state.keyframe())
    writer.close()
    return path
