"""What both generation routes take, and how a request is refused that asks for something else.

A parameter that this server does not serve is refused by name: the body's models forbid what they do
not list. A null means "left out", as clients send it; so do the few values that ask for nothing.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from engine.core.config import RequestError, SamplingParams

# Parameters of the OpenAI API that are not served, with the values that ask for nothing.
_ASKS_NOTHING: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "store": (False,),
}
StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = Field(
        False, description="End with a chunk without choices that counts the tokens."
    )


class GenerationBody(BaseModel):
    """Parameters of completions and chat completions alike."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="The served model; may be left out.")
    stream: bool = Field(False, description="Server-sent events, a chunk a step; ends with [DONE].")
    stream_options: StreamOptions | None = Field(None, description="Only with stream.")
    n: int = Field(1, description="Completions of each prompt. They share the prompt's blocks.")
    min_tokens: int = Field(0, description="No completion ends before so many tokens.")
    temperature: float = Field(1.0, description="0 is greedy.")
    top_p: float = Field(1.0, description="Draw from the likeliest tokens of this much in sum.")
    top_k: int = Field(0, description="Draw from so many of the likeliest tokens; 0: from all.")
    min_p: float = Field(0.0, description="Least probability, as a share of the best token's.")
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="The same seed gives the same text."
    )
    presence_penalty: float = Field(0.0, description="Taken from tokens that the output has.")
    frequency_penalty: float = Field(0.0, description="The same, for each time it has them.")
    repetition_penalty: float = Field(
        1.0, description="Divides the logits of tokens in prompt and output; 1 is none."
    )
    logit_bias: dict[int, float] | None = Field(
        None, max_length=1024, description="Token id to what is added to its logit."
    )
    ignore_eos: bool = Field(False, description="Go on after an end token, up to max_tokens.")
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = Field(
        None, description="The text ends before the first of these strings."
    )
    stop_token_ids: list[int] = Field([], max_length=1024, description="End after such a token.")
    prompt_logprobs: int | None = Field(
        None, description="Tell how likely each prompt token was, and so many of the best."
    )
    use_beam_search: bool = Field(False, description="n beams instead of n draws.")
    length_penalty: float = Field(1.0, description="Beams: score = logprob / length ** this.")
    priority: int = Field(
        0,
        ge=-(2**31),
        lt=2**31,
        description="Lower comes first, where the engine's policy says so.",
    )
    cache_salt: str | None = Field(
        None, max_length=256, description="Share cached blocks with requests of the same salt only."
    )
    request_id: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._:-]{1,64}$",
        description="A name by which to find the request in the dashboard. It is the answer's id.",
    )
    user: str | None = Field(
        None, max_length=256, description="Changes nothing; the server's log line has it."
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_asks_for_nothing(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {
            name: value
            for name, value in body.items()
            if value is not None and value not in _ASKS_NOTHING.get(name, ())
        }

    def check_together(self) -> None:
        """Raises RequestError for parameters that do not go with each other."""
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options is for streams only: add stream", "stream_options")
        if self.stream and self.use_beam_search:
            raise RequestError(
                "stream does not go with use_beam_search, whose text is known at its end: "
                "leave one out",
                "stream",
            )
        if self.stream and self.prompt_logprobs is not None:
            raise RequestError(
                "prompt_logprobs does not go with stream: leave one out", "prompt_logprobs"
            )

    def sampling_params(
        self,
        vocab_size: int,
        max_tokens: int,
        logprobs: int | None,
        prompt_logprobs: int | None,
    ) -> SamplingParams:
        """Raises RequestError for values out of range."""
        bias = self.logit_bias or {}
        unknown = next((token for token in bias if not 0 <= token < vocab_size), None)
        if unknown is not None:
            raise RequestError(
                f"logit_bias names token id {unknown}; this model's ids end at {vocab_size - 1}",
                "logit_bias",
            )
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return SamplingParams(
            n=self.n,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=bias,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            ignore_eos=self.ignore_eos,
            stop=tuple(stop),
            stop_token_ids=tuple(self.stop_token_ids),
            use_beam_search=self.use_beam_search,
            length_penalty=self.length_penalty,
        )
