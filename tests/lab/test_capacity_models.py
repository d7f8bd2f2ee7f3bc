"""Shapes from configs: grouped and multi-query heads, odd names, and caches that are another kind."""

import json
import subprocess
import sys

import pytest

from engine.core.config import ConfigError
from engine.lab.model_shapes import PUBLIC_MODELS, ModelShape, model_shape, shape_of

LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "float16",
}


def dims(shape: ModelShape) -> tuple[int, int, int]:
    return shape.layers, shape.kv_heads, shape.head_dim


def test_grouped_heads_and_a_head_dim_from_the_hidden_size():
    shape = shape_of("llama", LLAMA)
    assert dims(shape) == (32, 8, 128)
    assert shape.dtype == "float16"
    assert shape.bytes_per_token("float16") == 131_072
    assert shape.attention == "grouped-query: 32 query heads share 8 KV heads"


def test_without_key_value_heads_every_query_head_has_its_own():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    shape = shape_of("old", config)
    assert (shape.kv_heads, shape.bytes_per_token("float16")) == (32, 524_288)
    assert shape.attention.startswith("multi-head")
    assert shape_of("null", {**LLAMA, "num_key_value_heads": None}).kv_heads == 32


def test_a_head_dim_of_its_own_comes_before_the_hidden_size():
    assert shape_of("qwen3", {**LLAMA, "hidden_size": 1024, "head_dim": 128}).head_dim == 128
    assert shape_of("null", {**LLAMA, "head_dim": None}).head_dim == 128


def test_multi_query_models_have_one_kv_head():
    falcon = {"n_layer": 32, "n_head": 71, "hidden_size": 4544, "multi_query": True}
    assert dims(shape_of("falcon-7b", {**falcon, "num_kv_heads": 71})) == (32, 1, 64)
    newer = {**falcon, "n_head": 128, "hidden_size": 8192, "new_decoder_architecture": True}
    assert shape_of("falcon-40b", {**newer, "num_kv_heads": 8}).kv_heads == 8
    assert model_shape("gemma-2b").attention == "multi-query: 8 query heads share 1 KV head"


def test_names_of_older_architectures_are_known():
    gpt2 = {"n_layer": 12, "n_head": 12, "n_embd": 768}
    assert dims(shape_of("gpt2", gpt2)) == (12, 12, 64)


def test_the_text_part_of_a_model_with_images_is_read():
    shape = shape_of("vision", {"text_config": LLAMA, "torch_dtype": "float32", "hidden_size": 7})
    assert (dims(shape), shape.dtype) == ((32, 8, 128), "float16")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kv_lora_rank": 512}, r"deepseek uses multi-head latent attention \(MLA\)"),
        ({"sliding_window": 4096}, "deepseek uses sliding-window attention"),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            "deepseek uses sliding-window attention",
        ),
        ({"layer_types": ["linear_attention"]}, "deepseek has layers of linear_attention"),
        ({"layers_block_type": ["mamba", "attention"]}, "deepseek has layers of mamba"),
        ({"is_encoder_decoder": True}, "deepseek is an encoder-decoder"),
        ({"num_kv_shared_layers": 10}, "shares K and V between layers .num_kv_shared_layers is 10"),
        (
            {"text_config": {**LLAMA, "num_key_value_heads": None}},
            "does not tell num_key_value_heads",
        ),
        ({"num_hidden_layers": None}, "its config has no num_hidden_layers"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers is 'many'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": "many"}, "num_attention_heads is 'many'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 5}, "32 query heads cannot share 5 KV heads"),
        ({"num_key_value_heads": 1.5}, "num_key_value_heads is 1.5"),
        ({"hidden_size": 4097}, "does not divide by 32 heads"),
        ({"text_config": 3}, "text_config is 3"),
    ],
)
def test_other_caches_and_broken_configs_are_refused_by_name(changed, words):
    with pytest.raises(ConfigError, match=words) as error:
        shape_of("deepseek", {**LLAMA, **changed})
    assert str(error.value).startswith("deepseek")
    assert "\n" not in str(error.value)


def test_a_window_that_is_not_used_does_not_matter():
    qwen = {**LLAMA, "sliding_window": 32_768, "use_sliding_window": False}
    assert dims(shape_of("qwen2", qwen)) == (32, 8, 128)
    mixed = {**LLAMA, "sliding_window": 32_768, "layer_types": ["full_attention"] * 32}
    assert dims(shape_of("qwen2", mixed)) == (32, 8, 128)


def test_a_folder_gives_its_shape_and_the_size_of_its_weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert model_shape(str(tmp_path)).weight_bytes is None
    (tmp_path / "model-1.safetensors").write_bytes(b"x" * 70)
    (tmp_path / "model-2.safetensors").write_bytes(b"x" * 30)
    shape = model_shape(str(tmp_path))
    assert (dims(shape), shape.weight_bytes, shape.name) == ((32, 8, 128), 100, tmp_path.name)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), ("[1]", "no JSON object"), ("{", "no JSON object")],
)
def test_a_folder_without_a_config_is_refused_by_path(tmp_path, content, words):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=words) as error:
        model_shape(str(tmp_path))
    assert str(tmp_path / "config.json") in str(error.value)


@pytest.mark.parametrize(
    "name", ["Qwen2.5-0.5B", "qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B/"]
)
def test_a_public_model_is_found_however_its_name_is_written(name):
    assert model_shape(name).name == "Qwen2.5-0.5B"


def test_an_unknown_name_is_told_all_known_ones():
    with pytest.raises(ConfigError, match=r"Qwen2\.5-0\.5B, Qwen2\.5-7B"):
        model_shape("Qwen2.5-0.5C")
    with pytest.raises(ConfigError, match="not in the table"):
        model_shape("")


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("SmolLM2-135M-Instruct", 23_040),
        ("Qwen2.5-0.5B", 12_288),
        ("Llama-2-7b-hf", 524_288),
        ("Llama-3.1-8B-Instruct", 131_072),
        ("Llama-3.1-70B", 327_680),
        ("Mistral-7B-Instruct-v0.3", 131_072),
        ("gemma-2b-it", 18_432),
    ],
)
def test_bytes_a_token_of_well_known_models_in_16_bit(name, per_token):
    assert model_shape(name).bytes_per_token("bfloat16") == per_token
    assert model_shape(name).bytes_per_token("float32") == 2 * per_token
    assert 2 * model_shape(name).bytes_per_token("fp8") == per_token


def test_every_public_model_says_where_its_numbers_come_from_and_has_weights_of_its_size():
    assert len({shape.name for shape in PUBLIC_MODELS}) == len(PUBLIC_MODELS)
    for shape in PUBLIC_MODELS:
        assert shape.source == f"config.json of {shape.source.split()[-1]}"
        assert shape.source.removesuffix("-hf").endswith(f"/{shape.name}")
        size = next((part for part in shape.name.split("-") if part.lower()[-1] in "bm"), None)
        scale = {"b": 1e9, "m": 1e6}[size[-1].lower()]
        assert shape.weight_bytes == pytest.approx(2 * float(size[:-1]) * scale, rel=0.3)


#   name: hidden size, inner size, vocabulary, tied head, biases of Q, K and V, norms of Q and K
SIZES = {
    "SmolLM2-135M": (576, 1536, 49_152, True, False, False),
    "Qwen2.5-0.5B": (896, 4864, 151_936, True, True, False),
    "Qwen2.5-7B": (3584, 18_944, 152_064, False, True, False),
    "Qwen2.5-72B": (8192, 29_568, 152_064, False, True, False),
    "Qwen3-0.6B": (1024, 3072, 151_936, True, False, True),
    "Qwen3-8B": (4096, 12_288, 151_936, False, False, True),
    "Qwen3-32B": (5120, 25_600, 151_936, False, False, True),
    "TinyLlama-1.1B-Chat-v1.0": (2048, 5632, 32_000, False, False, False),
    "Llama-2-7b": (4096, 11_008, 32_000, False, False, False),
    "Llama-2-70b": (8192, 28_672, 32_000, False, False, False),
    "Llama-3.2-1B": (2048, 8192, 128_256, True, False, False),
    "Llama-3.2-3B": (3072, 8192, 128_256, True, False, False),
    "Llama-3.1-8B": (4096, 14_336, 128_256, False, False, False),
    "Llama-3.1-70B": (8192, 28_672, 128_256, False, False, False),
    "Mistral-7B-v0.3": (4096, 14_336, 32_768, False, False, False),
    "gemma-2b": (2048, 16_384, 256_000, True, False, False),
}


@pytest.mark.parametrize("shape", PUBLIC_MODELS, ids=lambda shape: shape.name)
def test_the_weights_of_a_public_model_are_those_of_its_matrices(shape):
    """Of the K and V heads that are cached, and all others: a wrong row does not add up."""
    hidden, inner, vocabulary, tied, biased, normed = SIZES[shape.name]
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner + 2 * hidden
    layer += (queries + 2 * keys) * biased + 2 * shape.head_dim * normed
    embeddings = vocabulary * hidden * (1 if tied else 2)
    assert shape.weight_bytes == 2 * (shape.layers * layer + embeddings + hidden)


@pytest.mark.parametrize(
    ("name", "kind"), [("Llama-2-7b", "LlamaConfig"), ("Mistral-7B-v0.3", "MistralConfig")]
)
def test_a_public_model_that_transformers_has_by_default_is_the_same_there(name, kind):
    default = getattr(pytest.importorskip("transformers"), kind)()
    found = shape_of(name, {**default.to_dict(), "sliding_window": None})
    shape = model_shape(name)
    assert (dims(found), found.heads) == (dims(shape), shape.heads)


def test_an_unknown_dtype_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match="dtype int3 is not known: use float64, float32"):
        model_shape("Qwen2.5-0.5B").bytes_per_token("int3")


def test_the_lab_reads_shapes_where_torch_and_transformers_are_not_installed():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from engine.lab.model_shapes import model_shape\n"
        "import engine.lab.reconciliation\n"
        "print(model_shape('Qwen2.5-0.5B').layers)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "24\n"
