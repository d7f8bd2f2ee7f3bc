"""What one token's KV takes in a layer, and so how many tokens a page of memory holds."""

from dataclasses import dataclass

from engine.core.config import ConfigError

PAGE_BYTES = 2 * 1024 * 1024
"""The smallest piece of memory that CUDA's virtual memory calls map (arXiv 2405.04437)."""


@dataclass(frozen=True)
class KvShape:
    """KV heads, width of a head, layers, and bytes of a number (2 in 16 bit)."""

    kv_heads: int
    head_dim: int
    layers: int
    itemsize: int = 2

    def __post_init__(self) -> None:
        for name in ("kv_heads", "head_dim", "layers", "itemsize"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.tokens_per_page < 1:
            raise ConfigError(
                f"one token's K takes {self.bytes_per_token_and_layer:,} bytes of a layer, more than a "
                f"page of {PAGE_BYTES:,}: give fewer kv_heads, or a smaller head_dim or itemsize"
            )

    @property
    def bytes_per_token_and_layer(self) -> int:
        """Bytes of one token's K in one layer; its V takes the same."""
        return self.kv_heads * self.head_dim * self.itemsize

    @property
    def tokens_per_page(self) -> int:
        """Whole tokens in a page of PAGE_BYTES, which belongs to K or to V of one layer."""
        return PAGE_BYTES // self.bytes_per_token_and_layer

    @property
    def pages_at_a_time(self) -> int:
        """Pages that a sequence maps together: one for K and one for V in each layer."""
        return 2 * self.layers


SHAPES = {
    "Llama-3-8B": KvShape(kv_heads=8, head_dim=128, layers=32),
    "Yi-6B": KvShape(kv_heads=4, head_dim=128, layers=32),
    "Qwen2.5-0.5B": KvShape(kv_heads=2, head_dim=64, layers=24),
    "SmolLM2-135M": KvShape(kv_heads=3, head_dim=64, layers=30),
}
"""Shapes by the names of models, in 16 bit."""
