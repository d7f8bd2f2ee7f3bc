"""Amounts of memory are read as they are written, to the byte."""

import pytest

from engine.core.config import ConfigError
from engine.core.memory_size import parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("10", 10),
        ("1KiB", 1024),
        ("2GB", 2 * 10**9),
        ("1.5 MiB", 1_572_864),
        ("12.4gb", 12_400_000_000),
        # As a binary fraction, 1.001 is a little less.
        ("1.001kB", 1001),
        ("0.5", 0),
    ],
)
def test_an_amount_is_read_to_the_byte(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "plenty", "-1GB", "1e9", "1TB2", "2 G B"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ConfigError, match="no amount of memory: write it like 512MiB"):
        parse_bytes(text)
