"""The event contract as a small library: record types, their fold, trace files, checks.

Imports nothing else of Glasspool, and no torch.
"""

from engine.events.checks import check_state, check_step
from engine.events.codec import RecordError, decode, encode
from engine.events.pool_state import FoldError, PoolState, RequestState, SequenceState
from engine.events.trace import TraceError, TraceReader, TraceWriter

__all__ = [
    "FoldError",
    "PoolState",
    "RecordError",
    "RequestState",
    "SequenceState",
    "TraceError",
    "TraceReader",
    "TraceWriter",
    "check_state",
    "check_step",
    "decode",
    "encode",
]
