"""Requests and sequences: what the scheduler moves between waiting, running and preempted."""

import random
from collections.abc import Callable

from engine.core.config import SamplingParams
from engine.core.randomness import mix
from engine.events.records import FinishReason, SequenceStatus


class Request:
    """What a client sent: a prompt and how to continue it, `params.n` times.

    `arrival` orders requests (first come, first served); `arrived` is the monotonic time of the call.
    `on_finish`, where given, is called once in the engine's thread when all sequences have ended.
    """

    def __init__(
        self,
        request_id: str,
        prompt: list[int],
        params: SamplingParams,
        arrived: float,
        on_finish: Callable[["Request"], None] | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.params = params
        self.arrived = arrived
        self.on_finish = on_finish
        self.arrival = -1
        self.seed = params.seed if params.seed is not None else random.getrandbits(63)
        self.sequences: list[Sequence] = []
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.preemptions = 0
        self.recomputed_tokens = 0

    @property
    def finished(self) -> bool:
        return len(self.sequences) == self.params.n and all(
            s.finish_reason is not None for s in self.sequences
        )


class Sequence:
    """One completion of a request.

    `tokens` is prompt and output; the first `computed` of them have KV, in the blocks of `table`.
    `high_water` is the most that ever was computed, so that recomputed tokens can be told apart.
    `index` numbers the completions of one request.
    """

    def __init__(self, sequence: int, request: Request, index: int, tokens: list[int]) -> None:
        self.sequence = sequence
        self.request = request
        self.index = index
        self.tokens = tokens
        self.status = SequenceStatus.WAITING
        self.computed = 0
        self.high_water = 0
        self.table: list[int] = []
        self.preemptions = 0
        self.parent: int | None = None
        self.started = False
        self.finish_reason: FinishReason | None = None
        # Each completion draws from a stream of its own, the same one whatever the batch.
        self.seed = mix(request.seed, index)

    @property
    def order(self) -> tuple[int, int]:
        """Older first: by the request's arrival, then by the completion's number."""
        return (self.request.arrival, self.index)

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.request.prompt) :]

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def width(self) -> int:
        """Running sequences that this one stands for: all n until its prompt is computed."""
        return self.request.params.n if len(self.request.sequences) == 1 else 1
