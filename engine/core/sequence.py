"""Requests and sequences: what the scheduler moves between waiting, running and preempted."""

import random
from collections.abc import Callable

from engine.core.beam import BeamSearch
from engine.core.config import SamplingParams
from engine.core.detokenizer import Detokenizer
from engine.core.drawn import Drawn, PromptToken
from engine.core.randomness import mix
from engine.events.records import Computed, FinishReason, SequenceStatus


class Request:
    """What a client sent: a prompt and how to continue it, `params.n` times.

    `arrival` orders requests (first come, first served), and before it `priority` where the policy
    says so (lower first); `arrived` is the monotonic time of the call. Requests share cached blocks
    with those of the same `cache_salt` only. In the engine's thread, and only where given, `on_token`
    is called with a sequence for each token that it has drawn (not for beams, which may yet be
    dropped) and `on_finish` once, when all sequences have ended.
    """

    def __init__(
        self,
        request_id: str,
        prompt: list[int],
        params: SamplingParams,
        arrived: float,
        on_finish: Callable[["Request"], None] | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        on_token: Callable[["Sequence"], None] | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.params = params
        self.arrived = arrived
        self.on_finish = on_finish
        self.on_token = on_token
        self.priority = priority
        self.cache_salt = cache_salt
        self.arrival = -1
        self.end_tokens: frozenset[int] = frozenset()
        self.seed = params.seed if params.seed is not None else random.getrandbits(63)
        self.sequences: list[Sequence] = []
        self.beams = BeamSearch(params) if params.use_beam_search else None
        self.forked = params.n == 1
        self.prompt_tokens: list[PromptToken] = []
        self.finish_reason: FinishReason | None = None
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.preemptions = 0
        self.recomputed_tokens = 0

    @property
    def prompt_logprobs_told(self) -> int:
        """The last prompt position whose likelihood is known; the first token has none."""
        return self.prompt_tokens[-1].position if self.prompt_tokens else 0

    @property
    def sequences_ended(self) -> bool:
        return len(self.sequences) >= self.params.n and all(
            s.finish_reason is not None for s in self.sequences
        )

    @property
    def num_output(self) -> int:
        """Output tokens of all completions."""
        if self.beams is not None:
            return sum(len(beam.output) for beam in self.beams.best)
        return sum(s.num_output for s in self.sequences)


class Sequence:
    """One completion of a request.

    `tokens` is prompt and output; the first `computed` of them have KV, in the blocks of `table`.
    `high_water` is the most that was computed when it was preempted, so that recomputed tokens can be
    told apart. `decoding`: it runs, is no beam and has drawn its newest token itself, so that one is all
    it computes next. `own_slots` belongs to the block tables: while `computed` is below it, the next slot
    lies in a block that no other table has; 0 where that is not known. `is_listened_to`: each of its
    tokens is more than appended. It ends with `most_tokens` at the latest, prompt and output.
    `index` numbers the sequences of one request. `digests` belong to the prefix index: one for each
    full block that it was asked about. `drawn` and `detokenizer` are kept where the request asks
    for logprobs, and where the engine knows text.
    """

    def __init__(self, sequence: int, request: Request, index: int, tokens: list[int]) -> None:
        self.sequence = sequence
        self.request = request
        self.index = index
        self.tokens = tokens
        self.status = SequenceStatus.WAITING
        self.computed = 0
        self.high_water = 0
        self.decoding = False
        self.table: list[int] = []
        self.own_slots = 0
        self.preemptions = 0
        self.parent: int | None = None
        self.started = False
        self.finish_reason: FinishReason | None = None
        self.digests: list[bytes] = []
        self.drawn: list[Drawn] = []
        self.detokenizer: Detokenizer | None = None
        self.is_listened_to = False
        self.most_tokens = len(request.prompt) + request.params.max_tokens
        # Made once: it is told in each step that decodes.
        self.one_computed = Computed(sequence, 1)
        # Each completion draws from a stream of its own, the same one whatever the batch.
        self.seed = mix(request.seed, index)

    @property
    def order(self) -> tuple[int, int, int]:
        """Who comes first: by priority, then by arrival, then by number within the request."""
        return (self.request.priority, self.request.arrival, self.index)

    @property
    def remaining(self) -> int:
        """Tokens without KV; the last of them gives the next one."""
        return len(self.tokens) - self.computed

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.request.prompt) :]

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def width(self) -> int:
        """Running sequences that this one stands for: all n until its prompt is computed."""
        request = self.request
        return 1 if request.forked or request.beams is not None else request.params.n
