"""YAML for people: keys in the given order, queries as blocks, a comment on top.

Writes mappings, lists, strings, numbers and booleans; that is all these files have.
"""

import re

HEAD = "# Written by `make grafana` from grafana/spec. Edit that, not this.\n"

# Read back as strings by every YAML 1.1 and 1.2 parser.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./:-]*[A-Za-z0-9_]|\d+(?:ms|s|m|h|d)")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def yaml_text(value: dict[str, object]) -> str:
    """A whole document."""
    return HEAD + "\n".join(_lines(value)) + "\n"


def _lines(value: object) -> list[str]:
    """`value` in lines without indentation; a scalar is one line, or a block of several."""
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(key, item)]
    if isinstance(value, list) and value:
        return [line for item in value for line in _item(item)]
    return _scalar(value)


def _entry(key: str, item: object) -> list[str]:
    first, *rest = _lines(item)
    if isinstance(item, dict | list) and item:
        return [f"{_scalar(key)[0]}:", *(f"  {line}" for line in (first, *rest))]
    return [f"{_scalar(key)[0]}: {first}", *(f"  {line}" for line in rest)]


def _item(item: object) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: object) -> list[str]:
    match value:
        case bool():
            return ["true" if value else "false"]
        case int():
            return [str(value)]
        case float():
            # Without a point, YAML 1.1 takes 1e-05 for a word.
            mantissa, exponent, power = repr(value).partition("e")
            return [mantissa + (".0" if "." not in mantissa else "") + exponent + power]
        case {} | []:
            return [repr(value)]
        case str() if "\n" in value:
            return ["|-", *value.split("\n")]
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return [value]
        case str():
            return ["'" + value.replace("'", "''") + "'"]
    raise TypeError(f"{value!r} has no place in these files")
