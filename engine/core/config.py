"""What an engine is configured with, and what a client may ask of one request."""

from enum import StrEnum

import msgspec


class ConfigError(ValueError):
    """A configuration that cannot work. One sentence with the value and the remedy."""


class RequestError(ValueError):
    """A request that this engine cannot serve. One sentence with the value and the remedy.

    `parameter` is the request parameter at fault.
    """

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Policy(StrEnum):
    """Who comes first: the older request, or the one with the lower `priority`, then the older."""

    FCFS = "fcfs"
    PRIORITY = "priority"


def policy_named(name: str) -> Policy:
    """Raises ConfigError."""
    try:
        return Policy(name)
    except ValueError:
        known = " or ".join(policy.value for policy in Policy)
        raise ConfigError(f"scheduling_policy {name} is not known: use {known}") from None


_MOST = {"block_size": 2**20, "num_blocks": 2**24}
"""More than memories make of them; of more blocks the pool's own lists would fill a machine."""


class EngineConfig(msgspec.Struct, frozen=True):
    """Sizes and limits of the core.

    block_size: slots in a block. num_blocks: blocks in the pool. max_model_len: most tokens of one
    sequence, prompt and output. max_num_seqs: most running sequences. max_num_batched_tokens: most
    tokens run through the model in one step. long_prefill_token_threshold: most tokens of one
    sequence in one step; 0 sets no limit. watermark: share of the pool that stays free when a
    waiting sequence is admitted next to running ones. max_num_queued_reqs: most requests that have
    not started; 0 sets no limit. prefix_hash_bits: width of the prefix index's keys, a multiple of 4;
    content is compared on every hit, so fewer bits cost hits, never correctness.
    """

    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    max_num_queued_reqs: int = 0
    policy: Policy = Policy.FCFS
    prefix_hash_bits: int = 64

    def __post_init__(self) -> None:
        for name in ("block_size", "num_blocks", "max_model_len", "max_num_seqs"):
            value, most = getattr(self, name), _MOST.get(name)
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
            if most is not None and value > most:
                raise ConfigError(f"{name} is {value}; it is at most {most:,}")
        for name in ("long_prefill_token_threshold", "max_num_queued_reqs"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 0 for no limit")
        if not isinstance(self.policy, Policy):
            raise ConfigError(f"policy is {self.policy!r}; use Policy.FCFS or Policy.PRIORITY")
        if not 0 <= self.watermark < 1:
            raise ConfigError(
                f"watermark is {self.watermark}; it is a share of the pool, from 0 to below 1"
            )
        if self.prefix_hash_bits not in range(4, 129, 4):
            raise ConfigError(
                f"prefix_hash_bits is {self.prefix_hash_bits}; it is a multiple of 4, from 4 to 128"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, less than max_num_seqs "
                f"{self.max_num_seqs}: every running sequence needs one token a step"
            )
        if not self.enable_chunked_prefill and self.long_prefill_token_threshold:
            raise ConfigError(
                f"long_prefill_token_threshold is {self.long_prefill_token_threshold}, but chunked "
                "prefill is off: leave it out or enable chunked prefill"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ConfigError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, less than max_model_len "
                f"{self.max_model_len}: raise the first, lower the second or enable chunked prefill"
            )


class SamplingParams(msgspec.Struct, frozen=True):
    """How the tokens of one request are chosen.

    n: completions. max_tokens, min_tokens: of each completion's output. temperature: 0 is greedy.
    top_p, top_k (0: all), min_p (share of the best token's probability): which tokens may be drawn.
    seed: None draws one. presence_penalty, frequency_penalty: per token of the output so far;
    repetition_penalty: per token of prompt and output. logit_bias: added to a token's logit.
    logprobs, prompt_logprobs: how many of the best tokens to tell besides the drawn one; None tells
    nothing. stop: strings that end the text before them. use_beam_search: n beams, whose scores are
    cumulated logprobs over output tokens ** length_penalty.
    """

    n: int = 1
    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    use_beam_search: bool = False
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.n < 1:
            raise RequestError(f"n is {self.n}; ask for at least 1 completion", "n")
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}; ask for at least 1", "max_tokens")
        self._require("min_tokens", 0, self.max_tokens)
        self._require("temperature", 0, 100)
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p is {self.top_p}; it lies above 0 and up to 1", "top_p")
        if self.top_k < 0:
            raise RequestError(f"top_k is {self.top_k}; use 0 for all tokens", "top_k")
        self._require("min_p", 0, 1)
        self._require("presence_penalty", -2, 2)
        self._require("frequency_penalty", -2, 2)
        if not 0 < self.repetition_penalty <= 100:
            raise RequestError(
                f"repetition_penalty is {self.repetition_penalty}; it lies above 0, 1 is none",
                "repetition_penalty",
            )
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                self._require(name, 0, MAX_LOGPROBS)
        if "" in self.stop:
            raise RequestError("stop has an empty string; leave it out", "stop")
        if self.use_beam_search:
            self._refuse_beside_beams()

    def _require(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        if not least <= value <= most:
            raise RequestError(f"{name} is {value}; it lies between {least} and {most}", name)

    def _refuse_beside_beams(self) -> None:
        """Beams are ranked by the model's own probabilities; what would bend these is refused."""
        neutral = SamplingParams()
        for name in (
            *("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "min_tokens"),
            *("repetition_penalty", "logit_bias", "logprobs", "prompt_logprobs", "stop"),
        ):
            if getattr(self, name) != getattr(neutral, name):
                raise RequestError(f"{name} does not go with use_beam_search: leave it out", name)


MAX_LOGPROBS = 20
