"""Text from a record as Markdown that shows it letter for letter."""

import re


def escape(text: str) -> str:
    """`text` with every character that Markdown could take for markup escaped."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text.replace("\n", " "))
