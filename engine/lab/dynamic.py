"""The dynamic form: requests come and go over a bounded memory; what waits, for how long, and why.

A step is one turn of an engine: each running sequence stores one more token. In the order of a step:
sequences that are complete leave, those that reached the end of their room grow, requests arrive, and
the queue is served, first come, first served: its head waits until it can be placed, the others
behind it. Where a sequence can't grow, the last one in order is preempted, as in the engine: it loses its
memory, goes back to the head of the queue, and stores all its tokens again when it resumes.

Between these events nothing changes but that each running sequence gains a token a step, so the
simulation goes from event to event.
"""

import heapq
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from engine.core.config import ConfigError
from engine.lab.allocators import Allocator, Kind, LabSettings, make_allocator
from engine.lab.moment import Account, Holding, Moment, joined_holes
from engine.workloads.lengths import Lengths

MOMENTS = 60
MOST_STEPS = 1_000_000
"""Between two arrivals, on average."""
MOST_MEMORY = 2**24
"""Slots: every one of them can be a block, which is an object."""


@dataclass(frozen=True)
class LabRequest:
    """Arrives at step `arrival` with `prompt` tokens and leaves with `final`, one a step."""

    arrival: int
    prompt: int
    final: int


@dataclass(frozen=True)
class DynamicRun:
    """What became of the requests with one allocator.

    Means (`mean`, mean_running, mean_waiting) are over the steps from the first arrival to the last;
    `moments` are spread evenly over them. steps: until the last request had left. waited: requests
    that did not start at the step they arrived at. mean_wait: steps, over all that started.
    recomputed: tokens that preempted sequences stored once more.

    refused: requests that could not be placed at some step: when it was their turn to start or to grow,
    or, the never_fit among them, as the empty memory has no room for them. Each counts once. Of them,
    refused_with_free: although the slots that no sequence had were as many as the allocator would have
    taken for it; refused_with_empty: although the slots without a token, also those that others had,
    were enough for all the tokens it was still to store.
    """

    kind: Kind
    memory: int
    requests: int
    mean: Account
    mean_running: float
    mean_waiting: float
    peak_running: int
    steps: int
    waited: int
    mean_wait: float
    refused: int
    refused_with_free: int
    refused_with_empty: int
    never_fit: int
    preemptions: int
    recomputed: int
    moments: tuple[Moment, ...]


def lab_requests(lengths: Iterable[Lengths], every: float, seed: int) -> list[LabRequest]:
    """Requests of these lengths that arrive one in `every` steps on average, independent of each other.

    The same for a seed.
    """
    if not 0 < every <= MOST_STEPS:
        raise ConfigError(
            f"a request every {every:g} steps can't be: give a number above 0, at most {MOST_STEPS:,}"
        )
    draw = Random(f"{seed} lab arrivals")
    requests, clock = [], 0.0
    for prompt, output in lengths:
        clock += draw.expovariate(1 / every)
        requests.append(LabRequest(int(clock), prompt, prompt + output))
    return requests


def run_all(
    requests: Sequence[LabRequest],
    memory: int,
    settings: LabSettings,
    kinds: Iterable[Kind] = tuple(Kind),
    moments: int = MOMENTS,
    progress: Callable[[Kind], None] = lambda kind: None,
) -> list[DynamicRun]:
    """The same requests with each allocator over `memory` slots; one run a kind, in their order."""
    if not 1 <= memory <= MOST_MEMORY:
        raise ConfigError(
            f"memory is {memory} slots; it must be at least 1, at most {MOST_MEMORY:,}"
        )
    runs = []
    for kind in kinds:
        progress(kind)
        runs.append(run_allocator(kind, requests, memory, settings, moments))
    return runs


def run_allocator(
    kind: Kind,
    requests: Sequence[LabRequest],
    memory: int,
    settings: LabSettings,
    moments: int = MOMENTS,
) -> DynamicRun:
    """Requests (in the order of their arrival) with one allocator, until all have left."""
    simulation = _Simulation(make_allocator(kind, memory, settings), requests, moments)
    simulation.run()
    return simulation.result(kind)


_LEAVE, _GROW, _TURN_AWAY, _ARRIVE = range(4)


@dataclass
class _Running:
    """Stores `tokens` at step `since`, and one more each step; `turn` tells stale events.

    `kept`: slots that it has and will have written in the end.
    """

    since: int
    tokens: int
    turn: int
    kept: int = 0

    def stored(self, step: int) -> int:
        return self.tokens + step - self.since


class _Simulation:
    def __init__(self, allocator: Allocator, requests: Sequence[LabRequest], moments: int) -> None:
        self.allocator = allocator
        self.requests = requests
        self.placeable = [
            number for number, r in enumerate(requests) if allocator.fits_ever(r.final)
        ]
        self.running: dict[int, _Running] = {}
        # Sums over `running`: of tokens - since, from which the stored ones follow, and of kept.
        self.tokens_at_zero = self.kept = 0
        # Tokens that a sequence, since it was last preempted, stores at once when it resumes.
        self.resumes_with: dict[int, int] = {}
        self.queue: list[int] = []
        self.turn = 0
        self.now = self.start = requests[0].arrival if requests else 0
        self.end = requests[-1].arrival + 1 if requests else 0
        fitting = set(self.placeable)
        self.events = [
            (request.arrival, _ARRIVE if number in fitting else _TURN_AWAY, number, 0)
            for number, request in enumerate(requests)
        ]
        heapq.heapify(self.events)
        self.arrived = 0
        steps = self.end - self.start
        self.to_show = sorted(
            {self.start + steps * (i + 1) // moments - 1 for i in range(moments)}
            - {self.start - 1},
            reverse=True,
        )
        self.moments: list[Moment] = []
        self.sums = dict.fromkeys(("stored", "reserved", "internal", "external", "usable"), 0)
        self.running_steps = self.waiting_steps = 0
        self.peak_running = 0
        self.started_at: dict[int, int] = {}
        self.refused: set[int] = set()
        self.refused_with_free: set[int] = set()
        self.refused_with_empty: set[int] = set()
        self.preemptions = self.recomputed = 0

    def run(self) -> None:
        while self.events:
            step = self.events[0][0]
            self._pass_until(step)
            while self.events and self.events[0][0] == step:
                _, kind, number, turn = heapq.heappop(self.events)
                if kind == _ARRIVE:
                    heapq.heappush(self.queue, number)
                    self.arrived += 1
                elif kind == _TURN_AWAY:
                    final = self.requests[number].final
                    self._refuse(number, self.allocator.demand(final, final), final)
                elif number in self.running and self.running[number].turn == turn:
                    if kind == _LEAVE:
                        self._stop(number)
                    else:
                        self._grow(number)
            self._serve_queue()
            self.peak_running = max(self.peak_running, len(self.running))
        self._pass_until(max(self.now, self.end))

    def result(self, kind: Kind) -> DynamicRun:
        steps = max(1, self.end - self.start)
        waits = [at - self.requests[number].arrival for number, at in self.started_at.items()]
        return DynamicRun(
            kind=kind,
            memory=self.allocator.memory,
            requests=len(self.requests),
            mean=Account(**{name: total / steps for name, total in self.sums.items()}),
            mean_running=self.running_steps / steps,
            mean_waiting=self.waiting_steps / steps,
            peak_running=self.peak_running,
            steps=self.now - self.start,
            waited=sum(wait > 0 for wait in waits),
            mean_wait=sum(waits) / len(waits) if waits else 0.0,
            refused=len(self.refused),
            refused_with_free=len(self.refused_with_free),
            refused_with_empty=len(self.refused_with_empty),
            never_fit=len(self.requests) - len(self.placeable),
            preemptions=self.preemptions,
            recomputed=self.recomputed,
            moments=tuple(self.moments),
        )

    # -- one step ------------------------------------------------------------------------------

    def _grow(self, number: int) -> None:
        """Room for this step's token of the sequence, taken from the last in order where none is left."""
        wanted, final = self.running[number].stored(self.now), self.requests[number].final
        while not self.allocator.grow(number, wanted):
            lacking = self.allocator.demand(wanted, final) - self.allocator.room(number)
            self._refuse(number, lacking, final - wanted)
            victim = max(self.running)
            tokens = self.running[victim].stored(self.now)
            self._stop(victim)
            self.resumes_with[victim] = tokens
            heapq.heappush(self.queue, victim)
            self.preemptions += 1
            # This step's token was not stored yet.
            self.recomputed += tokens - 1
            if victim == number:
                return
        self._plan(number)

    def _serve_queue(self) -> None:
        while self.queue:
            number = self.queue[0]
            tokens, final = self._wants(number)
            if not self.allocator.admit(number, tokens, final):
                self._refuse(number, self.allocator.demand(tokens, final), final)
                return
            heapq.heappop(self.queue)
            self.turn += 1
            self.running[number] = _Running(self.now, tokens, self.turn)
            self.tokens_at_zero += tokens - self.now
            self.started_at.setdefault(number, self.now)
            self._plan(number)

    def _refuse(self, number: int, demand: int, to_come: int) -> None:
        """Count a request that got no `demand` slots, and has `to_come` tokens to store from now on."""
        self.refused.add(number)
        if self.allocator.free >= demand:
            self.refused_with_free.add(number)
        if self.allocator.memory - self._stored() >= to_come:
            self.refused_with_empty.add(number)

    def _wants(self, number: int) -> tuple[int, int]:
        request = self.requests[number]
        return self.resumes_with.get(number, request.prompt), request.final

    def _plan(self, number: int) -> None:
        """The sequence's next event: the step after its room, or its tokens, are used up."""
        sequence, final = self.running[number], self.requests[number].final
        room = self.allocator.room(number)
        kept = min(room, final)
        self.kept += kept - sequence.kept
        sequence.kept = kept
        step = sequence.since + kept - sequence.tokens + 1
        kind = _GROW if room < final else _LEAVE
        heapq.heappush(self.events, (step, kind, number, sequence.turn))

    def _stop(self, number: int) -> None:
        sequence = self.running.pop(number)
        self.tokens_at_zero -= sequence.tokens - sequence.since
        self.kept -= sequence.kept
        self.allocator.release(number)

    # -- between events ------------------------------------------------------------------------

    def _stored(self) -> int:
        return self.tokens_at_zero + len(self.running) * self.now

    def _next_demand(self) -> int | None:
        """Slots that the next request takes: the head of the queue, or the next to arrive."""
        if self.queue:
            number = self.queue[0]
        elif self.arrived < len(self.placeable):
            number = self.placeable[self.arrived]
        else:
            return None
        return self.allocator.demand(*self._wants(number))

    def _account(self, demand: int | None) -> Account:
        allocator = self.allocator
        stored = self._stored()
        external = allocator.external(demand or 0)
        free = allocator.free
        return Account(
            stored=stored,
            reserved=self.kept - stored,
            internal=allocator.memory - free - self.kept,
            external=external,
            usable=free - external,
        )

    def _pass_until(self, step: int) -> None:
        """Nothing but growth happens from `now` up to `step`: count these steps, keep the moments."""
        demand = self._next_demand()
        passed = min(step, self.end) - self.now
        if passed > 0:
            account = self._account(demand)
            for name in self.sums:
                self.sums[name] += getattr(account, name) * passed
            # Each running sequence turns a reserved slot into a stored one, step by step.
            grown = len(self.running) * passed * (passed - 1) // 2
            self.sums["stored"] += grown
            self.sums["reserved"] -= grown
            self.running_steps += len(self.running) * passed
            self.waiting_steps += len(self.queue) * passed
        while self.to_show and self.to_show[-1] < step:
            self.now = self.to_show.pop()
            self.moments.append(self._moment(demand))
        self.now = step

    def _moment(self, demand: int | None) -> Moment:
        allocator = self.allocator
        return Moment(
            step=self.now,
            account=self._account(demand),
            demand=demand,
            waiting=len(self.queue),
            holdings=tuple(map(self._holding, self.running)),
            holes=joined_holes(
                (hole, allocator.usable(hole, demand or 0)) for hole in allocator.holes()
            ),
        )

    def _holding(self, number: int) -> Holding:
        extents = self.allocator.extents(number)
        return Holding(
            sequence=number,
            tokens=self.running[number].stored(self.now),
            final=self.requests[number].final,
            starts=array("q", (extent.start for extent in extents)),
            slots=extents[0].slots,
        )
