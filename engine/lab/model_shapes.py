"""What of a model decides the size of its KV cache: from a config.json, or from a small table.

Only the JSON is read, so neither torch nor transformers is needed. Models that keep something else
than K and V of each token in each layer are refused by name (engine/lab/other_caches.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.core.config import ConfigError
from engine.lab.other_caches import refuse_other_caches

ITEM_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
}
"""Bytes of a number of the KV cache, by dtype."""


class ModelShape(msgspec.Struct, frozen=True):
    """A model's layers, KV heads and width of a head.

    heads: query heads; None where unknown. dtype: the checkpoint's own. weight_bytes: the checkpoint's
    size; None where unknown. source: where these numbers come from.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    heads: int | None = None
    dtype: str = "bfloat16"
    weight_bytes: int | None = None
    source: str = "as given"

    def __post_init__(self) -> None:
        for field in ("layers", "kv_heads", "head_dim"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} is {getattr(self, field)}; it must be at least 1")
        if self.heads is not None and (self.heads < 1 or self.heads % self.kv_heads):
            raise ConfigError(
                f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly"
            )

    def bytes_per_token(self, dtype: str) -> int:
        """K and V of one token in all layers. Raises ConfigError for a dtype that is not known."""
        return 2 * self.layers * self.kv_heads * self.head_dim * item_bytes(dtype)

    @property
    def attention(self) -> str:
        """How query heads share KV heads, in words."""
        if self.heads is None:
            return "query heads unknown"
        if self.heads == self.kv_heads:
            return f"multi-head: {self.heads} query heads, as many KV heads"
        if self.kv_heads == 1:
            return f"multi-query: {self.heads} query heads share 1 KV head"
        return f"grouped-query: {self.heads} query heads share {self.kv_heads} KV heads"


def item_bytes(dtype: str) -> int:
    """Bytes of a number. Raises ConfigError."""
    try:
        return ITEM_BYTES[dtype]
    except KeyError:
        raise ConfigError(f"dtype {dtype} is not known: use {', '.join(ITEM_BYTES)}") from None


def _published(
    hub: str,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    parameters: int,
    dtype: str = "bfloat16",
) -> ModelShape:
    """A row of the table; the weights are of 16 bit each."""
    name = hub.partition("/")[2].removesuffix("-hf")
    source = f"config.json of {hub}"
    return ModelShape(name, layers, kv_heads, head_dim, heads, dtype, 2 * parameters, source)


#   hub name, layers, query heads, KV heads, head_dim, parameters (tied ones counted once)
PUBLIC_MODELS: tuple[ModelShape, ...] = (
    _published("HuggingFaceTB/SmolLM2-135M", 30, 9, 3, 64, 134_515_008),
    _published("Qwen/Qwen2.5-0.5B", 24, 14, 2, 64, 494_032_768),
    _published("Qwen/Qwen2.5-7B", 28, 28, 4, 128, 7_615_616_512),
    _published("Qwen/Qwen2.5-72B", 80, 64, 8, 128, 72_706_203_648),
    _published("Qwen/Qwen3-0.6B", 28, 16, 8, 128, 596_049_920),
    _published("Qwen/Qwen3-8B", 36, 32, 8, 128, 8_190_735_360),
    _published("Qwen/Qwen3-32B", 64, 64, 8, 128, 32_762_123_264),
    _published("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 22, 32, 4, 64, 1_100_048_384),
    _published("meta-llama/Llama-2-7b-hf", 32, 32, 32, 128, 6_738_415_616, "float16"),
    _published("meta-llama/Llama-2-70b-hf", 80, 64, 8, 128, 68_976_648_192, "float16"),
    _published("meta-llama/Llama-3.2-1B", 16, 32, 8, 64, 1_235_814_400),
    _published("meta-llama/Llama-3.2-3B", 28, 24, 8, 128, 3_212_749_824),
    _published("meta-llama/Llama-3.1-8B", 32, 32, 8, 128, 8_030_261_248),
    _published("meta-llama/Llama-3.1-70B", 80, 64, 8, 128, 70_553_706_496),
    _published("mistralai/Mistral-7B-v0.3", 32, 32, 8, 128, 7_248_023_552),
    _published("google/gemma-2b", 18, 8, 1, 256, 2_506_172_416),
)
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
# Defaults of transformers' classes that are not hidden_size / heads; a config may leave them out.
HEAD_DIMS = {"gemma": 256, "qwen3": 128, "qwen3_vl_text": 128}
_VARIANTS = {"instruct", "chat", "base", "hf", "it"}


def model_shape(model: str) -> ModelShape:
    """The shape of a local folder's model, or of one of PUBLIC_MODELS by its name.

    An organisation before the name and words such as Instruct in it do not matter. Raises ConfigError.
    """
    if model and Path(model).is_dir():
        return read_shape(Path(model))
    wanted = _plain(model)
    for shape in PUBLIC_MODELS:
        if _plain(shape.name) == wanted:
            return shape
    known = ", ".join(shape.name for shape in PUBLIC_MODELS)
    raise ConfigError(
        f"{model} is no folder here and not in the table: give a folder with a config.json, "
        f"--layers, --kv-heads and --head-dim, or one of {known}"
    )


def _plain(name: str) -> str:
    words = name.rstrip("/").rpartition("/")[2].lower().split("-")
    return "-".join(word for word in words if word not in _VARIANTS)


def read_shape(folder: Path) -> ModelShape:
    """The shape in a folder's config.json, and the size of its safetensors. Raises ConfigError."""
    path = folder / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; give a folder with a model's config"
        ) from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no JSON object: {error}") from None
    shape = shape_of(folder.resolve().name, config)
    return msgspec.structs.replace(
        shape, weight_bytes=_weight_bytes(folder), source=f"config.json in {folder}"
    )


def shape_of(name: str, config: dict[str, Any]) -> ModelShape:
    """The shape that a decoded config.json describes. Raises ConfigError for one that it cannot be."""
    config = _text_config(name, config)
    refuse_other_caches(name, config)
    layers = _number(name, config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    heads = _number(name, config, "num_attention_heads", "n_head", "n_heads")
    head_dim = _first(config, "head_dim", "kv_channels") or HEAD_DIMS.get(config.get("model_type"))
    if head_dim is None:
        hidden = _number(name, config, "hidden_size", "n_embd", "d_model")
        if hidden % heads:
            raise ConfigError(
                f"{name}: hidden_size {hidden} does not divide by {heads} heads, and its config "
                "names no head_dim: give --layers, --kv-heads and --head-dim"
            )
        head_dim = hidden // heads
    dtype = _first(config, "torch_dtype", "dtype")
    try:
        return ModelShape(
            name=name,
            layers=layers,
            kv_heads=_kv_heads(name, config, heads),
            head_dim=_whole(name, "head_dim", head_dim),
            heads=heads,
            dtype=dtype if dtype in ITEM_BYTES else "bfloat16",
        )
    except ConfigError as error:
        if str(error).startswith(name):
            raise
        raise ConfigError(f"{name}: {error}") from None


def _text_config(name: str, config: dict[str, Any]) -> dict[str, Any]:
    part = next((key for key in _TEXT_PARTS if config.get(key) is not None), None)
    if part is None:
        return config
    inner = config[part]
    if not isinstance(inner, dict):
        raise ConfigError(f"{name}: {part} is {inner!r}, no object")
    if all(inner.get(key) is None for key in _KV_HEADS):
        # A part leaves out what is its class's default, which need not be one for each query head.
        raise ConfigError(
            f"{name}: its {part} does not tell num_key_value_heads: give --layers, --kv-heads and "
            "--head-dim"
        )
    return {"torch_dtype": _first(config, "torch_dtype", "dtype"), **inner}


def _kv_heads(name: str, config: dict[str, Any], heads: int) -> int:
    # Falcon's first architecture writes a num_kv_heads that it does not use.
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    if config.get("multi_query_attention"):  # ChatGLM
        return _number(name, config, "multi_query_group_num")
    found = _first(config, *_KV_HEADS)
    attention = config.get("attn_config")  # MPT, DBRX
    if found is None and isinstance(attention, dict):
        multi_query = attention.get("attn_type") == "multiquery_attention"
        found = 1 if multi_query else attention.get("kv_n_heads")
    return heads if found is None else _whole(name, "num_key_value_heads", found)


def _number(name: str, config: dict[str, Any], *keys: str) -> int:
    found = _first(config, *keys)
    if found is None:
        raise ConfigError(
            f"{name}: its config has no {keys[0]}: give --layers, --kv-heads and --head-dim"
        )
    return _whole(name, keys[0], found)


def _first(config: dict[str, Any], *keys: str) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def _whole(name: str, key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name}: {key} is {value!r}; it is a whole number from 1")
    return value


def _weight_bytes(folder: Path) -> int | None:
    """Of the safetensors, as their index or the file system counts them; None without any."""
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
    return sum(sizes) or None
