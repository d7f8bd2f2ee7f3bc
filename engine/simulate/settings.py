"""The simulated engine's configuration: options by the names that users know, changes, variations."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from engine.core.config import ConfigError, EngineConfig, Policy

FIELDS = {
    "block_size": int,
    "num_gpu_blocks_override": int,
    "max_model_len": int,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "enable_prefix_caching": bool,
    "enable_chunked_prefill": bool,
    "long_prefill_token_threshold": int,
    "watermark": float,
    "max_num_queued_reqs": int,
    "scheduling_policy": Policy,
}
"""Options of the engine, and the type of their values."""
RATE = "scale_rate"
"""Not the engine's: how many times as often requests come."""
MOST_VARIATIONS = 64
_CORE_NAMES = {"num_gpu_blocks_override": "num_blocks", "scheduling_policy": "policy"}
_SWITCH = {"on": True, "off": False, "true": True, "false": False}


class Variation(msgspec.Struct, frozen=True):
    """What one run changes; nothing in the run that the others are compared with."""

    changes: dict[str, Any]

    @property
    def name(self) -> str:
        return ", ".join(f"{name}={_text(value)}" for name, value in self.changes.items()) or "base"

    @property
    def scale_rate(self) -> float:
        return self.changes.get(RATE, 1.0)


def configured(base: EngineConfig, changes: Mapping[str, Any]) -> EngineConfig:
    """`base` with changes by users' names. Raises ConfigError for a result that cannot work.

    Another block_size keeps the pool's memory: the number of blocks follows, unless it is given too.
    """
    fields = core_names({name: v for name, v in changes.items() if name != RATE})
    size = fields.get("block_size")
    if size is not None and size > 0 and "num_blocks" not in fields:
        fields["num_blocks"] = base.num_blocks * base.block_size // size
    return msgspec.structs.replace(base, **fields)


def core_names(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes by the names of EngineConfig."""
    return {_CORE_NAMES.get(name, name): value for name, value in changes.items()}


def variations(options: Iterable[str]) -> list[Variation]:
    """The base, then every combination of `field=value,value` options.

    Raises ConfigError for one that cannot be read, and for more than MOST_VARIATIONS.
    """
    factors: dict[str, list[Any]] = {}
    for option in options:
        name, equals, values = option.partition("=")
        if not equals or (name != RATE and name not in FIELDS):
            known = ", ".join((*FIELDS, RATE))
            raise ConfigError(f"--vary {option} is no field=value,value; fields are {known}")
        if name in factors:
            raise ConfigError(f"--vary {name} is given twice: put all its values into one")
        factors[name] = [_value(name, text.strip()) for text in values.split(",")]
    count = 1
    for values in factors.values():
        count *= len(values)
    if count > MOST_VARIATIONS:
        raise ConfigError(
            f"--vary asks for {count} runs, more than {MOST_VARIATIONS}: name fewer values"
        )
    products = itertools.product(*factors.values())
    varied = [Variation(dict(zip(factors, values, strict=True))) for values in products]
    return [Variation({}), *(variation for variation in varied if variation.changes)]


def _value(name: str, text: str) -> Any:
    kind = FIELDS.get(name, float)
    try:
        if kind is bool:
            return _SWITCH[text.lower()]
        value = kind(text)
    except (ValueError, KeyError):
        wanted = {bool: "on or off", int: "a whole number", float: "a number"}
        raise ConfigError(
            f"--vary {name}={text}: it is {wanted.get(kind, 'fcfs or priority')}"
        ) from None
    if name == RATE and not 0 < value < float("inf"):
        raise ConfigError(f"--vary {name}={text}: it is a number above 0")
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
