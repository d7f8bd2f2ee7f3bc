"""What a step costs: named guesses, numbers of one's own, and what a recorded run took (fit.py)."""

import math

import msgspec

from engine.core.config import ConfigError
from engine.core.runner import StepCost

NAMED = {
    # Weights of 65 GB read once a step by 4 cards of 2 TB/s; 64 GFLOP a prompt token at about 45 %
    # of 4 x 312 TFLOP/s; 262,144 bytes of KV a key over the same 8 TB/s, at about 65 %.
    "gpu-32b": StepCost(step=0.015, prefill=1.0e-4, decode=5.0e-5, key=5.0e-8),
    "cpu": StepCost(),
}
"""Estimates, not measurements. gpu-32b: of the order of a 32B model in 16 bit on four 80 GB cards of
2020; cpu: of a small model on two CPU cores."""
DEFAULT = "gpu-32b"


def parse_cost(text: str) -> StepCost:
    """A name, or `step=0.015,prefill=1e-4,decode=5e-5,key=5e-8` in seconds; what is left out is 0.

    Raises ConfigError.
    """
    if text in NAMED:
        return NAMED[text]
    values = dict.fromkeys(StepCost.__struct_fields__, 0.0)
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            seconds = float(number)
        except ValueError:
            seconds = math.nan
        if name not in values or not 0 <= seconds < math.inf:
            raise ConfigError(
                f"cost {text} is not known: name one of {', '.join(NAMED)}, or write seconds like "
                "step=0.015,prefill=1e-4,decode=5e-5,key=5e-8"
            )
        values[name] = seconds
    cost = StepCost(**values)
    if not any(msgspec.structs.astuple(cost)):
        raise ConfigError(f"cost {text} is 0: time would stand still")
    return cost


def described(cost: StepCost) -> str:
    """One line for people."""
    return (
        f"{1e3 * cost.step:.4g} ms + {1e6 * cost.prefill:.4g} µs a prefill token + "
        f"{1e6 * cost.decode:.4g} µs a decoding sequence + {1e9 * cost.key:.4g} ns a key read"
    )
