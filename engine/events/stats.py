"""The figures of a whole trace, from one pass over it.

Counters are those of the fold (`Totals`), which are those that a scrape of the engine showed.
What the producer does not know is None.
"""

import heapq
from pathlib import Path

import msgspec

from engine.events.index import Progress
from engine.events.pool_state import PoolState
from engine.events.records import Gap, Header, Keyframe, RequestFinished, Step, Totals
from engine.events.summaries import Level, LevelOverTime, Percentiles, Values
from engine.events.trace import TraceReader

MOST_VICTIMS = 5
RECORDS_PER_TELL = 256


class Victim(msgspec.Struct, frozen=True):
    """A request that was preempted."""

    request: str
    preemptions: int
    recomputed_tokens: int


class TraceStats(msgspec.Struct, frozen=True):
    """seconds: from the first keyframe to the end of the last step. `totals` count from the engine's
    start; `before` is what of them was counted before the trace began.

    utilisation: active blocks / blocks. fill: filled / allocated slots of active blocks, which is
    1 - fragmentation. sharing: references / active blocks. All three at the ends of records.
    recompute_tax: recomputed / computed tokens. prefix_hit_rate: found / looked-up prompt tokens.
    output_tokens: of requests that ended. inter_token includes time spent preempted.
    simulated: no model ran, times are a cost model's. left_out counts step records in gaps,
    `unseen_seconds` the time these took.
    """

    model: str
    engine_id: str
    simulated: bool
    num_blocks: int
    block_size: int
    seconds: float
    unseen_seconds: float
    steps: int
    records: int
    events: int
    gaps: int
    left_out: int
    missing: str | None
    totals: Totals
    before: Totals
    unfinished: int
    output_tokens: int
    utilisation: Level | None
    fill: Level | None
    sharing: Level | None
    recompute_tax: float | None
    prefix_hit_rate: float | None
    preempted_requests: int
    victims: list[Victim]
    queue_seconds: Percentiles | None
    first_token_seconds: Percentiles | None
    inter_token_seconds: Percentiles | None
    request_seconds: Percentiles | None
    step_seconds: Percentiles | None
    schedule_seconds: Percentiles | None
    model_seconds: Percentiles | None
    sample_seconds: Percentiles | None

    def counted(self, name: str) -> int:
        """A counter of Totals, over the trace alone."""
        return getattr(self.totals, name) - getattr(self.before, name)

    @property
    def computed_tokens(self) -> int:
        return sum(map(self.counted, ("prefill_tokens", "decode_tokens", "recompute_tokens")))

    def per_second(self, count: int) -> float | None:
        """A rate over the time that was seen; None for a trace that lasts no time."""
        seen = self.seconds - self.unseen_seconds
        return count / seen if seen > 0 else None


class StatsFold:
    """Takes each record with the state after it; `result` at the end."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self._first: tuple[float, Totals] | None = None
        self._time = self._end = 0.0
        self._seen = self._unseen = 0.0
        self._in_gap = False
        self._steps = self._records = self._events = self._gaps = self._left_out = 0
        self._output_tokens = self._preempted = 0
        self._victims: list[tuple[int, int, str]] = []
        self._levels = {name: LevelOverTime() for name in ("utilisation", "fill", "sharing")}
        self._times = {
            name: Values()
            for name in (
                "queue_seconds", "first_token_seconds", "inter_token_seconds", "request_seconds",
                "step_seconds", "schedule_seconds", "model_seconds", "sample_seconds",
            )
        }  # fmt: skip

    def add(self, record: Keyframe | Step | Gap, state: PoolState) -> None:
        """Count one record."""
        self._records += 1
        match record:
            case Step():
                self._step(record, state)
            case Keyframe():
                self._keyframe(record, state)
            case Gap():
                self._gaps += 1
                self._left_out += record.count
                self._in_gap = True

    def _keyframe(self, keyframe: Keyframe, state: PoolState) -> None:
        if self._first is None:
            self._first = (keyframe.time, msgspec.structs.replace(keyframe.totals))
        elif self._in_gap:
            self._unseen += max(0.0, keyframe.time - self._time)
        else:
            return
        self._in_gap = False
        self._time, self._end = keyframe.time, max(self._end, keyframe.time)
        self._set_levels(state, step=False)

    def _step(self, step: Step, state: PoolState) -> None:
        ran = step.tokens.total > 0
        elapsed = max(0.0, step.time - self._time)
        for level in self._levels.values():
            level.last(elapsed)
        spent = step.durations
        whole = spent.schedule + spent.model + spent.sample
        self._time, self._end = step.time, max(self._end, step.time + whole)
        self._events += len(step.events)
        self._set_levels(state, step=ran)
        if ran:
            self._steps += 1
            for name, seconds in (
                ("step_seconds", whole),
                ("schedule_seconds", spent.schedule),
                ("model_seconds", spent.model),
                ("sample_seconds", spent.sample),
            ):
                self._times[name].add(seconds)
        for seconds, times in state.tally.waits:
            self._times["inter_token_seconds"].add(seconds, times)
        for event in step.events:
            if isinstance(event, RequestFinished):
                self._request(event)

    def _set_levels(self, state: PoolState, step: bool) -> None:
        active, levels = state.active_blocks, self._levels
        levels["utilisation"].set(active / state.num_blocks, step)
        levels["fill"].set(state.slots_filled / state.slots_allocated if active else None, step)
        levels["sharing"].set(state.references / active if active else None, step)

    def _request(self, event: RequestFinished) -> None:
        self._output_tokens += event.output_tokens
        self._times["queue_seconds"].add(event.queue_seconds)
        self._times["first_token_seconds"].add(event.first_token_seconds)
        self._times["request_seconds"].add(event.duration_seconds)
        self._victim(event.request, event.preemptions, event.recomputed_tokens)

    def _victim(self, request: str, preemptions: int, recomputed: int) -> None:
        if preemptions:
            self._preempted += 1
            heapq.heappush(self._victims, (preemptions, recomputed, request))
            if len(self._victims) > MOST_VICTIMS:
                heapq.heappop(self._victims)

    def result(self, state: PoolState, missing: str | None) -> TraceStats:
        """The figures up to `state`, the one after the last record."""
        start, before = self._first or (state.time, state.totals)
        for level in self._levels.values():
            level.last(max(0.0, self._end - self._time))
        for request in state.requests.values():
            self._victim(request.request, request.preemptions, request.recomputed_tokens)
        totals = state.totals
        computed = totals.prefill_tokens + totals.decode_tokens + totals.recompute_tokens
        queried = totals.prefix_queried_tokens
        unknown = self._unknown()
        figures = {
            **{name: level.summary() for name, level in self._levels.items()},
            **{name: values.summary() for name, values in self._times.items()},
            "recompute_tax": totals.recompute_tokens / computed if computed else None,
            "prefix_hit_rate": totals.prefix_hit_tokens / queried if queried else None,
        }
        return TraceStats(
            model=self.header.model,
            engine_id=self.header.engine_id,
            simulated=self.header.simulated,
            num_blocks=self.header.num_blocks,
            block_size=self.header.block_size,
            seconds=self._end - start,
            unseen_seconds=self._unseen,
            steps=self._steps,
            records=self._records,
            events=self._events,
            gaps=self._gaps,
            left_out=self._left_out,
            missing=missing,
            totals=totals,
            before=before,
            unfinished=len(state.requests),
            output_tokens=self._output_tokens,
            preempted_requests=self._preempted,
            victims=[
                Victim(name, n, lost) for n, lost, name in sorted(self._victims, reverse=True)
            ],
            **{name: None if name in unknown else value for name, value in figures.items()},
        )

    def _unknown(self) -> set[str]:
        """Figures that this producer does not tell enough for."""
        needs = {
            "physical_blocks": {"utilisation", "fill", "sharing"},
            "ref_counts": {"sharing"},
            "fills": {"fill"},
            "block_hashes": {"prefix_hit_rate"},
            "recompute": {"recompute_tax"},
            "latencies": {"queue_seconds", "first_token_seconds", "inter_token_seconds",
                          "request_seconds"},
            "durations": {"step_seconds", "schedule_seconds", "model_seconds", "sample_seconds"},
        }  # fmt: skip
        lacking = (figures for known, figures in needs.items() if known not in self.header.knows)
        return set().union(*lacking)


def measure_trace(path: Path | str, progress: Progress = lambda done, total: None) -> TraceStats:
    """Read a whole trace once. Raises TraceError where it is damaged or contradicts itself.

    Memory is bounded by the pool and the unfinished requests.
    """
    with TraceReader(path) as reader:
        size = reader.size
        fold = StatsFold(reader.header)
        state = PoolState(reader.header)
        for number, (record, state) in enumerate(reader.fold()):
            fold.add(record, state)
            if number % RECORDS_PER_TELL == 0:
                progress(reader.position, size)
        progress(size, size)
        return fold.result(state, reader.cut_off)
