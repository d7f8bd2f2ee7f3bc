"""The scheduler: which sequences run in a step.

    add -> waiting --schedule--> running --commit--> finished
              ^                     |
              `----- preempt -------'      its blocks are released, its tokens are kept

One step is schedule() -> Plan, then copies, model and sampler run, then commit(plan, output), which
outcome.py holds. Those who come first (older, or of lower priority number) are served first: a
sequence that needs a block takes it from the last running one, and a waiting sequence never displaces
a running one. So the first always makes progress.

Decodes (one token left) have their token reserved; prefills share what is left of the budget. The
beams of one request are a unit: they are admitted, preempted and moved on together.
"""

import bisect
from collections.abc import Callable

from engine.core.admission import refusal
from engine.core.block_pool import BlockPool
from engine.core.block_table import BlockTables
from engine.core.config import EngineConfig, RequestError
from engine.core.detokenizer import Detokenizer
from engine.core.drawn import StepOutput
from engine.core.outcome import Outcome
from engine.core.plan import Plan, Row
from engine.core.prefix_index import PrefixIndex
from engine.core.sequence import Request, Sequence
from engine.events.records import (
    AllocationFailed,
    AnyEvent,
    Preempt,
    PreemptWhy,
    QueueLengths,
    ReleaseWhy,
    RequestAdded,
    RequestRejected,
    ScheduledKind,
    SequenceScheduled,
    SequenceStatus,
    TokenCounts,
)


class Scheduler:
    """Owns requests, queues, tables and pool. Tells every change in `events`.

    `clock` gives monotonic seconds. `eos_token_ids` end a sequence unless it ignores them.
    `token_text` turns a token id into text for the records; None keeps text out of them.
    `new_detokenizer` makes what turns one sequence's output into text; None: no text, no stop strings.
    `hash_salt`: see PrefixIndex.
    """

    def __init__(
        self,
        config: EngineConfig,
        clock: Callable[[], float],
        eos_token_ids: frozenset[int] = frozenset(),
        token_text: Callable[[int], str] | None = None,
        new_detokenizer: Callable[[Request], Detokenizer] | None = None,
        hash_salt: bytes | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.eos_token_ids = eos_token_ids
        self.token_text = token_text
        self.new_detokenizer = new_detokenizer
        self.events: list[AnyEvent] = []
        self.pool = BlockPool(config.num_blocks)
        self.index = PrefixIndex(
            config.block_size, config.prefix_hash_bits, config.enable_prefix_caching, hash_salt
        )
        self.tables = BlockTables(self.pool, self.index, config.block_size, self.events)
        self.requests: dict[str, Request] = {}
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        # Counted as they come and go: a long queue must not make each step longer.
        self.num_preempted = 0
        self._outcome = Outcome(self)
        self._next_arrival = 0
        self._next_sequence = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def queues(self) -> QueueLengths:
        preempted = self.num_preempted
        return QueueLengths(len(self.waiting) - preempted, len(self.running), preempted)

    # -- requests come and go -----------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError for one that can never run here; nothing changes."""
        if request.request_id in self.requests:
            raise RequestError(
                f"request_id {request.request_id} is in use: wait for it to end or choose another",
                "request_id",
            )
        refused = refusal(self.config, request, len(self.waiting) - self.num_preempted)
        if refused is not None:
            why, error = refused
            if why is not None:
                prompt_tokens = len(request.prompt)
                self.events.append(RequestRejected(request.request_id, why, prompt_tokens))
            raise error
        request.end_tokens = frozenset(request.params.stop_token_ids)
        if not request.params.ignore_eos:
            request.end_tokens |= self.eos_token_ids
        request.arrival = self._next_arrival
        self._next_arrival += 1
        self.requests[request.request_id] = request
        sequence = self.new_sequence(request, list(request.prompt))
        bisect.insort(self.waiting, sequence, key=lambda s: s.order)
        text = self.token_text
        self.events.append(
            RequestAdded(
                request.request_id,
                sequence.sequence,
                len(request.prompt),
                request.params.n,
                request.params.max_tokens,
                request.arrived,
                None if text is None else [text(token) for token in request.prompt],
            )
        )

    def abort(self, request_id: str) -> bool:
        """End a request in whatever state it is; its blocks are free at once.

        False where no such request is unfinished, so that a second abort does no harm.
        """
        request = self.requests.get(request_id)
        if request is None:
            return False
        self._outcome.abort(request)
        return True

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; False, and nothing changes, while a block is active."""
        if any(sequence.table for sequence in self.running):
            return False
        self.tables.reset()
        return True

    def new_sequence(self, request: Request, tokens: list[int]) -> Sequence:
        """The next sequence of a request, not in any queue yet."""
        sequence = Sequence(self._next_sequence, request, len(request.sequences), tokens)
        if self.new_detokenizer is not None and request.beams is None:
            sequence.detokenizer = self.new_detokenizer(request)
        sequence.is_listened_to = (
            self.token_text is not None
            or request.on_token is not None
            or request.params.logprobs is not None
            or sequence.detokenizer is not None
        )
        self._next_sequence += 1
        request.sequences.append(sequence)
        return sequence

    # -- a step -------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        """Choose what runs, the first first, and make room for it, preempting the last if need be."""
        plan = Plan()
        preempted_any = False
        # A decode's token is its own; what prefills may use is what the decodes leave.
        decodes = sum([s.decoding or s.remaining == 1 for s in self.running])
        budget = self.config.max_num_batched_tokens - decodes
        running, rows_of_plan = self.running, plan.rows
        position = 0
        while position < len(running):
            sequence = running[position]
            start = sequence.computed
            if sequence.decoding and (start < sequence.own_slots or self._took_block(sequence)):
                # Most rows of most steps: nothing to copy, nobody to preempt.
                rows_of_plan.append(Row(sequence, start, 1, [sequence]))
                position += 1
                continue
            unit = self._unit(running, position)
            rows = self._rows(unit, budget, decodes_reserved=True)
            while rows and not self._has_room(rows):
                preempted_any = True
                if unit[0] in self._preempt_last(needed_by=rows[0][0]):
                    break
            else:
                for sequence, count in rows:
                    budget -= count if sequence.remaining > 1 else 0
                    self._schedule_row(plan, sequence, count)
                position += len(unit)
        has_slot = len(running) < self.config.max_num_seqs
        if self.waiting and has_slot and not preempted_any:
            self._admit(plan, budget)
        return plan

    def commit(self, plan: Plan, output: StepOutput) -> TokenCounts:
        """Take note that the plan ran, and of the tokens that were drawn."""
        return self._outcome.commit(plan, output)

    def _took_block(self, sequence: Sequence) -> bool:
        """Take the next block for a sequence that decodes; False where that is not all it needs."""
        full = sequence.computed == len(sequence.table) * self.config.block_size
        if not full or not self.pool.num_available:
            return False
        self.tables.append(sequence, 1)
        return True

    def _unit(self, queue: list[Sequence], position: int) -> list[Sequence]:
        """The sequences that move together from this place on: one, or all beams of a request."""
        first = queue[position]
        if first.request.beams is None:
            return [first]
        end = position + 1
        while end < len(queue) and queue[end].request is first.request:
            end += 1
        return queue[position:end]

    def _rows(
        self, unit: list[Sequence], budget: int, decodes_reserved: bool
    ) -> list[tuple[Sequence, int]]:
        """How many tokens of each sequence run now; those with none are left out.

        Beams draw their next token together: a beam's last token waits until that of each can run.
        """
        threshold = self.config.long_prefill_token_threshold
        rows = []
        for sequence in unit:
            count = sequence.remaining
            if count > 1 or not decodes_reserved:
                count = min(count, threshold or count, budget)
                budget -= count
            rows.append((sequence, count))
        if any(count < sequence.remaining for sequence, count in rows) and len(unit) > 1:
            rows = [(s, min(count, s.remaining - 1)) for s, count in rows]
        return [(sequence, count) for sequence, count in rows if count]

    def _has_room(self, rows: list[tuple[Sequence, int]]) -> bool:
        return self._can_take(rows[0][0], self.tables.blocks_needed(rows))

    def _can_take(self, sequence: Sequence, needed: int) -> bool:
        available = self.pool.num_available
        if needed <= available:
            return True
        self.events.append(AllocationFailed(sequence.sequence, needed, available))
        return False

    def _schedule_row(self, plan: Plan, sequence: Sequence, count: int) -> None:
        samples = []
        if count == sequence.remaining:
            samples.append(sequence)
            for _ in range(sequence.width - 1):
                child = self.new_sequence(sequence.request, list(sequence.tokens))
                child.parent = sequence.sequence
                samples.append(child)
        copy = self.tables.append(sequence, count)
        if copy is not None:
            plan.copies.append(copy)
        plan.rows.append(Row(sequence, sequence.computed, count, samples))

    # -- waiting to running, and back ---------------------------------------------------------

    def _admit(self, plan: Plan, budget: int) -> None:
        """Start or resume waiting sequences, in order, while they fit.

        One starts only when all its tokens have room now, not just its first chunk: what would be
        preempted soon after is not begun.
        """
        slots = self.config.max_num_seqs - self._slots_used()
        while self.waiting and budget > 0:
            unit = self._unit(self.waiting, 0)
            width = unit[0].width if unit[0].request.beams is None else unit[0].request.params.n
            if width > slots:
                return
            hits = [self.index.lookup(sequence) for sequence in unit]
            # Beside running sequences some of the pool is left, so that these may grow.
            spare = int(self.config.watermark * self.config.num_blocks) if self.running else 0
            starts = [(s, hit, len(s.tokens)) for s, hit in zip(unit, hits, strict=True)]
            needed = self.tables.blocks_needed_to_start(starts)
            if not self._can_take(unit[0], needed + spare):
                return
            sizes = [len(s.tokens) - len(h.blocks) * self.config.block_size for s, h, _ in starts]
            if not self.config.enable_chunked_prefill and sum(sizes) > budget:
                return
            del self.waiting[: len(unit)]
            for sequence, hit in zip(unit, hits, strict=True):
                self._start(sequence)
                self.tables.start(sequence, hit)
                sequence.started = True
                bisect.insort(self.running, sequence, key=lambda s: s.order)
            for sequence, count in self._rows(unit, budget, decodes_reserved=False):
                self._schedule_row(plan, sequence, count)
                budget -= count
            slots -= width

    def _slots_used(self) -> int:
        """Running sequences, with those that a prompt or a beam search may still fork into."""
        used = 0
        searches = set()
        for sequence in self.running:
            request = sequence.request
            if request.beams is None:
                used += sequence.width
            elif request.request_id not in searches:
                searches.add(request.request_id)
                used += request.params.n
        return used

    def _start(self, sequence: Sequence) -> None:
        self.num_preempted -= sequence.status is SequenceStatus.PREEMPTED
        sequence.status = SequenceStatus.RUNNING
        request = sequence.request
        if request.first_scheduled is None:
            request.first_scheduled = self.clock()
        kind = ScheduledKind.RESUMED if sequence.started else ScheduledKind.FIRST
        self.events.append(SequenceScheduled(sequence.sequence, kind))

    def _preempt_last(self, needed_by: Sequence) -> list[Sequence]:
        """Preempt the last running sequence, or all beams of its request; returns the victims."""
        last = self.running[-1]
        victims = [last]
        if last.request.beams is not None:
            victims = [s for s in self.running if s.request is last.request]
        for victim in reversed(victims):
            self.running.remove(victim)
            self._preempt(victim, needed_by)
        return victims

    def _preempt(self, victim: Sequence, needed_by: Sequence) -> None:
        """Send a running sequence back to the queue: tokens and seed kept, KV dropped."""
        self.events.append(
            Preempt(
                victim.sequence,
                PreemptWhy.NO_FREE_BLOCK,
                needed_by.sequence,
                len(victim.table),
                victim.computed,
            )
        )
        self.tables.release(victim, ReleaseWhy.PREEMPTED)
        victim.high_water = max(victim.high_water, victim.computed)
        victim.computed = 0
        victim.decoding = False
        victim.status = SequenceStatus.PREEMPTED
        self.num_preempted += 1
        victim.preemptions += 1
        victim.request.preemptions += 1
        bisect.insort(self.waiting, victim, key=lambda s: s.order)
