"""Runs a scenario on the real model, in this process, and writes its trace.

Requests come before given steps of the engine and not at given times, so that every recording has the
same block events; only its durations and the salt of its hashes are of the day.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.core.sequence import Request
from engine.events.codec import encode
from engine.events.records import Step
from engine.events.trace import KeyframePolicy, TraceWriter
from engine.llm import LLMEngine
from engine.scenarios.scenario import Ask, Scenario
from engine.service.parts import Parts
from engine.service.server import header_of, make_engine
from engine.service.settings import ServeSettings, engine_config


def record(
    scenario: Scenario,
    settings: ServeSettings,
    parts: Parts,
    folder: Path,
    tell: Callable[[int], None],
) -> Path:
    """Write `folder`/NAME.jsonl.zst and return it. `tell` is called with the number of each step.

    Raises ConfigError, RequestError or OSError where the scenario cannot run as it is written.
    """
    settings = dataclasses.replace(settings, **scenario.sizes)
    config = engine_config(settings, parts)
    engine = make_engine(settings, config, parts)
    header = header_of(settings, config, parts)
    path = folder / scenario.file_name
    writer = TraceWriter(path, header, engine.keyframe())
    policy = KeyframePolicy(config.num_blocks)

    def write(record: Step) -> None:
        writer.write(encode(record))
        policy.count(len(record.events))

    engine.on_record = write
    try:
        for step in _played(engine, scenario.asks, parts):
            tell(step)
            if policy.due:
                writer.write_keyframe(engine.keyframe())
                policy.restart()
    finally:
        writer.close()
    return path


def _played(engine: LLMEngine, asks: tuple[Ask, ...], parts: Parts) -> Iterator[int]:
    """Step the engine through all asks; yields after each step."""
    told: dict[int, Request] = {}
    open_asks = dict(enumerate(asks))
    turn = 0
    while open_asks or engine.has_work:
        ready = [number for number, ask in open_asks.items() if _may_come(ask, told)]
        if ready and not engine.has_work:
            turn = max(turn, min(open_asks[number].at for number in ready))
        for number in ready:
            if open_asks[number].at <= turn:
                told[number] = _request(number, open_asks.pop(number), told, parts, engine.clock())
                engine.add(told[number])
        engine.step()
        yield turn
        turn += 1


def _may_come(ask: Ask, told: dict[int, Request]) -> bool:
    if ask.follows is None:
        return True
    return ask.follows in told and told[ask.follows].finish_reason is not None


def _request(number: int, ask: Ask, told: dict[int, Request], parts: Parts, now: float) -> Request:
    before = [] if ask.follows is None else told[ask.follows].sequences[0].tokens
    prompt = [*before, *parts.tokenizer.encode(ask.prompt)]
    return Request(f"request-{number + 1}", prompt, ask.params, now)
