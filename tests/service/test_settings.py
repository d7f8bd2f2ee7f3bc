"""What `glasspool serve` makes of its options, and which it refuses."""

from pathlib import Path

import pytest

from engine.core.config import ConfigError
from engine.service.server import build_context
from engine.service.settings import ServeSettings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_gpu_blocks_override": 0}, "num_blocks is 0"),
        ({"num_gpu_blocks_override": 10**12}, "num_blocks is 1000000000000; it is at most"),
        ({"block_size": 0}, "block_size is 0"),
        ({"max_model_len": 100_000}, "knows positions up to 512"),
        ({"kv_cache_memory": "plenty"}, "plenty is no amount of memory"),
        ({"kv_cache_memory": "1KiB"}, "raise --kv-cache-memory"),
        ({"dtype": "int3"}, "dtype int3 is not known"),
        ({"record": Path("/no/such/folder/run.jsonl.zst")}, "can't record to"),
        ({"max_num_batched_tokens": 16}, "less than max_num_seqs 64"),
        (
            {"max_num_batched_tokens": 64, "enable_chunked_prefill": False},
            "less than max_model_len 512",
        ),
        (
            {"long_prefill_token_threshold": 64, "enable_chunked_prefill": False},
            "chunked prefill is off",
        ),
        ({"scheduling_policy": "random"}, "use fcfs or priority"),
        ({"watermark": 1.5}, "watermark is 1.5"),
        ({"shutdown_timeout": -1}, "shutdown_timeout is -1"),
    ],
)
def test_options_that_cannot_work_are_refused(tiny_model, options, words):
    with pytest.raises(ConfigError, match=words) as caught:
        build_context(ServeSettings(str(tiny_model), **options))
    assert "\n" not in str(caught.value)


def test_the_pool_is_as_large_as_the_budget_allows(tiny_model):
    context = build_context(ServeSettings(str(tiny_model), kv_cache_memory="1MiB"))
    header = context.header
    assert header.bytes_per_block == 16 * 256
    assert header.num_blocks == 2**20 // header.bytes_per_block
    runner = context.engine.engine.runner
    caches = runner.k_caches + runner.v_caches
    assert sum(cache.nbytes for cache in caches) == 2**20
