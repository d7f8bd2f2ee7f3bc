"""Runs of one source under several configurations, with their figures and, where asked, traces."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.core.config import ConfigError, EngineConfig
from engine.core.runner import StepCost
from engine.events.records import Header, Step
from engine.llm import LLMEngine
from engine.simulate.figures import Figures, FiguresFold
from engine.simulate.recorded import Recorded
from engine.simulate.recording import Anchor, RunRecorder, Shape, header_of
from engine.simulate.settings import Variation, configured
from engine.simulate.simulation import MALFORMED, Simulation
from engine.simulate.source import Source

RECORDED = "recorded"
"""The name of the run that was no simulation."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of one variation. `refusals`: how many requests were refused for which reason."""

    name: str
    changes: dict
    num_blocks: int
    block_size: int
    figures: Figures
    refusals: dict[str, int]
    first_refusal: str | None = None
    trace: str | None = None


class Scene(msgspec.Struct, frozen=True):
    """What all runs have in common."""

    source: Source
    config: EngineConfig
    cost: StepCost
    shape: Shape
    anchor: Anchor = Anchor()


def recorded_outcome(source: Recorded) -> Outcome:
    """What came of the recorded run itself, to hold the simulated ones against."""
    return Outcome(
        name=RECORDED,
        changes={},
        num_blocks=source.header.num_blocks,
        block_size=source.header.block_size,
        figures=source.figures,
        refusals={},
    )


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A simulation makes no rings but its requests, which it takes apart itself; looking for them in
    the objects of a full pool takes a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_no_garbage_collection()
def run_one(
    scene: Scene,
    variation: Variation,
    trace: Path | None = None,
    progress: Callable[[float], None] = lambda now: None,
) -> Outcome:
    """One run. Raises ConfigError for a configuration that cannot work or a file that can't be written.

    `progress` is told the simulated seconds that have passed.
    """
    config = configured(scene.config, variation.changes)
    start = scene.source.start
    simulation = Simulation(config, scene.cost, start)
    engine = simulation.engine
    fold = FiguresFold(start)
    recorder = None
    if trace is not None:
        described = ", ".join(filter(None, (scene.source.description, variation.name)))
        header = header_of(config, scene.cost, scene.shape, scene.anchor, described)
        recorder = _recorder(trace, header, engine)

    def on_record(record: Step) -> None:
        pool = engine.scheduler.pool
        active = pool.num_blocks - pool.num_free - pool.num_cached
        fold.add(record, active / pool.num_blocks, engine.tally.waits)
        if recorder is not None:
            recorder.add(record)

    engine.on_record = on_record
    simulation.run(scene.source.requests(variation.scale_rate), lambda now: progress(now - start))
    if recorder is not None:
        recorder.close()
    return Outcome(
        name=variation.name,
        changes=variation.changes,
        num_blocks=config.num_blocks,
        block_size=config.block_size,
        figures=fold.result(engine.tally.totals, simulation.refused[MALFORMED]),
        refusals=dict(simulation.refused),
        first_refusal=simulation.first_refusal,
        trace=None if trace is None else trace.name,
    )


def distinct(scene: Scene, variations: Iterable[Variation]) -> list[Variation]:
    """Those that differ from all before them. Raises ConfigError for a configuration that cannot work."""
    found = {}
    for variation in variations:
        config = configured(scene.config, variation.changes)
        found.setdefault((msgspec.structs.astuple(config), variation.scale_rate), variation)
    return list(found.values())


def _recorder(trace: Path, header: Header, engine: LLMEngine) -> RunRecorder:
    try:
        return RunRecorder(trace, header, engine)
    except OSError as error:
        raise ConfigError(
            f"can't write {trace}: {error.strerror}; choose another place with --out"
        ) from None
