"""What a client may ask of /v1/completions."""

from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from engine.core.config import RequestError, SamplingParams
from engine.service.generation_body import GenerationBody

MAX_PROMPTS = 1024
_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}


def _prompts(value: Any) -> list[str | list[int]]:
    """One prompt or several, as text or token ids, as a list of prompts."""
    if _is_prompt(value):
        return [value]
    if isinstance(value, list) and value and all(_is_prompt(prompt) for prompt in value):
        if len(value) > MAX_PROMPTS:
            raise ValueError(f"{len(value)} prompts; a call takes up to {MAX_PROMPTS}")
        return value
    raise ValueError("a prompt is text or a list of token ids; there may be a list of prompts")


def _is_prompt(value: Any) -> bool:
    # An exact type: true is an int in Python, and no token.
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(type(token) is int for token in value)
    )


Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                _TOKENS,
                {"type": "array", "items": _TOKENS, "minItems": 1},
            ]
        }
    ),
]


class CompletionBody(GenerationBody):
    """The body of POST /v1/completions."""

    prompt: Prompts = Field(description="Text or token ids; or a list of either.")
    max_tokens: int = Field(16, description="Most output tokens of each completion.")
    logprobs: int | None = Field(None, description="Tell the drawn and so many of the best tokens.")
    echo: bool = Field(False, description="Begin each text with its prompt.")

    def params(self, vocab_size: int) -> SamplingParams:
        """Raises RequestError for values out of range."""
        self.check_together()
        if self.echo and self.use_beam_search:
            raise RequestError("echo does not go with use_beam_search: leave one out", "echo")
        prompt_logprobs = self.prompt_logprobs
        if self.echo and prompt_logprobs is None:
            prompt_logprobs = self.logprobs
        return self.sampling_params(vocab_size, self.max_tokens, self.logprobs, prompt_logprobs)
