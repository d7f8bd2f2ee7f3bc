"""Random numbers by position: the same for a seed and a position, whenever they are asked for.

A preempted sequence needs no random state to be kept, and a draw does not depend on the batch.
"""

_MASK = 2**64 - 1


def mix(seed: int, position: int) -> int:
    """64 well-mixed bits of two numbers (the splitmix64 finaliser, twice)."""
    return _finalise(_finalise(seed) + position)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    return (mix(seed, position) >> 11) * 2.0**-53


def _finalise(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
