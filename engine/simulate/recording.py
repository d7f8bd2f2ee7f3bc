"""A simulated run as an ordinary trace, marked as simulated."""

import hashlib
from pathlib import Path

import msgspec

from engine import __version__
from engine.core.config import EngineConfig
from engine.core.runner import StepCost
from engine.events.records import SCHEMA_VERSION, Header, Producer, Step
from engine.events.trace import KeyframePolicy, TraceWriter
from engine.llm import KNOWS, LLMEngine

EVENTS_PER_BLOCK = 2.0
"""Between keyframes. With half an event a block, as in a live recording, keyframes of a large pool would
be most of the trace and a third of the time of a simulated hour."""


class Shape(msgspec.Struct, frozen=True):
    """The model that the simulated engine stands for; zeros where none is meant."""

    model: str
    dtype: str = "none"
    bytes_per_token: int = 0
    num_layers: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0


class Anchor(msgspec.Struct, frozen=True):
    """Seconds since the epoch (`wall`) at `monotonic` seconds of the simulated clock."""

    wall: float = 0.0
    monotonic: float = 0.0


def header_of(
    config: EngineConfig, cost: StepCost, shape: Shape, anchor: Anchor, workload: str
) -> Header:
    """The header of a simulated run. The same for the same inputs and version of Glasspool.

    `workload` says in words what was asked; it stands in `config`, beside the cost of a step.
    """
    values = {
        **msgspec.structs.asdict(config),
        "policy": str(config.policy),
        **{f"cost_{name}": value for name, value in msgspec.structs.asdict(cost).items()},
        "workload": workload,
    }
    return Header(
        schema_version=SCHEMA_VERSION,
        producer=Producer("glasspool", __version__),
        knows=KNOWS,
        engine_id=hashlib.blake2b(msgspec.json.encode(values), digest_size=6).hexdigest(),
        engine_name="simulated",
        model=shape.model,
        dtype=shape.dtype,
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        bytes_per_block=shape.bytes_per_token * config.block_size,
        num_layers=shape.num_layers,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        config=values,
        wall_time=anchor.wall,
        monotonic=anchor.monotonic,
        redacted=["token_ids", "text"],
        simulated=True,
    )


class RunRecorder:
    """Writes each record of an engine to a trace, in the engine's own thread."""

    def __init__(self, path: Path, header: Header, engine: LLMEngine) -> None:
        """Begins the trace. Raises OSError where it can't be written."""
        self._engine = engine
        self._policy = KeyframePolicy(header.num_blocks, EVENTS_PER_BLOCK)
        self._writer = TraceWriter(path, header, engine.keyframe())

    def add(self, record: Step) -> None:
        """Write a record, right after its step."""
        self._writer.write_record(record)
        self._policy.count(len(record.events))
        if self._policy.due:
            self._writer.write_keyframe(self._engine.keyframe())
            self._policy.restart()

    def close(self) -> None:
        self._writer.close()
