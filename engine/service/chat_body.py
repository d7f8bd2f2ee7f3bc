"""What a client may ask of /v1/chat/completions."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from engine.core.config import RequestError, SamplingParams
from engine.service.generation_body import GenerationBody


def _joined(content: Any) -> Any:
    """The text of a message that comes in parts."""
    if not isinstance(content, list):
        return content
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str) or len(part) != 2:
            raise ValueError(f"only parts with type text and a text are served, not {kind}")
    return "".join(part["text"] for part in content)


class Message(BaseModel):
    """One turn of the conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[dict])] = (
        Field(description="Text, or a list of parts of type text.")
    )


class ChatBody(GenerationBody):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)] = Field(
        description="The conversation so far; the model's own chat template makes a prompt of it."
    )
    max_completion_tokens: int | None = Field(
        None, description="Most output tokens of each completion; by default what fits."
    )
    max_tokens: int | None = Field(None, description="The older name of max_completion_tokens.")
    logprobs: bool = Field(False, description="Tell how likely each drawn token was.")
    top_logprobs: int | None = Field(None, description="With logprobs: so many of the best tokens.")

    def params(self, vocab_size: int, room: int) -> SamplingParams:
        """`room` is the most output tokens there can be. Raises RequestError."""
        self.check_together()
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs is for logprobs: set logprobs to true", "top_logprobs")
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise RequestError(
                f"max_tokens is {self.max_tokens} and max_completion_tokens "
                f"{self.max_completion_tokens}: leave one out",
                "max_tokens",
            )
        # What does not fit at all is refused by the engine, which says why.
        max_tokens = limits.pop() if limits else max(1, self.min_tokens, room)
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return self.sampling_params(vocab_size, max_tokens, logprobs, self.prompt_logprobs)
