"""What a server is built from: a runner and a tokenizer, with a model or without one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.core.config import EngineConfig
from engine.core.runner import ModelFreeRunner, Runner, StepCost


class Tokenizer(Protocol):
    """Text to token ids and back. `len()` is the number of ids."""

    def __len__(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: list[int], *, skip_special_tokens: bool = False) -> str: ...

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, return_dict: bool
    ) -> list[int]: ...


@dataclass(frozen=True)
class Parts:
    """Everything about a model that the server must know before it sizes the pool.

    `blocks_that_fit` takes a block size and gives the number of blocks for which there is memory;
    `make_runner` is called once, with the final sizes.
    """

    model_name: str
    dtype: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    bytes_per_token: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    tokenizer: Tokenizer
    blocks_that_fit: Callable[[int], int]
    make_runner: Callable[[EngineConfig], Runner]


class ByteTokenizer:
    """A token a byte of UTF-8: for engines without a model."""

    def __len__(self) -> int:
        return 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int], *, skip_special_tokens: bool = False) -> str:
        return bytes(tokens).decode(errors="replace")

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, return_dict: bool
    ) -> list[int]:
        """A line a turn: as good as any template to something that does not read."""
        return self.encode("".join(f"{m['role']}: {m['content']}\n" for m in messages))


def model_free_parts() -> Parts:
    """An engine that draws bytes at random and takes as long as a small model: no torch is needed.

    Every request runs to its max_tokens.
    """
    tokenizer = ByteTokenizer()
    return Parts(
        model_name="none",
        dtype="none",
        num_layers=0,
        num_kv_heads=0,
        head_dim=0,
        bytes_per_token=0,
        max_model_len=4096,
        eos_token_ids=frozenset(),
        tokenizer=tokenizer,
        blocks_that_fit=lambda block_size: 16_384 // block_size,
        make_runner=lambda config: ModelFreeRunner(len(tokenizer), StepCost()),
    )
