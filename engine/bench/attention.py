"""Attention over a block table against attention over one strip: the price of paging.

The same maths on the same device; in turn, so that a noisy machine hurts both alike. Each row of the
batch decodes one token over `context` keys; its blocks lie in random order.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import altair as alt
import torch

import kernels
from kernels.contiguous import contiguous_attention


@dataclass(frozen=True)
class AttentionSettings:
    """Shapes of one attention layer, and what is varied."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: str
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    block_sizes: tuple[int, ...]
    repeats: int


def measure(settings: AttentionSettings, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row a combination: microseconds a call of both, and the median ratio of paired calls."""
    rows = []
    for context in settings.contexts:
        for batch in settings.batches:
            for block_size in settings.block_sizes:
                progress(f"batch {batch}, context {context}, block size {block_size}")
                paged, strip = _pair(settings, batch, context, block_size)
                rows.append(
                    {
                        "context": context,
                        "batch": batch,
                        "block size": block_size,
                        "contiguous": 1e6 * statistics.median(strip),
                        "paged": 1e6 * statistics.median(paged),
                        "paged / contiguous": statistics.median(
                            p / s for p, s in zip(paged, strip, strict=True)
                        ),
                    }
                )
    return rows


UNITS = {"context": "tokens", "block size": "tokens", "contiguous": "µs", "paged": "µs"}


def chart(rows: list[dict[str, Any]]) -> alt.Chart:
    """The ratio over the block size, a panel for each context."""
    return (
        alt.Chart(alt.Data(values=rows), title="The price of paging: paged / contiguous")
        .mark_line(point=True)
        .encode(
            x=alt.X("block size:O", title="block size (tokens)"),
            y=alt.Y("paged / contiguous:Q", title="time, ratio"),
            color=alt.Color("batch:N", title="batch"),
            column=alt.Column("context:N", title="context (tokens)"),
        )
        .properties(width=200, height=240)
    )


@torch.inference_mode()
def _pair(
    settings: AttentionSettings, rows: int, context: int, block_size: int
) -> tuple[list[float], list[float]]:
    """Seconds of paged and of contiguous calls, in turn."""
    shape = (settings.kv_heads, settings.head_dim)
    kind = {"dtype": settings.dtype, "device": settings.device}
    torch.manual_seed(0)
    per_row = -(-context // block_size)
    tables = torch.randperm(rows * per_row, device=settings.device).view(rows, per_row)
    k_cache, v_cache = torch.randn(2, rows * per_row, block_size, *shape, **kind)
    batch = kernels.RaggedBatch.from_lists(
        tables.tolist(), [context] * rows, [1] * rows, settings.device
    )
    q = torch.randn(rows, settings.heads, settings.head_dim, **kind)
    # The strip has the same keys in the same order, so both must give the same.
    k, v = (cache[tables].flatten(1, 2)[:, :context] for cache in (k_cache, v_cache))
    k, v = k.contiguous(), v.contiguous()
    scale = settings.head_dim**-0.5

    def paged() -> torch.Tensor:
        return kernels.paged_attention(q, k_cache, v_cache, batch, scale)

    def strip() -> torch.Tensor:
        return contiguous_attention(q, k, v, batch, scale)

    torch.testing.assert_close(paged(), strip(), atol=2e-2, rtol=2e-2)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(settings.repeats):
        for function, seconds in zip((paged, strip), times, strict=True):
            seconds.append(_timed(function, settings.device))
    return times


def _timed(function: Callable[[], torch.Tensor], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
