"""What is compared on the page "Lab": its inputs, kept while other pages are shown."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from engine.lab import SHAPES

SAMPLE, FIXED, UNIFORM, LOGNORMAL, FILE = (
    "The sample: median 245, long tail",
    "All the same",
    "Uniform",
    "Lognormal",
    "A file",
)
KINDS = (SAMPLE, FIXED, UNIFORM, LOGNORMAL, FILE)
BLOCK_SIZES = (1, 4, 8, 16, 32, 64, 128, 256)
MODEL_LENGTHS = (1024, 2048, 4096, 8192, 16_384, 32_768)
MEMORIES = (4096, 8192, 16_384, 32_768, 65_536)
MOST_SEQUENCES = 2_000
FIRST: dict[str, Any] = {
    "lab-kind": SAMPLE,
    "lab-count": MOST_SEQUENCES,
    "lab-seed": 0,
    "lab-max-model-len": 4096,
    "lab-block-size": 16,
    "lab-model": "Llama-3-8B",
    "lab-prompt": 100,
    "lab-output": 400,
    "lab-prompt-range": (16, 512),
    "lab-output-range": (16, 1024),
    "lab-prompt-mean": 161,
    "lab-output-mean": 338,
    "lab-sigma": 1.0,
    "lab-path": "",
    "lab-memory": 16_384,
    "lab-every": 10.0,
    "lab-requests": 500,
}
"""What the inputs begin with, by their keys."""
_KEPT = "lab-kept"


@dataclass(frozen=True)
class Drawn:
    """lengths: as engine.lab.read_lengths takes them; empty where a file is yet to be named."""

    lengths: str
    count: int
    seed: int
    max_model_len: int


@dataclass(frozen=True)
class Choices:
    """Which lengths, and what the paged and the mapped allocator are made with."""

    drawn: Drawn
    block_size: int
    model: str


@dataclass(frozen=True)
class Traffic:
    """memory: slots. every: steps between two arrivals. requests: how many of the sequences come."""

    memory: int
    every: float
    requests: int


def _kept() -> dict[str, Any]:
    """What was chosen last, by key.

    Each input begins with it, as a widget's own state is dropped while another page is shown. Given
    as the input's value, not as session state: that reaches the browser once, and is lost where a
    second run comes before the input is drawn.
    """
    return st.session_state.setdefault(_KEPT, dict(FIRST))


def _keep() -> None:
    kept = _kept()
    kept.update({key: st.session_state[key] for key in kept if key in st.session_state})


def choose() -> Choices:
    """Draw the inputs that both forms share."""
    kept = _kept()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        kind = st.selectbox(
            "Lengths",
            KINDS,
            index=KINDS.index(kept["lab-kind"]),
            key="lab-kind",
            on_change=_keep,
            width=270,
            help="Tokens that each sequence stores in the end: its prompt and its output.",
        )
        lengths = _lengths(kind)
        st.number_input(
            "Sequences",
            1,
            MOST_SEQUENCES,
            value=kept["lab-count"],
            key="lab-count",
            on_change=_keep,
            width=120,
            help="How many lengths are drawn, or read from the file's beginning.",
        )
        st.number_input(
            "Seed",
            0,
            10_000,
            value=kept["lab-seed"],
            key="lab-seed",
            on_change=_keep,
            width=100,
            help="Another seed, other lengths and arrivals. The same seed, the same ones.",
        )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(
            "max_model_len",
            MODEL_LENGTHS,
            index=MODEL_LENGTHS.index(kept["lab-max-model-len"]),
            key="lab-max-model-len",
            on_change=_keep,
            width=130,
            format_func=lambda tokens: f"{tokens:,}",
            help="The most tokens of one sequence: what the naive allocator takes for each.",
        )
        st.selectbox(
            "Block size",
            BLOCK_SIZES,
            index=BLOCK_SIZES.index(kept["lab-block-size"]),
            key="lab-block-size",
            on_change=_keep,
            width=110,
            help="Slots in a block of the paged allocator.",
        )
        st.selectbox(
            "Model, for 2 MiB pages",
            list(SHAPES),
            index=list(SHAPES).index(kept["lab-model"]),
            key="lab-model",
            on_change=_keep,
            width=190,
            help="How many tokens a page of the mapped allocator holds follows from the model's shape.",
        )
    state = st.session_state
    drawn = Drawn(lengths, state["lab-count"], state["lab-seed"], state["lab-max-model-len"])
    return Choices(drawn, state["lab-block-size"], state["lab-model"])


def choose_traffic() -> Traffic:
    """Draw the inputs of the dynamic form."""
    kept = _kept()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        memory = st.selectbox(
            "Memory (slots)",
            MEMORIES,
            index=MEMORIES.index(kept["lab-memory"]),
            key="lab-memory",
            on_change=_keep,
            width=150,
            format_func=lambda slots: f"{slots:,}",
            help="Room for so many tokens, the same for each allocator.",
        )
        every = st.number_input(
            "Steps between arrivals",
            0.5,
            1000.0,
            step=1.0,
            format="%.1f",
            value=kept["lab-every"],
            key="lab-every",
            on_change=_keep,
            width=170,
            help="On average. In a step, each running sequence stores one more token.",
        )
        requests = st.number_input(
            "Requests",
            1,
            MOST_SEQUENCES,
            value=kept["lab-requests"],
            key="lab-requests",
            on_change=_keep,
            width=120,
            help="So many of the sequences come and leave, the first ones.",
        )
    return Traffic(memory, float(every), int(requests))


def _lengths(kind: str) -> str:
    """The inputs of this kind of lengths, as one line that the library reads."""
    if kind == FIXED:
        prompt = _number("Prompt", "lab-prompt")
        output = _number("Output", "lab-output")
        return f"fixed:{prompt},{output}"
    if kind == UNIFORM:
        prompt = _range("Prompt", "lab-prompt-range")
        output = _range("Output", "lab-output-range")
        return f"uniform:{prompt},{output}"
    if kind == LOGNORMAL:
        prompt = _number("Mean prompt", "lab-prompt-mean")
        output = _number("Mean output", "lab-output-mean")
        sigma = st.number_input(
            "Sigma",
            0.0,
            2.0,
            value=_kept()["lab-sigma"],
            step=0.1,
            key="lab-sigma",
            on_change=_keep,
            width=100,
            help="Deviation of the logarithm: 0 gives the means, 1 a long tail.",
        )
        return f"lognormal:{prompt},{output},{sigma}"
    if kind == FILE:
        return st.text_input(
            "File on the dashboard's machine",
            value=_kept()["lab-path"],
            key="lab-path",
            on_change=_keep,
            width=330,
            placeholder="/path/to/trace.csv, .jsonl or .jsonl.zst",
            help="A public trace (Azure LLM inference, BurstGPT, Mooncake), or a recorded run of "
            "Glasspool: the lengths of its finished sequences.",
        ).strip()
    return "sample"


def _number(label: str, key: str) -> int:
    return st.number_input(label, 1, 4096, _kept()[key], key=key, on_change=_keep, width=110)


def _range(label: str, key: str) -> str:
    least, most = st.slider(label, 1, 4096, _kept()[key], key=key, on_change=_keep, width=220)
    return f"{least}-{most}"
