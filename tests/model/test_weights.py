import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, T5Config

from engine.model.weights import ModelError, load_model


def test_an_unknown_model_is_one_line_with_its_name(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="model no-such/model can't be loaded") as caught:
        load_model("no-such/model", None, print)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (T5Config(), "encoder-decoder"),
        (MistralConfig(sliding_window=128), "sliding-window"),
        (Qwen2Config(use_sliding_window=True, max_window_layers=2), "sliding-window"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_by_name(tmp_path, config, words):
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=words):
        load_model(str(tmp_path), None, print)


def test_a_folder_without_weights_is_refused(tmp_path):
    LlamaConfig().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="can't be loaded"):
        load_model(str(tmp_path), None, print)


def test_bytes_per_token_counts_k_and_v_of_all_layers(tiny_model):
    loaded = load_model(str(tiny_model), torch.float32, print)
    assert loaded.bytes_per_token == 2 * 2 * 2 * 8 * 4
