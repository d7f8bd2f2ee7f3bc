"""What the step loop needs of a model, and the runner that has none."""

from typing import Any, Protocol

from engine.core.randomness import mix
from engine.core.scheduler import Plan


class Runner(Protocol):
    """Computes a plan. Called by the engine's thread only, in this order, once each per step."""

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole blocks (source, target) in every layer, all reads before all writes."""

    def run(self, plan: Plan) -> Any:
        """Give KV to every row's tokens. Returns what `sample` needs: one entry a row."""

    def sample(self, output: Any, plan: Plan) -> list[int]:
        """One token for each of `plan.samples`, in order."""


class ModelFreeRunner:
    """Draws tokens without a model: the core runs without torch, for tests and teaching.

    A token depends on the sequence's seed and its position alone, so that it is the same whatever
    the batch and however often the sequence was preempted.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There is no KV to copy."""

    def run(self, plan: Plan) -> None:
        """There is no KV to compute."""

    def sample(self, output: None, plan: Plan) -> list[int]:
        return [mix(s.seed, len(s.tokens)) % self.vocab_size for s in plan.samples]
