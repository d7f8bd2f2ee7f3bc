"""What the routes answer, for the OpenAPI document. Tests hold the answers to these models."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(_Model):
    """`param` names the parameter at fault, where one is."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(_Model):
    """Every error, of every route."""

    error: ErrorDetail


class Usage(_Model):
    """Tokens. A prompt counts once for all its completions."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionLogprobs(_Model):
    """One entry a token. `text_offset` counts characters."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


PromptLogprobs = list[dict[str, dict[str, Any]] | None]


class CompletionChoice(_Model):
    index: int
    text: str
    finish_reason: Literal["stop", "length"]
    logprobs: CompletionLogprobs | None
    prompt_logprobs: PromptLogprobs | None = Field(None, description="Where they were asked for.")


class Completion(_Model):
    """A whole answer. A stream has the same in pieces, one a server-sent event."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class ChatMessage(_Model):
    role: Literal["assistant"]
    content: str
    refusal: None


class TokenLogprob(_Model):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(_Model):
    content: list[ChatTokenLogprob]
    refusal: None


class ChatChoice(_Model):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatCompletion(_Model):
    """A whole answer. A stream has the same in pieces, one a server-sent event."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | None = Field(None, description="Where they were asked for.")


class Model(_Model):
    """`max_model_len`: most tokens of one sequence, prompt and output."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["glasspool"] = "glasspool"
    max_model_len: int


class ModelList(_Model):
    object: Literal["list"] = "list"
    data: list[Model]


class Health(_Model):
    status: Literal["ok"]
    model: str


class Unhealthy(_Model):
    status: Literal["failed"]
    why: str


class Version(_Model):
    version: str


class ResetDone(_Model):
    reset: bool


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for routes that may answer with these."""
    return {status: {"model": Error, "description": _MEANING[status]} for status in statuses}


def generation_responses(whole: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of a generation route."""
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    done = {"model": whole, "description": "The answer, or its stream", "content": stream}
    return {200: done, **errors(400, 401, 403, 404, 413, 422, 503)}


_MEANING = {
    400: "The request can't be served as it is; the message says what to change",
    401: "The server asks for an API key, and this is none or another",
    403: "A page of another origin asked",
    404: "Not served here",
    409: "Not now: the message says what stands against it",
    413: "The body is larger than this server takes",
    422: "Not used: a body with faults gets a 400",
    503: "The queue is full (see Retry-After), or the engine is shutting down",
}
