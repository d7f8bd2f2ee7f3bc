"""The event contract as a small library: records, their fold, traces, seeking, checks, figures, diff.

    from engine.events import TraceReader
    with TraceReader(path) as trace:
        for record, state in trace.fold():
            ...

Imports nothing else of Glasspool, and no torch. docs/trace-format.md describes the records.
"""

from engine.events.checks import check_state, check_step
from engine.events.codec import RecordError, decode, encode
from engine.events.index import Frame
from engine.events.pool_state import FoldError, PoolState, RequestState, SequenceState
from engine.events.seek import SeekableTrace
from engine.events.trace import KeyframePolicy, TraceError, TraceReader, TraceWriter

__all__ = [
    "FoldError",
    "Frame",
    "KeyframePolicy",
    "PoolState",
    "RecordError",
    "RequestState",
    "SeekableTrace",
    "SequenceState",
    "TraceError",
    "TraceReader",
    "TraceWriter",
    "check_state",
    "check_step",
    "decode",
    "encode",
]
