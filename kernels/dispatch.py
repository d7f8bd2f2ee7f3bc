"""Which kernels run: Triton on a GPU, torch elsewhere, unless GLASSPOOL_KERNELS says otherwise.

GLASSPOOL_KERNELS   CUDA tensors   CPU tensors
(unset)             triton         torch
triton              triton         triton, under TRITON_INTERPRET=1 only (tests)
torch               torch          torch
"""

import importlib.util
import os
from enum import StrEnum
from functools import cache

import torch

from kernels import torch_twins
from kernels.errors import KernelError
from kernels.ragged import RaggedBatch

VARIABLE = "GLASSPOOL_KERNELS"


class Backend(StrEnum):
    TRITON = "triton"
    TORCH = "torch"


def backend(device: torch.device) -> Backend:
    """The kernels that tensors on `device` are given to. Raises KernelError for one that can't run."""
    asked = os.environ.get(VARIABLE)
    if not asked:
        if device.type != "cuda":
            return Backend.TORCH
        asked = Backend.TRITON
    if asked == Backend.TORCH:
        return Backend.TORCH
    if asked != Backend.TRITON:
        raise KernelError(f"{VARIABLE} is {asked!r}: set it to triton or torch, or leave it unset")
    if not _has_triton():
        raise KernelError(
            f"triton is not installed: pip install triton, or set {VARIABLE}={Backend.TORCH}"
        )
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise KernelError(
            f"{VARIABLE} is triton, but tensors are on {device.type}, where Triton only runs "
            f"interpreted, for tests: set TRITON_INTERPRET=1 too, or {VARIABLE}={Backend.TORCH}"
        )
    return Backend.TRITON


@cache
def _has_triton() -> bool:
    # Looked for on disk: asked once, not at every layer.
    return importlib.util.find_spec("triton") is not None


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: RaggedBatch,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Causal attention of a ragged batch over its block tables.

    q: [tokens, heads, head_dim] in the caches' dtype, heads a multiple of kv_heads.
    k_cache, v_cache: [num_blocks, block_size, kv_heads, head_dim]. scale: what scores are multiplied
    with before the softmax. window: the query at position p sees keys p - window + 1 .. p; None for
    all up to p. Returns [tokens, heads, head_dim], contiguous, in q's dtype; queries that see no key
    get zeros. Triton takes float16, bfloat16 and float32, and head_dim up to 256. Raises KernelError.

    After PagedAttention (Kwon et al. 2023), FlashAttention (Dao et al. 2022) and Flash-Decoding (Dao
    et al. 2023).
    """
    check_window(window)
    if window is not None and window >= batch.max_seq_len:
        window = None
    if backend(q.device) is Backend.TRITON:
        from kernels.gpu.launch import attention

        return attention(q, k_cache, v_cache, batch, scale, window)
    return torch_twins.paged_attention(q, k_cache, v_cache, batch, scale, window)


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Store the keys and values of a step's tokens in their slots.

    k, v: [tokens, kv_heads, head_dim], of any strides, in the caches' dtype. k_cache, v_cache:
    [num_blocks, block_size, kv_heads, head_dim]. slot_mapping: [tokens] int64, unique but for -1
    (padding, stored nowhere).
    """
    if backend(k_cache.device) is Backend.TRITON:
        from kernels.gpu import cache as on_gpu

        on_gpu.write_kv(k, v, k_cache, v_cache, slot_mapping)
    else:
        torch_twins.write_kv(k, v, k_cache, v_cache, slot_mapping)


def copy_blocks(caches: list[torch.Tensor], pairs: list[tuple[int, int]]) -> None:
    """Copy whole blocks (source, target) in every cache: K and V of all layers, in one call.

    All sources hold what they held before the call: on a GPU because no target may be a source,
    which the engine keeps (see `kernels.gpu.cache.copy_blocks`). Targets are distinct.
    """
    if backend(caches[0].device) is Backend.TRITON:
        from kernels.gpu import cache as on_gpu

        on_gpu.copy_blocks(caches, pairs)
    else:
        torch_twins.copy_blocks(caches, pairs)


def check_window(window: int | None) -> None:
    """Raises KernelError for a window in which a query would not even see itself."""
    if window is not None and window < 1:
        raise KernelError(f"window is {window}: give at least 1, or None for no window")
