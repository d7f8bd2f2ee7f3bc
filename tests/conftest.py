"""Fixtures that several folders share: a tiny model on disk, a started engine, a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import EngineServer

TINY_VOCABULARY = 300
TINY_CHAT_TEMPLATE = """\
{%- for m in messages -%}
{%- if loop.index0 and m.role == messages[loop.index0 - 1].role -%}
{{ raise_exception('roles must alternate') }}
{%- endif -%}
{{ '<|260|>' + m.role + ':' + m.content + '<|261|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|260|>' }}{%- endif -%}
"""


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A folder with a random Llama of a few thousand weights, and a byte-level tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=TINY_VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=256,
        pad_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    for number in range(len(alphabet), TINY_VOCABULARY):
        vocabulary[f"<|{number}|>"] = number
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|256|>")
    fast.chat_template = TINY_CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def engine_server(tiny_model) -> Iterator[EngineServer]:
    """`glasspool serve` with the tiny model on a pool of 24 blocks, shared by the tests."""
    with EngineServer("--model", str(tiny_model), "--num-gpu-blocks-override", "24") as server:
        yield server


def needs(program: str) -> pytest.MarkDecorator:
    """Skip, by name, where a program of the system is missing."""
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"{program} is not installed on this machine"
    )
