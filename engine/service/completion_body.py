"""What a client may ask of /v1/completions. Anything else is refused by name, never ignored."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.core.config import RequestError, SamplingParams


class CompletionBody(BaseModel):
    """The body of POST /v1/completions."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="The served model; may be left out.")
    prompt: str | list[Annotated[int, Field(ge=0)]] = Field(description="Text, or token ids.")
    n: int = Field(1, description="Completions of this prompt. They share its blocks.")
    max_tokens: int = Field(16, description="Most output tokens of each completion.")
    min_tokens: int = Field(0, description="No completion ends before so many tokens.")
    temperature: float = Field(1.0, description="0 is greedy.")
    top_p: float = 1.0
    top_k: int = Field(0, description="0 keeps all tokens.")
    min_p: float = Field(0.0, description="Least probability, as a share of the best token's.")
    seed: int | None = Field(None, description="The same seed gives the same text.")
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = Field(1.0, description="1 is none.")
    logit_bias: dict[int, float] | None = Field(None, description="Token id to what is added.")
    logprobs: int | None = Field(None, description="Tell the drawn and so many of the best tokens.")
    prompt_logprobs: int | None = Field(None, description="The same for the prompt.")
    ignore_eos: bool = False
    stop: str | list[str] | None = Field(None, description="The text ends before these strings.")
    stop_token_ids: list[int] = []
    use_beam_search: bool = Field(False, description="n beams instead of n draws.")
    length_penalty: float = Field(1.0, description="Beams: score = logprob / length ** this.")
    priority: int = Field(0, description="Lower comes first, where the engine's policy says so.")
    cache_salt: str | None = Field(
        None, max_length=256, description="Share cached blocks with requests of the same salt only."
    )
    stream: Literal[False] = Field(False, description="Streaming is not served yet.")
    request_id: str | None = Field(
        None, max_length=64, description="A name by which to find the request in the dashboard."
    )

    def sampling_params(self, vocab_size: int) -> SamplingParams:
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
            max_tokens=self.max_tokens,
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
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            ignore_eos=self.ignore_eos,
            stop=tuple(stop),
            stop_token_ids=tuple(self.stop_token_ids),
            use_beam_search=self.use_beam_search,
            length_penalty=self.length_penalty,
        )
