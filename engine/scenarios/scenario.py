"""What a scenario is: an engine's sizes, and who asks what at which step. No clock decides anything."""

from dataclasses import dataclass, field
from typing import Any

from engine.core.config import SamplingParams


@dataclass(frozen=True)
class Ask:
    """One request: `text` is a user's turn, put into the default model's chat form unless `raw`.

    at: the step before which it comes; sooner where the engine would be idle. system: what the model is
    told before it. follows: the position of an earlier ask of the same scenario whose prompt and answer
    come before this turn, token by token; it then also waits for that answer. Answers run to
    `max_tokens`, whatever the model would like, so that a run has the shape that it is to show.
    """

    text: str
    max_tokens: int
    at: int = 0
    n: int = 1
    system: str = ""
    follows: int | None = None
    raw: bool = False
    temperature: float = 0.0
    use_beam_search: bool = False

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(
            n=self.n,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=7,
            ignore_eos=True,
            use_beam_search=self.use_beam_search,
        )

    @property
    def prompt(self) -> str:
        """The text that is tokenised; after what it follows, where it follows something."""
        if self.raw:
            return self.text
        system = f"<|im_start|>system\n{self.system}<|im_end|>\n" if self.system else ""
        turn = f"<|im_start|>user\n{self.text}<|im_end|>\n<|im_start|>assistant\n"
        # The answer before it ended at its max_tokens, in the middle of the model's turn.
        return system + turn if self.follows is None else f"<|im_end|>\n{turn}"


@dataclass(frozen=True)
class Scenario:
    """One recorded run. `shows` is its line in demo_data/README.md; `sizes` are options of `serve`."""

    name: str
    shows: str
    asks: tuple[Ask, ...]
    sizes: dict[str, Any] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"{self.name}.jsonl.zst"
