"""Numbers as people read them."""

import pytest

from dashboard.readable import seconds


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.42, "420 ms"),
        (59.5, "59.50 s"),
        (60.0, "1 min 0 s"),
        (905.4, "15 min 5 s"),
        (3599.7, "1 h 0 min"),
        (7505.0, "2 h 5 min"),
    ],
)
def test_long_durations_are_told_in_minutes_and_hours(value: float, words: str) -> None:
    assert seconds(value) == words
