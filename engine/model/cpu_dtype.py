"""Which dtype a CPU computes in: bfloat16 where it has units for it and they are faster, else float32.

Without such units bfloat16 is emulated, and several times slower.
"""

import statistics
import time
from collections.abc import Callable

import torch

# A decode step's largest product for 8 sequences of the default model.
_ROWS, _WIDTH, _OUT = 8, 576, 1536


def best_cpu_dtype(
    has_bfloat16: Callable[[], bool] | None = None,
    seconds: Callable[[torch.dtype], float] | None = None,
) -> torch.dtype:
    """float32, or bfloat16 where this CPU is faster in it. Measured, a few milliseconds.

    `has_bfloat16` and `seconds` (time of a product) are this machine's unless given.
    """
    if not (has_bfloat16 or _has_bfloat16_units)():
        return torch.float32
    measure = seconds or _seconds
    return min((torch.float32, torch.bfloat16), key=measure)


def _has_bfloat16_units() -> bool:
    """AMX tiles or AVX512-BF16."""
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def _seconds(dtype: torch.dtype) -> float:
    x = torch.randn(_ROWS, _WIDTH).to(dtype)
    weights = [torch.randn(_OUT, _WIDTH).to(dtype) for _ in range(8)]
    times = []
    with torch.inference_mode():
        for _ in range(5):
            started = time.perf_counter()
            for weight in weights:
                torch.nn.functional.linear(x, weight)
            times.append(time.perf_counter() - started)
    return statistics.median(times)
