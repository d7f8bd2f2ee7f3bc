"""What the step loop needs of a model, and the runner that has none."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from engine.core.drawn import Drawn, StepOutput, TokenLogprob
from engine.core.plan import Plan
from engine.core.randomness import mix, uniform
from engine.core.sequence import Sequence


class Runner(Protocol):
    """Computes a plan. Called by the engine's thread only, in this order, once each per step."""

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole blocks (source, target) in every layer, all reads before all writes."""

    def run(self, plan: Plan) -> Any:
        """Give KV to every row's tokens. Returns what `sample` needs."""

    def sample(self, output: Any, plan: Plan) -> StepOutput:
        """One token for each of `plan.samples`, in order."""


class StepCost(msgspec.Struct, frozen=True):
    """Seconds that a step takes: a fixed part, and parts that grow with what it computes.

    prefill: for each token of a row of several. decode: for each row of one token. key: for each
    token with KV that a row attends to, its own included, once a row. The defaults are of the order
    of a small model on two CPU cores.
    """

    step: float = 0.02
    prefill: float = 0.0005
    decode: float = 0.0005
    key: float = 0.00001

    def seconds(self, plan: Plan) -> float:
        prefill = decode = keys = 0
        for row in plan.rows:
            count = row.count
            if count == 1:
                decode += 1
            else:
                prefill += count
            keys += row.start + count
        return self.step + self.prefill * prefill + self.decode * decode + self.key * keys


class ModelFreeRunner:
    """Draws tokens without a model: the core runs without torch, for tests and teaching.

    A token depends on the sequence's seed and its position alone, so that it is the same whatever
    the batch and however often the sequence was preempted; a beam's candidates depend on its tokens.
    No token ends a sequence before its max_tokens but those that `eos_token_ids` of the engine name.
    With a `cost`, a step takes that long by `sleep`.
    """

    def __init__(
        self,
        vocab_size: int,
        cost: StepCost | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.vocab_size = vocab_size
        self.cost = cost
        self.sleep = sleep

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There is no KV to copy."""

    def run(self, plan: Plan) -> None:
        if self.cost is not None:
            self.sleep(self.cost.seconds(plan))

    def sample(self, output: None, plan: Plan) -> StepOutput:
        return StepOutput([self._draw(sequence) for sequence in plan.samples])

    def _draw(self, sequence: Sequence) -> Drawn:
        if sequence.request.beams is None:
            return Drawn(mix(sequence.seed, len(sequence.tokens)) % self.vocab_size)
        top = self._candidates(sequence)
        return Drawn(top[0].token, top[0], top)

    def _candidates(self, sequence: Sequence) -> tuple[TokenLogprob, ...]:
        """2 n made-up continuations of a beam, best first."""
        seed = sequence.request.seed
        for token in sequence.tokens:
            seed = mix(seed, token)
        count = min(2 * sequence.request.params.n, self.vocab_size)
        logprobs = sorted((-3.0 * uniform(seed, i) for i in range(count)), reverse=True)
        first = mix(seed, count) % self.vocab_size
        return tuple(
            TokenLogprob((first + i) % self.vocab_size, logprob, i + 1)
            for i, logprob in enumerate(logprobs)
        )
