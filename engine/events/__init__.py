"""The event contract as a small library: records, their fold, traces, seeking, checks, figures, diff.

    from engine.events import TraceReader
    with TraceReader(path) as trace:
        for record, state in trace.fold():
            ...

Imports nothing else of Glasspool, and no torch. docs/trace-format.md describes the records.
"""

from engine.events.checking import Fault, Report, TraceChecker, check_trace
from engine.events.checks import check_state, check_step
from engine.events.codec import RecordError, decode, encode
from engine.events.diff import TraceDiff, diff_traces
from engine.events.index import Frame
from engine.events.pool_contents import FoldError, RequestState, SequenceState
from engine.events.pool_state import PoolState
from engine.events.seek import SeekableTrace
from engine.events.stats import StatsFold, TraceStats, measure_trace
from engine.events.trace import KeyframePolicy, TraceError, TraceReader, TraceWriter

__all__ = [
    "Fault",
    "FoldError",
    "Frame",
    "KeyframePolicy",
    "PoolState",
    "RecordError",
    "Report",
    "RequestState",
    "SeekableTrace",
    "SequenceState",
    "StatsFold",
    "TraceChecker",
    "TraceDiff",
    "TraceError",
    "TraceReader",
    "TraceStats",
    "TraceWriter",
    "check_state",
    "check_step",
    "check_trace",
    "decode",
    "diff_traces",
    "encode",
    "measure_trace",
]
