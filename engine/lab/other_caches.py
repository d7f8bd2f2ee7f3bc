"""Models that keep something else than K and V of each token in each layer, told by their config.

Their bytes a token are another arithmetic, or none at all, so they are refused by name and reason: a
wrong figure is worse than none. Published configs rarely say it in so many words: many hybrid models
name the period of their attention layers, or only sizes of a state.
"""

from collections.abc import Iterable
from typing import Any

from engine.core.config import ConfigError

_ATTENTION = {"full_attention", "attention"}
_LOCAL = {"sliding_attention", "chunked_attention", "local_attention"}
_WINDOWS = (
    *("sliding_window", "sliding_window_size", "attention_chunk_size"),
    *("attention_window_size", "window_size"),
)
# Where there is no list of layers, these are named by models of which some layers, or a part of each,
# keep a state that does not grow: Mamba and its hybrids, linear attention, short convolutions.
_STATES = (
    *("mamba_", "ssm_", "linear_attn", "linear_num_", "linear_conv", "lru_", "conv_L_cache"),
    *("state_size", "rescale_every", "attn_layer_period", "attn_layer_indices", "attn_type_list"),
    *("full_attention_interval", "full_attn_idxs", "hybrid_override_pattern", "block_types"),
    "hybrid_layer_pattern",
)
_IMAGE_LAYERS = ("cross_attention_layers", "cross_layer_interval")
_SHARED = ("num_kv_shared_layers", "use_cla", "kv_reuse_group")
_UNEQUAL = ("num_key_value_heads_per_layer", "block_configs", "per_layer_config")
_INDEX = ("index_head_dim", "indexer_head_dim")


def refuse_other_caches(name: str, config: dict[str, Any]) -> None:
    """Raises ConfigError with the reason where this decoded config is of such a model."""
    reason = _reason(config)
    if reason is not None:
        raise ConfigError(f"{name} {reason}")


def _reason(config: dict[str, Any]) -> str | None:
    if config.get("is_encoder_decoder"):
        return "is an encoder-decoder: its cross-attention keeps a cache of its own"
    architectures = config.get("architectures") or []
    if architectures and all(str(each).endswith("ForMaskedLM") for each in architectures):
        return "is an encoder: it generates nothing, and keeps no KV cache"
    if config.get("kv_lora_rank"):
        return (
            "uses multi-head latent attention (MLA): it caches one compressed vector of "
            f"{config['kv_lora_rank']} numbers and a rotary part, not K and V of heads"
        )
    types = _layer_types(config)
    window = _window(config, types)
    if window is not None:
        return (
            f"uses sliding-window attention: its layers forget tokens beyond {window}, so a block "
            "does not stay as long as its sequence"
        )
    others = sorted(types - _ATTENTION)
    if others:
        return (
            f"has layers of {', '.join(others)}: they keep something else than K and V of each token, "
            "and are not counted here"
        )
    state = None if types else _named(config, _STATES)
    if state is not None:
        return (
            f"has layers that keep a state instead of K and V of each token (its config names {state}): "
            "they are not counted here"
        )
    if _named(config, _IMAGE_LAYERS) is not None:
        return "has layers that attend to an image: their K and V are not of its tokens"
    shared = _named(config, _SHARED)
    if shared is not None:
        return (
            f"shares K and V between layers ({shared} is {config[shared]}): fewer are kept than it has "
            "layers, and they are not counted here"
        )
    unequal = _named(config, _UNEQUAL)
    if unequal is not None:
        return f"has layers of different shapes ({unequal}): they are not counted here"
    if _named(config, _INDEX) is not None:
        return "keeps an index of each token besides K and V: it is not counted here"
    v_width, k_width = config.get("v_head_dim"), config.get("head_dim")
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if k_width is None and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        k_width = hidden // heads
    if v_width is not None and v_width != k_width:
        return f"has V of {v_width} numbers a head beside K of {k_width}: they are not counted here"
    return None


def _layer_types(config: dict[str, Any]) -> set[str]:
    for key in ("layer_types", "layers_block_type"):
        if isinstance(config.get(key), list):
            return {str(each) for each in config[key]}
    return set()


def _window(config: dict[str, Any], types: set[str]) -> Any:
    """Tokens that some layer looks back at most; None where all of them look at all tokens."""
    if types:
        named = (config[key] for key in _WINDOWS if config.get(key) is not None)
        return next(named, "a window") if types & _LOCAL else None
    longest = config.get("max_position_embeddings")
    for key in _WINDOWS:
        window = config.get(key)
        if window is None or (
            key == "sliding_window" and not config.get("use_sliding_window", True)
        ):
            continue
        # Some configs name a window that is longer than any sequence can be.
        if isinstance(window, int) and isinstance(longest, int) and window >= longest:
            continue
        return window
    return None


def _named(config: dict[str, Any], names: Iterable[str]) -> str | None:
    """The first key that is, or begins with, one of these, and says something."""
    names = tuple(names)
    return next((key for key, value in config.items() if key.startswith(names) and value), None)
