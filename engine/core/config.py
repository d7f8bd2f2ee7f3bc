"""What an engine is configured with, and what a client may ask of one request."""

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


class EngineConfig(msgspec.Struct, frozen=True):
    """Sizes and limits of the core.

    block_size: slots in a block. num_blocks: blocks in the pool. max_model_len: most tokens of one
    sequence, prompt and output. max_num_seqs: most running sequences. max_num_batched_tokens: most
    tokens run through the model in one step; a prompt, or a preempted sequence that resumes, runs in
    one step, so this is at least max_model_len.
    """

    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        if self.max_num_batched_tokens < self.max_model_len:
            raise ConfigError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, less than max_model_len "
                f"{self.max_model_len}: raise the first or lower the second "
                "(a sequence that resumes runs in one step)"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, less than max_num_seqs "
                f"{self.max_num_seqs}: every running sequence needs one token a step"
            )


class SamplingParams(msgspec.Struct, frozen=True):
    """How the tokens of one request are chosen.

    temperature 0 is greedy. top_k 0 keeps all tokens. seed None draws one. max_tokens counts output
    tokens of each of the n sequences.
    """

    n: int = 1
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n < 1:
            raise RequestError(f"n is {self.n}; ask for at least 1 completion", "n")
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}; ask for at least 1", "max_tokens")
        if not 0 <= self.temperature <= 100:
            raise RequestError(
                f"temperature is {self.temperature}; it lies between 0 (greedy) and 100",
                "temperature",
            )
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p is {self.top_p}; it lies above 0 and up to 1", "top_p")
        if self.top_k < 0:
            raise RequestError(f"top_k is {self.top_k}; use 0 for all tokens", "top_k")
