"""What the routes share: one engine, and the model's tokenizer."""

import asyncio
from dataclasses import dataclass, field

from engine.core.config import RequestError
from engine.events.records import Header, Keyframe
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.parts import Tokenizer
from engine.service.viewers import Viewers


@dataclass(frozen=True)
class ServiceContext:
    """Read by all routes, changed by none."""

    engine: EngineThread
    event_log: EventLog
    header: Header
    tokenizer: Tokenizer
    viewers: Viewers = field(default_factory=Viewers)

    @property
    def model_name(self) -> str:
        return self.header.model

    async def keyframe(self) -> Keyframe:
        """The live state after the last record in the log. Raises EngineStopped."""
        snapshot = await asyncio.wrap_future(self.engine.snapshot())
        return await asyncio.to_thread(snapshot.keyframe)

    @property
    def vocab_size(self) -> int:
        return len(self.tokenizer)

    def room_after(self, prompt_tokens: int) -> int:
        """Most output tokens of a lone sequence: what the model knows, and what the pool holds."""
        config = self.engine.engine.config
        # The last token that is sampled never gets KV.
        pool = config.num_blocks * config.block_size + 1
        return min(config.max_model_len, pool) - prompt_tokens

    def check_model(self, name: str | None) -> None:
        """Raises ModelNotFound for a model that is not the served one."""
        if name not in (None, self.model_name):
            raise ModelNotFound(f"model {name} is not served here; use {self.model_name}", "model")

    def token_ids(self, prompt: str | list[int]) -> list[int]:
        """Raises RequestError for a token id that the model does not have, and for broken text."""
        if isinstance(prompt, str):
            _check_text(prompt, "prompt")
            return self.tokenizer.encode(prompt)
        unknown = next((token for token in prompt if not 0 <= token < self.vocab_size), None)
        if unknown is not None:
            raise RequestError(
                f"prompt has token id {unknown}; this model's ids go from 0 to {self.vocab_size - 1}",
                "prompt",
            )
        return prompt

    def chat_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """The conversation in the model's chat template. Raises RequestError where it can't be."""
        for message in messages:
            _check_text(message["content"], "messages")
        try:
            return self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False
            )
        except Exception as error:
            # A template is a program of the model's makers; what it raises is theirs, and says
            # which conversations it does not take.
            if getattr(self.tokenizer, "chat_template", "") is None:
                why = f"model {self.model_name} has no chat template: use /v1/completions"
            else:
                why = f"the model's chat template does not take these messages: {error}"
            raise RequestError(" ".join(why.split()), "messages") from None

    def token_text(self, token: int) -> str:
        """One token on its own, special tokens too."""
        return self.tokenizer.decode([token])

    def text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)


class ModelNotFound(RequestError):
    """The request names a model that is not served here."""


def _check_text(text: str, parameter: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{parameter} has half a surrogate pair at character {error.start}, "
            "which no text has: send whole characters",
            parameter,
        ) from None
