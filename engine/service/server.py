"""`glasspool serve`: load, size the pool, say so, serve until told to stop."""

import logging
import time
import uuid
from collections.abc import Callable

import msgspec

from engine import __version__
from engine.core.config import ConfigError, EngineConfig
from engine.core.detokenizer import Detokenizer
from engine.core.memory_size import parse_bytes
from engine.core.sequence import Request
from engine.events.records import SCHEMA_VERSION, Header, Producer
from engine.llm import KNOWS, LLMEngine
from engine.service.app import create_app
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.parts import Parts, Tokenizer, model_free_parts
from engine.service.ports import base_url, check_port, is_loopback
from engine.service.recorder import Recording
from engine.service.settings import (
    NO_MODEL,
    ServeSettings,
    checked_api_key,
    engine_config,
    pool_lines,
)
from engine.service.shutdown import run_until_signal

log = logging.getLogger("glasspool")


def serve(settings: ServeSettings) -> None:
    """Run until SIGINT or SIGTERM. Raises ConfigError before anything is served."""
    check_port(settings.host, settings.port, "--port")
    api_key = checked_api_key(settings.api_key)
    if api_key is None and not is_loopback(settings.host):
        log.warning(
            "WARNING: listening on %s without an API key: everyone who reaches this port can use "
            "the engine and watch its requests; set --api-key or GLASSPOOL_API_KEY",
            settings.host,
        )
    context = build_context(settings)
    app = create_app(
        context,
        api_key=api_key,
        allowed_origins=settings.allowed_origins,
        events=settings.events,
    )
    if not settings.events:
        log.info("no events: /v1/events, /v1/pool and /metrics are off")
    log.info("ready on %s", base_url(settings.host, settings.port))
    run_until_signal(app, context, settings.host, settings.port, settings.shutdown_timeout)


def build_context(settings: ServeSettings) -> ServiceContext:
    """Everything that the routes need, with the engine's thread not yet started."""
    parts = _parts(settings)
    config = engine_config(settings, parts)
    for line in pool_lines(config, parts.bytes_per_token):
        log.info(line)
    engine = make_engine(settings, config, parts)
    header = header_of(settings, config, parts)
    event_log = EventLog()
    thread = EngineThread(engine, event_log)
    if settings.record is not None:
        _record(settings, thread, header)
    return ServiceContext(thread, event_log, header, parts.tokenizer)


def make_engine(settings: ServeSettings, config: EngineConfig, parts: Parts) -> LLMEngine:
    """The engine, with its caches allocated."""
    return LLMEngine(
        config,
        parts.make_runner(config),
        eos_token_ids=parts.eos_token_ids,
        token_text=_token_text(parts.tokenizer) if settings.record_text else None,
        new_detokenizer=_new_detokenizer(parts.tokenizer),
        events=settings.events,
    )


def _record(settings: ServeSettings, thread: EngineThread, header: Header) -> None:
    size = settings.record_max_size
    most = None if size is None else parse_bytes(size)
    if not settings.events:
        raise ConfigError("record does not go with no-events: there is nothing to record")
    try:
        thread.record(Recording(settings.record, most, settings.record_fsync), header)
    except OSError as error:
        raise ConfigError(
            f"can't record to {settings.record}: {error.strerror}; choose another file"
        ) from None
    log.info("recording to %s", settings.record)


def _parts(settings: ServeSettings) -> Parts:
    if settings.model == NO_MODEL:
        return model_free_parts()
    # Imported here: without a model the server runs where torch is not installed.
    from engine.service.model_parts import model_parts

    return model_parts(settings)


def _token_text(tokenizer: Tokenizer) -> Callable[[int], str]:
    """Token id to text, each id decoded once."""
    texts: dict[int, str] = {}

    def text(token: int) -> str:
        if token not in texts:
            texts[token] = tokenizer.decode([token])
        return texts[token]

    return text


def _new_detokenizer(tokenizer: Tokenizer) -> Callable[[Request], Detokenizer]:
    def decode(tokens: list[int]) -> str:
        return tokenizer.decode(tokens, skip_special_tokens=True)

    return lambda request: Detokenizer(decode, request.params.stop)


def header_of(settings: ServeSettings, config: EngineConfig, parts: Parts) -> Header:
    """What every reader of this engine's records must know first."""
    return Header(
        schema_version=SCHEMA_VERSION,
        producer=Producer("glasspool", __version__),
        knows=KNOWS,
        engine_id=uuid.uuid4().hex[:12],
        engine_name=settings.engine_name,
        model=parts.model_name,
        dtype=parts.dtype,
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        bytes_per_block=parts.bytes_per_token * config.block_size,
        num_layers=parts.num_layers,
        num_kv_heads=parts.num_kv_heads,
        head_dim=parts.head_dim,
        config={**msgspec.structs.asdict(config), "policy": str(config.policy)},
        wall_time=time.time(),
        monotonic=time.monotonic(),
        redacted=["token_ids"] if settings.record_text else ["token_ids", "text"],
    )
