"""Configs as they are published, without what they leave out: counted truly, or refused by name.

Only keys that matter are kept of each.
"""

import pytest

from engine.core.config import ConfigError
from engine.lab.model_shapes import HEAD_DIMS, shape_of


def sizes(layers: int, heads: int, hidden: int, kv_heads: int | None = None, **more) -> dict:
    found = {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": hidden}
    return found | ({} if kv_heads is None else {"num_key_value_heads": kv_heads}) | more


WINDOW = "uses sliding-window attention"
STATE = "keep a state instead of K and V"
REFUSED = {
    "DeepSeek-V3": (
        sizes(61, 128, 7168, 128, kv_lora_rank=512, v_head_dim=128),
        "latent attention",
    ),
    "Mistral-7B-v0.1": (
        sizes(32, 32, 4096, 8, sliding_window=4096, max_position_embeddings=32_768),
        f"{WINDOW}: its layers forget tokens beyond 4096",
    ),
    "gemma-2-2b": (sizes(26, 8, 2304, 4, head_dim=256, sliding_window=4096), WINDOW),
    "gemma-3-1b": (
        sizes(26, 4, 1152, 1, head_dim=256, sliding_window=512, sliding_window_pattern=6),
        WINDOW,
    ),
    "gpt-oss-20b": (
        sizes(24, 64, 2880, 8, head_dim=64, sliding_window=128)
        | {"layer_types": ["sliding_attention", "full_attention"] * 12},
        f"{WINDOW}: its layers forget tokens beyond 128",
    ),
    "Llama-4-Scout": (
        {"text_config": sizes(48, 40, 5120, 8, head_dim=128, attention_chunk_size=8192)},
        f"{WINDOW}: its layers forget tokens beyond 8192",
    ),
    "Llama-4 as it is saved": (
        sizes(48, 40, 5120, 8, attention_chunk_size=8192, max_position_embeddings=8192)
        | {"layer_types": ["chunked_attention", "full_attention"] * 24},
        WINDOW,
    ),
    "recurrentgemma-2b": (
        sizes(26, 10, 2560, 1, attention_window_size=2048)
        | {"block_types": ["recurrent", "recurrent", "attention"]},
        WINDOW,
    ),
    "Jamba-v0.1": (
        sizes(32, 32, 4096, 8, attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16),
        f"{STATE} of each token \\(its config names attn_layer_period",
    ),
    "Bamba-9B": (sizes(32, 32, 4096, 8, attn_layer_indices=[9, 18, 27]), STATE),
    "mamba-130m": ({"num_hidden_layers": 24, "hidden_size": 768, "state_size": 16}, STATE),
    "Falcon-H1": (sizes(36, 8, 2048, 2, head_dim=128, mamba_d_ssm=2048), STATE),
    "Nemotron-H": (sizes(52, 32, 4096, 8, hybrid_override_pattern="M-M*-"), STATE),
    "Qwen3-Next": (
        sizes(48, 16, 2048, 2, head_dim=256, full_attention_interval=4, linear_num_key_heads=16),
        STATE,
    ),
    "MiniMax-Text-01": (sizes(80, 64, 6144, 8, attn_type_list=[0, 0, 1]), STATE),
    "LFM2-1.2B": (sizes(16, 32, 2048, 8, conv_L_cache=3, full_attn_idxs=[2, 5]), STATE),
    "granite-4.0-h": (
        sizes(40, 12, 1536, 4, mamba_d_state=128, layer_types=["mamba"] * 39 + ["attention"]),
        "has layers of mamba",
    ),
    "Llama-3.2-11B-Vision": (
        {"text_config": sizes(40, 32, 4096, 8, cross_attention_layers=[3, 8])},
        "attend to an image",
    ),
    "gemma-3n": (sizes(30, 8, 2048, 2, num_kv_shared_layers=10), "shares K and V between layers"),
    "Hunyuan-Large": (sizes(64, 80, 6400, 8, use_cla=True), "shares K and V between layers"),
    "DeciLM-7B": (
        sizes(32, 32, 4096, num_key_value_heads_per_layer=[4, 4, 2]),
        "layers of different shapes",
    ),
    "Nemotron-51B": (
        sizes(80, 64, 8192, block_configs=[{"attention": {}}]) | {"num_key_value_heads": None},
        "layers of different shapes",
    ),
    "MiniMax-M3": (
        sizes(60, 64, 6144, 4, head_dim=128, index_head_dim=128),
        "an index of each token",
    ),
    "V of another width": (sizes(48, 64, 4096, 4, head_dim=192, v_head_dim=128), "has V of 128"),
    "V of another width than the quotient": (
        sizes(48, 64, 4096, 4, v_head_dim=128),
        "has V of 128 numbers a head beside K of 64",
    ),
    "bert-base": (sizes(12, 12, 768, architectures=["BertForMaskedLM"]), "is an encoder"),
    "Pixtral-12B": (
        {"text_config": {"num_hidden_layers": 40, "num_attention_heads": 32, "hidden_size": 5120}},
        "text_config does not tell num_key_value_heads",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_keeps_another_cache_is_refused_by_name_and_reason(name):
    config, words = REFUSED[name]
    with pytest.raises(ConfigError, match=words) as error:
        shape_of(name, config)
    assert str(error.value).startswith(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "key",
    [
        *("mamba_d_state", "ssm_cfg", "linear_attn_config", "linear_num_value_heads", "lru_width"),
        *("linear_conv_kernel_dim", "conv_L_cache", "state_size", "rescale_every", "block_types"),
        *("attn_layer_period", "attn_layer_indices", "attn_type_list", "full_attention_interval"),
        *("full_attn_idxs", "hybrid_override_pattern", "hybrid_layer_pattern"),
        *("sliding_window", "sliding_window_size", "attention_chunk_size", "window_size"),
        *("attention_window_size", "cross_attention_layers", "cross_layer_interval"),
        *("num_kv_shared_layers", "use_cla", "kv_reuse_group", "num_key_value_heads_per_layer"),
        *("block_configs", "per_layer_config", "index_head_dim", "indexer_head_dim", "v_head_dim"),
    ],
)
def test_each_word_for_another_cache_is_enough_and_nothing_where_it_is_null(key):
    plain = sizes(32, 32, 4096, 8, head_dim=128)
    with pytest.raises(ConfigError, match=r"^model "):
        shape_of("model", plain | {key: 4})
    assert shape_of("model", plain | {key: None}).layers == 32


#   name: config, layers, KV heads, head_dim
COUNTED = {
    "Qwen3-0.6B": (sizes(28, 16, 1024, 8, head_dim=128), 28, 8, 128),
    "gemma-7b": (sizes(28, 16, 3072, 16, head_dim=256), 28, 16, 256),
    "a part of gemma": ({"text_config": sizes(18, 8, 2048, 1, model_type="gemma")}, 18, 1, 256),
    "a part of qwen3": ({"llm_config": sizes(28, 16, 1024, 8, model_type="qwen3")}, 28, 8, 128),
    "V of the same width": (sizes(48, 64, 8192, 4, v_head_dim=128), 48, 4, 128),
    "DeepSeek-VL": ({"language_config": sizes(30, 32, 4096, 32)}, 30, 32, 128),
    "Mistral-7B-v0.3": (sizes(32, 32, 4096, 8, sliding_window=None), 32, 8, 128),
    "Qwen2.5-0.5B": (
        sizes(24, 14, 896, 2, sliding_window=32_768, use_sliding_window=False),
        *(24, 2, 64),
    ),
    "Phi-3.5-mini": (
        sizes(32, 32, 3072, 32, sliding_window=262_144, max_position_embeddings=131_072),
        *(32, 32, 96),
    ),
    "granite-4.0-micro": (
        sizes(40, 40, 2560, 8, mamba_d_state=256, layer_types=["attention"] * 40),
        *(40, 8, 64),
    ),
    "chatglm3-6b": (
        {"num_layers": 28, "num_attention_heads": 32, "hidden_size": 4096, "kv_channels": 128}
        | {"multi_query_attention": True, "multi_query_group_num": 2},
        *(28, 2, 128),
    ),
    "dbrx": (
        {"n_layers": 40, "n_heads": 48, "d_model": 6144, "attn_config": {"kv_n_heads": 8}},
        *(40, 8, 128),
    ),
    "mpt-7b": (
        {"n_layers": 32, "n_heads": 32, "d_model": 4096}
        | {"attn_config": {"attn_type": "multihead_attention"}},
        *(32, 32, 128),
    ),
    "mpt, multi-query": (
        {"n_layers": 32, "n_heads": 32, "d_model": 4096}
        | {"attn_config": {"attn_type": "multiquery_attention"}},
        *(32, 1, 128),
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_keeps_k_and_v_of_all_tokens_is_counted(name):
    config, *expected = COUNTED[name]
    shape = shape_of(name, config)
    assert [shape.layers, shape.kv_heads, shape.head_dim] == expected


def test_a_window_of_one_token_less_than_the_longest_sequence_is_one():
    config = sizes(32, 32, 3072, 32, sliding_window=4095, max_position_embeddings=4096)
    with pytest.raises(ConfigError, match="beyond 4095"):
        shape_of("phi", config)
    assert shape_of("phi", config | {"sliding_window": 4096}).layers == 32


def test_the_dtype_of_the_whole_is_the_parts_in_old_and_new_words():
    part = {"text_config": sizes(2, 4, 64, 4)}
    for key in ("torch_dtype", "dtype"):
        assert shape_of("vision", part | {key: "float32"}).dtype == "float32"


@pytest.mark.parametrize("model_type", HEAD_DIMS)
def test_a_head_dim_that_may_be_left_out_is_the_default_of_transformers_class(model_type):
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    config = auto.CONFIG_MAPPING[model_type]()
    left_out = {key: value for key, value in config.to_dict().items() if key != "head_dim"}
    assert shape_of("left out", left_out).head_dim == config.head_dim


# Families whose every layer keeps K and V of all tokens, and such as have sliding, hybrid or latent ones.
FULL = ("llama", "qwen2", "qwen3", "gemma", "mixtral", "olmo2", "glm4", "gpt_neox", "smollm3")
OTHERS = ("gemma2", "gemma3_text", "gpt_oss", "cohere2", "jamba", "bamba", "qwen3_next", "mamba")


@pytest.mark.parametrize("model_type", [*FULL, *OTHERS, "deepseek_v3", "recurrent_gemma"])
def test_what_is_counted_is_what_transformers_own_cache_has(model_type):
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    config = auto.CONFIG_MAPPING[model_type]().to_dict()
    # Published configs of older models do not have this list.
    config.pop("layer_types", None)
    if model_type not in FULL:
        with pytest.raises(ConfigError):
            shape_of(model_type, config)
        return
    from transformers import DynamicCache

    cache = DynamicCache(config=auto.CONFIG_MAPPING[model_type]())
    kinds = {type(layer).__name__ for layer in cache.layers}
    assert (kinds, len(cache.layers)) == ({"DynamicLayer"}, shape_of(model_type, config).layers)
