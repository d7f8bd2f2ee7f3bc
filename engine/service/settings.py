"""What `glasspool serve` is asked for, and the sizes that follow from it and the model."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.core.config import ConfigError, EngineConfig
from engine.model.weights import LoadedModel

DEFAULT_CPU_BUDGET = "1GiB"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


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
    record: Path | None = None
    record_text: bool = False


def engine_config(settings: ServeSettings, model: LoadedModel) -> EngineConfig:
    """The core's sizes. Raises ConfigError for those that cannot work."""
    if settings.block_size < 1:
        raise ConfigError(f"block_size is {settings.block_size}; it must be at least 1")
    limit = model.max_position_embeddings
    max_model_len = settings.max_model_len or limit
    if max_model_len > limit:
        raise ConfigError(
            f"max_model_len is {max_model_len}, but {model.name} knows positions up to {limit}: "
            "lower it"
        )
    num_blocks = settings.num_gpu_blocks_override
    if num_blocks is None:
        num_blocks = _blocks_that_fit(settings, model)
    return EngineConfig(
        block_size=settings.block_size,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens or max(2048, max_model_len),
    )


def parse_bytes(text: str) -> int:
    """'512MiB', '2GB', '1000000' as a number of bytes. Raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"{text} is no amount of memory: write it like 512MiB or 2GiB")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def _blocks_that_fit(settings: ServeSettings, model: LoadedModel) -> int:
    per_block = model.bytes_per_token * settings.block_size
    if model.model.device.type == "cuda":
        share = settings.gpu_memory_utilization
        if not 0 < share <= 1:
            raise ConfigError(f"gpu_memory_utilization is {share}; it lies above 0 and up to 1")
        free, total = torch.cuda.mem_get_info()
        budget = int(total * share) - (total - free)
        remedy = "raise gpu_memory_utilization"
    else:
        budget = parse_bytes(settings.kv_cache_memory)
        remedy = "raise --kv-cache-memory"
    if budget < per_block:
        raise ConfigError(
            f"{max(0, budget):,} bytes are left for the KV cache, one block takes {per_block:,}: {remedy}"
        )
    return budget // per_block


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
