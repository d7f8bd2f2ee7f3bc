"""The hook by which a transformers model attends through our block tables.

The model runs on one ragged row of tokens; each attention layer calls `attend`, which stores the new
keys and values in their slots and reads all keys of a sequence through its block table.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

import kernels

ATTENTION = "glasspool_paged"


@dataclass(frozen=True)
class PagedContext:
    """What the layers of one forward pass share. Caches are indexed by layer."""

    k_caches: list[torch.Tensor]
    v_caches: list[torch.Tensor]
    slot_mapping: torch.Tensor
    batch: kernels.RaggedBatch


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    paged: PagedContext,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """query: [1, heads, tokens, head_dim]; key, value: [1, kv_heads, tokens, head_dim].

    Returns [1, tokens, heads, head_dim], as transformers expects it of an attention function.
    """
    k_cache = paged.k_caches[module.layer_idx]
    v_cache = paged.v_caches[module.layer_idx]
    kernels.write_kv(
        key[0].transpose(0, 1), value[0].transpose(0, 1), k_cache, v_cache, paged.slot_mapping
    )
    out = kernels.paged_attention(query[0].transpose(0, 1), k_cache, v_cache, paged.batch, scaling)
    return out[None], None


AttentionInterface.register(ATTENTION, attend)
