"""`glasspool serve`: load, size the pool, say so, serve until told to stop."""

import logging
import time
import uuid

import msgspec
import torch
import uvicorn

from engine import __version__
from engine.core.config import ConfigError, EngineConfig
from engine.events.records import SCHEMA_VERSION, Header, Producer
from engine.llm import LLMEngine
from engine.model.runner import ModelRunner
from engine.model.weights import LoadedModel, load_model
from engine.service.app import create_app
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.ports import check_port
from engine.service.recorder import Recorder
from engine.service.settings import ServeSettings, engine_config, pool_lines

log = logging.getLogger("glasspool")
KNOWS = [
    "physical_blocks",
    "ref_counts",
    "fills",
    "recompute",
    "latencies",
    "durations",
    "queues",
]


def serve(settings: ServeSettings) -> None:
    """Run until SIGINT or SIGTERM. Raises ConfigError and ModelError before anything is served."""
    check_port(settings.host, settings.port, "--port")
    context = build_context(settings)
    log.info("ready on http://%s:%d", settings.host, settings.port)
    uvicorn.run(
        create_app(context),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )


def build_context(settings: ServeSettings) -> ServiceContext:
    """Everything that the routes need, with the engine's thread not yet started."""
    model = load_model(settings.model, _dtype(settings.dtype), log.info)
    config = engine_config(settings, model)
    for line in pool_lines(config, model.bytes_per_token):
        log.info(line)
    runner = ModelRunner(
        model.model,
        config.num_blocks,
        config.block_size,
        model.num_layers,
        model.num_kv_heads,
        model.head_dim,
    )
    engine = LLMEngine(
        config,
        runner,
        eos_token_ids=model.eos_token_ids,
        token_text=_token_text(model) if settings.record_text else None,
    )
    header = _header(settings, config, model)
    recorder = None
    if settings.record is not None:
        try:
            recorder = Recorder(settings.record, header, engine.keyframe())
        except OSError as error:
            raise ConfigError(
                f"can't record to {settings.record}: {error.strerror}; choose another file"
            ) from None
        log.info("recording to %s", settings.record)
    event_log = EventLog()
    return ServiceContext(
        EngineThread(engine, event_log, recorder), event_log, header, model.tokenizer
    )


def _token_text(model: LoadedModel):
    """Token id to text, each id decoded once."""
    texts: dict[int, str] = {}

    def text(token: int) -> str:
        if token not in texts:
            texts[token] = model.tokenizer.decode([token])
        return texts[token]

    return text


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    dtype = getattr(torch, name, None)
    if dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        raise ConfigError(f"dtype {name} is not known: use float32, bfloat16, float16 or float64")
    return dtype


def _header(settings: ServeSettings, config: EngineConfig, model: LoadedModel) -> Header:
    return Header(
        schema_version=SCHEMA_VERSION,
        producer=Producer("glasspool", __version__),
        knows=KNOWS,
        engine_id=uuid.uuid4().hex[:12],
        engine_name=settings.engine_name,
        model=model.name,
        dtype=model.dtype,
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        bytes_per_block=model.bytes_per_token * config.block_size,
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        config=msgspec.structs.asdict(config),
        wall_time=time.time(),
        monotonic=time.monotonic(),
        redacted=["token_ids"] if settings.record_text else ["token_ids", "text"],
    )
