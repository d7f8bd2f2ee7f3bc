"""The parts of a server with a model. The only module of the service that needs torch."""

import logging

import torch

import kernels
from engine.core.config import ConfigError, EngineConfig
from engine.core.memory_size import parse_bytes
from engine.model.runner import ModelRunner
from engine.model.weights import LoadedModel, load_model
from engine.service.parts import Parts
from engine.service.settings import ServeSettings

log = logging.getLogger("glasspool")


def model_parts(settings: ServeSettings) -> Parts:
    """Load the model. Raises ConfigError."""
    loaded = load_model(settings.model, _dtype(settings.dtype), log.info)
    log.info("kernels: %s", _kernels(loaded))

    def make_runner(config: EngineConfig) -> ModelRunner:
        return ModelRunner(
            loaded.model,
            config.num_blocks,
            config.block_size,
            loaded.num_layers,
            loaded.num_kv_heads,
            loaded.head_dim,
            eos_token_ids=loaded.eos_token_ids,
        )

    return Parts(
        model_name=loaded.name,
        dtype=loaded.dtype,
        num_layers=loaded.num_layers,
        num_kv_heads=loaded.num_kv_heads,
        head_dim=loaded.head_dim,
        bytes_per_token=loaded.bytes_per_token,
        max_model_len=loaded.max_position_embeddings,
        eos_token_ids=loaded.eos_token_ids,
        tokenizer=loaded.tokenizer,
        blocks_that_fit=lambda block_size: _blocks_that_fit(settings, loaded, block_size),
        make_runner=make_runner,
    )


def _kernels(loaded: LoadedModel) -> str:
    """The kernels that will run, asked now rather than in the first step."""
    try:
        return kernels.backend(loaded.model.device).value
    except kernels.KernelError as error:
        raise ConfigError(str(error)) from None


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    dtype = getattr(torch, name, None)
    if dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        raise ConfigError(f"dtype {name} is not known: use float32, bfloat16, float16 or float64")
    return dtype


def _blocks_that_fit(settings: ServeSettings, loaded: LoadedModel, block_size: int) -> int:
    per_block = loaded.bytes_per_token * block_size
    if loaded.model.device.type == "cuda":
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
            f"{max(0, budget):,} bytes are left for the KV cache, "
            f"one block takes {per_block:,}: {remedy}"
        )
    return budget // per_block
