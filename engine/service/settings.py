"""What `glasspool serve` is asked for, and the sizes that follow from it and the model."""

import re
from dataclasses import dataclass
from pathlib import Path

from engine.core.config import ConfigError, EngineConfig, policy_named
from engine.service.parts import Parts

DEFAULT_CPU_BUDGET = "1GiB"
NO_MODEL = "none"


@dataclass(frozen=True)
class ServeSettings:
    """The options of `glasspool serve`. None: chosen from the model and the machine."""

    model: str
    host: str = "127.0.0.1"
    port: int = 8000
    engine_name: str = "glasspool"
    dtype: str | None = None
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_memory: str = DEFAULT_CPU_BUDGET
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    watermark: float = 0.01
    max_num_queued_reqs: int = 0
    scheduling_policy: str = "fcfs"
    api_key: str | None = None
    allowed_origins: tuple[str, ...] = ()
    shutdown_timeout: float = 30.0
    record: Path | None = None
    record_text: bool = False
    record_max_size: str | None = None
    record_fsync: bool = False
    events: bool = True


def engine_config(settings: ServeSettings, parts: Parts) -> EngineConfig:
    """The core's sizes. Raises ConfigError for those that cannot work."""
    if settings.block_size < 1:
        raise ConfigError(f"block_size is {settings.block_size}; it must be at least 1")
    if not 0 <= settings.shutdown_timeout < float("inf"):
        raise ConfigError(
            f"shutdown_timeout is {settings.shutdown_timeout}; it is a number of seconds, 0 or more"
        )
    limit = parts.max_model_len
    max_model_len = limit if settings.max_model_len is None else settings.max_model_len
    if max_model_len > limit:
        raise ConfigError(
            f"max_model_len is {max_model_len}, but {parts.model_name} knows positions up to "
            f"{limit}: lower it"
        )
    num_blocks = settings.num_gpu_blocks_override
    if num_blocks is None:
        num_blocks = parts.blocks_that_fit(settings.block_size)
    batched = settings.max_num_batched_tokens
    if batched is None:
        # Without chunks, a step must be able to compute a whole sequence again.
        batched = 2048 if settings.enable_chunked_prefill else max(2048, max_model_len)
    return EngineConfig(
        block_size=settings.block_size,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=batched,
        enable_prefix_caching=settings.enable_prefix_caching,
        enable_chunked_prefill=settings.enable_chunked_prefill,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        watermark=settings.watermark,
        max_num_queued_reqs=settings.max_num_queued_reqs,
        policy=policy_named(settings.scheduling_policy),
    )


def checked_api_key(api_key: str | None) -> str | None:
    """The key as it can be sent in a header. Raises ConfigError; the message does not show the key."""
    if api_key is not None and not re.fullmatch(r"[!-~]+", api_key):
        raise ConfigError(
            "the API key is empty, or has characters that no header carries: "
            "use letters, digits and punctuation, without spaces"
        )
    return api_key


def pool_lines(config: EngineConfig, bytes_per_token: int) -> list[str]:
    """What the start-up log says of the pool, a line each."""
    size, blocks = config.block_size, config.num_blocks
    return [
        f"KV cache: {bytes_per_token:,} bytes per token, "
        f"{bytes_per_token * size:,} bytes per block of {size} tokens",
        f"KV cache: {blocks:,} blocks, {bytes_per_token * size * blocks / 2**20:,.1f} MiB in all",
        f"KV cache: {blocks * size:,} cacheable tokens = {blocks:,} blocks x {size}",
        f"KV cache: room for {blocks * size / config.max_model_len:,.2f} sequences of "
        f"max_model_len {config.max_model_len:,}",
    ]
