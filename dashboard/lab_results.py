"""The lab's results for the page, computed once for each choice, whoever asks.

They are frozen, so all sessions share them as they are. `changed` tells the versions of a file of
lengths apart.
"""

from pathlib import Path

import streamlit as st

from dashboard.lab_choices import Choices, Drawn, Traffic
from engine.lab import (
    SHAPES,
    DynamicRun,
    LabSettings,
    Measured,
    Sample,
    StaticUsage,
    SweepPoint,
    block_size_sweep,
    lab_requests,
    read_attention,
    read_lengths,
    run_all,
    static_usage,
)
from engine.lab.sweep import BLOCK_SIZES

ATTENTION = Path(__file__).parents[1] / "demo_data" / "attention-cpu.json"
"""Measured times that come with the project's repository; an installed package has none."""
MOST_TOKENS = 1_000_000
"""What the page stores, so that a choice takes seconds: blocks of one token take long."""


def changed_at(lengths: str) -> float:
    """When a file of lengths was last written; 0 for drawn ones."""
    try:
        return Path(lengths).stat().st_mtime
    except (OSError, ValueError):
        return 0.0


@st.cache_resource(show_spinner="Reading lengths …", max_entries=16)
def sample_of(drawn: Drawn, changed: float) -> Sample:
    """The lengths up to max_model_len. Raises ConfigError or TraceError where they can't be had."""
    return read_lengths(drawn.lengths, drawn.count, drawn.seed).up_to(drawn.max_model_len)


def stored_of(drawn: Drawn, changed: float) -> Sample:
    """Those of them that the page stores: the first ones, up to MOST_TOKENS."""
    return sample_of(drawn, changed).within(MOST_TOKENS)


def settings_of(choices: Choices) -> LabSettings:
    return LabSettings(choices.drawn.max_model_len, choices.block_size, SHAPES[choices.model])


@st.cache_resource(show_spinner="Storing all lengths at once …", max_entries=32)
def usages_of(choices: Choices, changed: float) -> list[StaticUsage]:
    return static_usage(stored_of(choices.drawn, changed).totals, settings_of(choices))


@st.cache_resource(show_spinner="Requests come and go …", max_entries=16)
def runs_of(choices: Choices, traffic: Traffic, changed: float) -> list[DynamicRun]:
    lengths = stored_of(choices.drawn, changed).lengths[: traffic.requests]
    coming = lab_requests(lengths, traffic.every, choices.drawn.seed)
    return run_all(coming, traffic.memory, settings_of(choices))


@st.cache_resource(show_spinner="Storing all lengths at each block size …", max_entries=16)
def sweep_of(drawn: Drawn, block_size: int, changed: float) -> list[SweepPoint]:
    """At the usual block sizes, and at the chosen one."""
    sizes = sorted({*BLOCK_SIZES, block_size})
    settings = LabSettings(drawn.max_model_len)
    return block_size_sweep(stored_of(drawn, changed).totals, settings, sizes)


@st.cache_resource(show_spinner=False)
def measured_times() -> Measured | None:
    """Attention's time over the block size; None where it was not measured."""
    return read_attention(ATTENTION) if ATTENTION.exists() else None
