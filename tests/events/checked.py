"""A run of the engine in which much happens, and what `glasspool check` says of records like it."""

from engine.events.checking import TraceChecker
from tests.events.traces import busy_run

RUN = busy_run()
"""Header and records."""


def check(head, records):
    """Number of the broken rule, its text and the record that breaks it; None where all hold."""
    checker = TraceChecker(head)
    for record in records:
        broken = checker.apply(record)
        if broken is not None:
            return broken.rule, broken.text, record
    broken = checker.end()
    return None if broken is None else (broken.rule, broken.text, None)
