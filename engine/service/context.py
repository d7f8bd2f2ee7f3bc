"""What the routes share: one engine, and the model's tokenizer."""

from dataclasses import dataclass

from engine.core.config import RequestError
from engine.events.records import Header
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.parts import Tokenizer


@dataclass(frozen=True)
class ServiceContext:
    """Read by all routes, changed by none."""

    engine: EngineThread
    event_log: EventLog
    header: Header
    tokenizer: Tokenizer

    @property
    def model_name(self) -> str:
        return self.header.model

    def token_ids(self, prompt: str | list[int]) -> list[int]:
        """Raises RequestError for a token id that the model does not have."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        unknown = next((token for token in prompt if token >= len(self.tokenizer)), None)
        if unknown is not None:
            raise RequestError(
                f"prompt has token id {unknown}; this model's ids end at {len(self.tokenizer) - 1}",
                "prompt",
            )
        return prompt

    def token_text(self, token: int) -> str:
        """One token on its own, special tokens too."""
        return self.tokenizer.decode([token])

    def text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)
