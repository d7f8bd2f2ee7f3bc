"""The scheduler: which sequences run in a step, and what becomes of their tokens.

    add -> waiting --schedule--> running --commit--> finished
              ^                     |
              `----- preempt -------'      its blocks are released, its tokens are kept

One step is schedule() -> Plan, then copies, model and sampler run, then commit(plan, tokens). Older
requests come first: a sequence that needs a block takes it from the youngest running one, and a
waiting sequence never displaces a running one. So the oldest always makes progress.
"""

import bisect
from collections.abc import Callable

from engine.core.block_pool import BlockPool
from engine.core.block_table import BlockTables
from engine.core.config import EngineConfig, RequestError
from engine.core.sequence import Request, Sequence
from engine.events.records import (
    AllocationFailed,
    AnyEvent,
    Computed,
    FinishReason,
    Preempt,
    PreemptWhy,
    QueueLengths,
    RejectWhy,
    ReleaseWhy,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    Sampled,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    SequenceStatus,
    TokenCounts,
)


class Row:
    """One sequence's share of a step: tokens[start : start + count] get KV.

    `samples` lists the sequences that each draw a token from the logits of the row's last token:
    the sequence itself, and the children that fork from it once the row is computed.
    """

    def __init__(self, sequence: Sequence, count: int, samples: list[Sequence]) -> None:
        self.sequence = sequence
        self.start = sequence.computed
        self.count = count
        self.samples = samples


class Plan:
    """What one step does. Copies (source, target) run first, and read the state before the step."""

    def __init__(self) -> None:
        self.copies: list[tuple[int, int]] = []
        self.rows: list[Row] = []

    @property
    def num_tokens(self) -> int:
        return sum(row.count for row in self.rows)

    @property
    def samples(self) -> list[Sequence]:
        """Sequences that draw a token, in the order in which commit() expects the tokens."""
        return [sequence for row in self.rows for sequence in row.samples]


class Scheduler:
    """Owns requests, queues, tables and pool. Tells every change in `events`.

    `clock` gives monotonic seconds. `eos_token_ids` end a sequence unless it ignores them.
    `token_text` turns a token id into text for the records; None keeps text out of them.
    """

    def __init__(
        self,
        config: EngineConfig,
        clock: Callable[[], float],
        eos_token_ids: frozenset[int] = frozenset(),
        token_text: Callable[[int], str] | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.eos_token_ids = eos_token_ids
        self.token_text = token_text
        self.events: list[AnyEvent] = []
        self.pool = BlockPool(config.num_blocks)
        self.tables = BlockTables(self.pool, config.block_size, self.events)
        self.requests: dict[str, Request] = {}
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._next_arrival = 0
        self._next_sequence = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def queues(self) -> QueueLengths:
        preempted = sum(s.status is SequenceStatus.PREEMPTED for s in self.waiting)
        return QueueLengths(len(self.waiting) - preempted, len(self.running), preempted)

    # -- requests come and go -----------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError for one that can never run here; nothing changes."""
        if request.request_id in self.requests:
            raise RequestError(
                f"request_id {request.request_id} is in use: wait for it to end or choose another",
                "request_id",
            )
        self._refuse_what_never_fits(request)
        request.arrival = self._next_arrival
        self._next_arrival += 1
        self.requests[request.request_id] = request
        sequence = self._new_sequence(request, list(request.prompt))
        self.waiting.append(sequence)
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
        for sequence in request.sequences:
            if sequence.finish_reason is None:
                self._finish_sequence(sequence, FinishReason.ABORT)
        self._finish_request(request, FinishReason.ABORT)
        return True

    def _new_sequence(self, request: Request, tokens: list[int]) -> Sequence:
        sequence = Sequence(self._next_sequence, request, len(request.sequences), tokens)
        self._next_sequence += 1
        request.sequences.append(sequence)
        return sequence

    def _refuse_what_never_fits(self, request: Request) -> None:
        config, params, prompt = self.config, request.params, len(request.prompt)
        # The last token that is sampled never gets KV.
        blocks = -(-(prompt + params.max_tokens - 1) // config.block_size)
        if prompt == 0:
            raise RequestError("prompt is empty; send at least one token", "prompt")
        if prompt + params.max_tokens > config.max_model_len:
            why = RejectWhy.PROMPT_TOO_LONG
            error = RequestError(
                f"prompt of {prompt} tokens plus max_tokens {params.max_tokens} is more than "
                f"max_model_len {config.max_model_len}: shorten the prompt or lower max_tokens",
                "prompt" if prompt >= config.max_model_len else "max_tokens",
            )
        elif blocks > config.num_blocks:
            why = RejectWhy.NEVER_FITS_POOL
            error = RequestError(
                f"prompt of {prompt} tokens plus max_tokens {params.max_tokens} needs {blocks} blocks "
                f"of {config.block_size}, the whole pool has {config.num_blocks}: shorten the prompt, "
                "lower max_tokens or start the engine with a larger pool",
                "prompt",
            )
        elif params.n > config.max_num_seqs:
            why = RejectWhy.TOO_MANY_SEQUENCES
            error = RequestError(
                f"n is {params.n}, more than max_num_seqs {config.max_num_seqs}: ask for fewer", "n"
            )
        else:
            return
        self.events.append(RequestRejected(request.request_id, why, prompt))
        raise error

    # -- a step: schedule ---------------------------------------------------------------------

    def schedule(self) -> Plan:
        """Choose what runs, oldest first, and make room for it, preempting the youngest if need be."""
        plan = Plan()
        budget = self.config.max_num_batched_tokens
        preempted_any = False
        position = 0
        while position < len(self.running):
            sequence = self.running[position]
            count = len(sequence.tokens) - sequence.computed
            while not self._has_room(sequence, count):
                victim = self.running.pop()
                self._preempt(victim, needed_by=sequence)
                preempted_any = True
                if victim is sequence:
                    break
            else:
                self._schedule_row(plan, sequence, count)
                budget -= count
                position += 1
        if not preempted_any:
            self._admit(plan, budget)
        return plan

    def _admit(self, plan: Plan, budget: int) -> None:
        """Start or resume waiting sequences, in order, while they fit."""
        slots = self.config.max_num_seqs - sum(s.width for s in self.running)
        while self.waiting:
            sequence = self.waiting[0]
            count = len(sequence.tokens) - sequence.computed
            width = sequence.width
            if width > slots or count > budget or not self._has_room(sequence, count):
                return
            del self.waiting[0]
            self.running.append(sequence)
            self._start(sequence)
            self._schedule_row(plan, sequence, count)
            slots -= width
            budget -= count

    def _has_room(self, sequence: Sequence, count: int) -> bool:
        needed = self.tables.blocks_needed(sequence, count)
        available = self.pool.num_available
        if needed <= available:
            return True
        self.events.append(AllocationFailed(sequence.sequence, needed, available))
        return False

    def _start(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.RUNNING
        request = sequence.request
        if request.first_scheduled is None:
            request.first_scheduled = self.clock()
        kind = ScheduledKind.RESUMED if sequence.started else ScheduledKind.FIRST
        sequence.started = True
        self.events.append(SequenceScheduled(sequence.sequence, kind))

    def _schedule_row(self, plan: Plan, sequence: Sequence, count: int) -> None:
        samples = [sequence]
        for _ in range(sequence.width - 1):
            child = self._new_sequence(sequence.request, list(sequence.tokens))
            child.parent = sequence.sequence
            samples.append(child)
        copy = self.tables.append(sequence, count)
        if copy is not None:
            plan.copies.append(copy)
        plan.rows.append(Row(sequence, count, samples))

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
        victim.computed = 0
        victim.status = SequenceStatus.PREEMPTED
        victim.preemptions += 1
        victim.request.preemptions += 1
        bisect.insort(self.waiting, victim, key=lambda s: s.order)

    # -- a step: commit -----------------------------------------------------------------------

    def commit(self, plan: Plan, tokens: list[int]) -> TokenCounts:
        """Take note that the plan ran. `tokens` has one token for each of `plan.samples`, in order."""
        self.pool.copies_done()
        now = self.clock()
        drawn = iter(tokens)
        prefill = decode = recompute = 0
        for row in plan.rows:
            again, prompt = self._computed(row)
            recompute += again
            prefill += prompt
            decode += row.count - again - prompt
            parent, *children = row.samples
            for child in children:
                self._fork(parent, child)
            for sequence in row.samples:
                self._append_token(sequence, next(drawn), now)
        return TokenCounts(prefill, decode, recompute)

    def _computed(self, row: Row) -> tuple[int, int]:
        """Move the sequence past the row; returns its recomputed and its new prompt tokens."""
        sequence = row.sequence
        end = row.start + row.count
        again = max(0, min(sequence.high_water, end) - row.start)
        prompt = max(0, min(len(sequence.request.prompt), end) - row.start - again)
        sequence.computed = end
        sequence.high_water = max(sequence.high_water, end)
        sequence.request.recomputed_tokens += again
        self.events.append(Computed(sequence.sequence, row.count, again))
        return again, prompt

    def _fork(self, parent: Sequence, child: Sequence) -> None:
        child.status = parent.status
        child.computed = parent.computed
        child.high_water = parent.high_water
        child.started = True
        self.tables.fork(parent, child)
        bisect.insort(self.running, child, key=lambda s: s.order)

    def _append_token(self, sequence: Sequence, token: int, now: float) -> None:
        request, params = sequence.request, sequence.request.params
        sequence.tokens.append(token)
        if request.first_token is None:
            request.first_token = now
        if self.token_text is not None:
            self.events.append(Sampled(sequence.sequence, self.token_text(token)))
        if token in params.stop_token_ids or (
            token in self.eos_token_ids and not params.ignore_eos
        ):
            reason = FinishReason.STOP
        elif sequence.num_output >= params.max_tokens:
            reason = FinishReason.LENGTH
        else:
            return
        self._finish_sequence(sequence, reason)
        if request.finished:
            self._finish_request(request, reason)

    def _finish_sequence(self, sequence: Sequence, reason: FinishReason) -> None:
        queue = self.running if sequence.status is SequenceStatus.RUNNING else self.waiting
        queue.remove(sequence)
        aborted = reason is FinishReason.ABORT
        self.tables.release(sequence, ReleaseWhy.ABORTED if aborted else ReleaseWhy.FINISHED)
        sequence.finish_reason = reason
        self.events.append(SequenceFinished(sequence.sequence, reason, sequence.num_output))

    def _finish_request(self, request: Request, reason: FinishReason) -> None:
        def since_arrival(moment: float | None) -> float | None:
            return None if moment is None else moment - request.arrived

        del self.requests[request.request_id]
        self.events.append(
            RequestFinished(
                request.request_id,
                reason,
                sum(s.num_output for s in request.sequences),
                request.preemptions,
                request.recomputed_tokens,
                since_arrival(request.first_scheduled),
                since_arrival(request.first_token),
                self.clock() - request.arrived,
            )
        )
        if request.on_finish is not None:
            request.on_finish(request)
