"""Amounts of memory as people write them."""

import re
from fractions import Fraction

from engine.core.config import ConfigError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_bytes(text: str) -> int:
    """'512MiB', '12.4GB', '1000000' as a number of bytes, rounded down. Raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"{text} is no amount of memory: write it like 512MiB or 2GiB")
    return int(Fraction(match[1]) * _UNITS[match[2] or ""])
