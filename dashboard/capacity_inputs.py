"""What the page "Capacity" is asked: a model, a dtype, a memory, a block size and lengths.

Each input is kept while other pages are shown. What is typed and cannot be raises ConfigError.
"""

from dataclasses import dataclass

import streamlit as st

from engine.lab.capacity import ConfigError, GpuBudget, Sizing, parse_bytes, parse_lengths
from engine.lab.model_shapes import ITEM_BYTES, PUBLIC_MODELS, ModelShape, model_shape

BY_NUMBERS = "By numbers"
KV, GPU = "KV cache", "A GPU"
BLOCK_SIZES = (1, 8, 16, 32, 64, 128)
FIRST_MODEL = "Qwen2.5-0.5B"
FIRST_LENGTHS = "512, 1024, 2048, 4096, 16384, 100000"


@dataclass(frozen=True)
class Asked:
    """budget: None where the KV cache's memory was given itself."""

    shape: ModelShape
    dtype: str
    budget: GpuBudget | None
    sizing: Sizing
    lengths: list[int]


def ask() -> Asked:
    """Draw the inputs; gives what they say. Raises ConfigError."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        models = [*(shape.name for shape in PUBLIC_MODELS), BY_NUMBERS]
        model = st.selectbox(
            "Model",
            models,
            index=models.index(FIRST_MODEL),
            key="capacity-model",
            accept_new_options=True,
            width=230,
            persist_state="session",
            help="A public model, or type a folder on the dashboard's machine that has a config.json.",
        )
        dtype = st.selectbox(
            "KV dtype",
            list(ITEM_BYTES),
            index=list(ITEM_BYTES).index("bfloat16"),
            key="capacity-dtype",
            width=130,
            persist_state="session",
            help="Of the numbers in the cache; the weights may have another.",
        )
        block_size = st.selectbox(
            "Block size",
            BLOCK_SIZES,
            index=BLOCK_SIZES.index(16),
            key="capacity-block-size",
            width=110,
            persist_state="session",
            help="Slots in a block: tokens whose KV it holds.",
        )
        lengths = _text(
            "Lengths",
            FIRST_LENGTHS,
            "capacity-lengths",
            "Tokens of a sequence that have KV, a list with commas.",
            330,
        )
    shape = _by_numbers() if model == BY_NUMBERS else model_shape(model or "")
    budget, memory = _memory(shape)
    return Asked(
        shape=shape,
        dtype=dtype,
        budget=budget,
        sizing=Sizing(shape.bytes_per_token(dtype), block_size, memory),
        lengths=parse_lengths(lengths),
    )


def _by_numbers() -> ModelShape:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        layers = _number("Layers", 24, "capacity-layers", "Layers that attend.")
        kv_heads = _number("KV heads", 2, "capacity-kv-heads", "Of a layer; 1 in multi-query.")
        head_dim = _number("Head dim", 64, "capacity-head-dim", "Numbers in one head's K, or V.")
    return ModelShape("by numbers", layers, kv_heads, head_dim)


def _memory(shape: ModelShape) -> tuple[GpuBudget | None, int]:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        kind = st.radio(
            "Memory of",
            [KV, GPU],
            key="capacity-kind",
            horizontal=True,
            persist_state="session",
            help="The KV cache's own memory, or a GPU's, of which weights and the rest are taken off.",
        )
        if kind == KV:
            text = _text("Memory", "12.4GB", "capacity-memory", "Such as 12.4GB or 8GiB.", 130)
            return None, parse_bytes(text)
        gpu = _text("GPU memory", "24GiB", "capacity-gpu", "Such as 24GiB.", 120)
        share = st.number_input(
            "Utilization",
            0.05,
            1.0,
            0.9,
            0.05,
            key="capacity-utilization",
            width=140,
            persist_state="session",
            help="gpu_memory_utilization: the share of the GPU that the engine may use.",
        )
        weights = _text(
            "Weights",
            "",
            "capacity-weights",
            "Empty: the size of the model's checkpoint. Such as 16GB.",
            120,
            "the model's",
        )
        overhead = _text(
            "Overhead",
            "0",
            "capacity-overhead",
            "What else takes GPU memory: activations, CUDA graphs, other processes.",
            120,
        )
    size = parse_bytes(weights) if weights.strip() else shape.weight_bytes
    if size is None:
        raise ConfigError("the size of the model's weights is not known: type it, such as 16GB")
    budget = GpuBudget(parse_bytes(gpu), share, size, parse_bytes(overhead))
    return budget, budget.kv_memory


def _text(
    label: str, value: str, key: str, help: str, width: int, placeholder: str | None = None
) -> str:
    return st.text_input(
        label,
        value,
        key=key,
        help=help,
        width=width,
        placeholder=placeholder,
        persist_state="session",
    )


def _number(label: str, value: int, key: str, help: str) -> int:
    return st.number_input(
        label, 1, 100_000, value, key=key, help=help, width=130, persist_state="session"
    )
