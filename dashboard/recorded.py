"""A trace's past: what fits is in memory, everything is on disk.

    file   | keyframe ....... | keyframe ....... | keyframe ....... |
    memory                         | segment | segment | segment |     seeks here are fast

Both give the same states: the memory is a copy of the file's newest part, with more keyframes.
"""

from collections.abc import Iterator

from dashboard.past import Memory, PastError
from engine.events import PoolState, TraceError
from engine.events.records import Step
from engine.events.seek import SeekableTrace

TRACE_BYTES = 256 * 1024 * 1024
"""What the newest part of a trace may take in memory, compressed."""


class RecordedPast:
    """See past.Past. `memory` is filled by whoever reads the trace."""

    def __init__(self, memory: Memory, trace: SeekableTrace) -> None:
        self._memory = memory
        self._trace = trace

    @property
    def first_seq(self) -> int:
        return min(self._trace.first_seq, self._memory.first_seq)

    @property
    def last_seq(self) -> int:
        return self._memory.last_seq

    def nearest(self, seq: int, forward: bool = False) -> int:
        """See Past. On disk a hole is only found when its state is asked for."""
        if seq >= self._memory.first_seq:
            return self._memory.nearest(seq, forward)
        return max(seq, self.first_seq)

    def run_start(self, seq: int) -> int:
        """See Past; for the part on disk, the keyframe before."""
        if seq >= self._memory.first_seq:
            return self._memory.run_start(seq)
        return max(frame.seq for frame in self._trace.keyframes if frame.seq <= seq)

    def state_at(self, seq: int) -> PoolState:
        """See Past."""
        if seq >= self._memory.first_seq:
            return self._memory.state_at(seq)
        try:
            return self._trace.state_at(seq)
        except TraceError as error:
            raise PastError(str(error)) from None

    def records(self, after: int, upto: int) -> Iterator[Step]:
        """See Past."""
        held = self._memory.first_seq
        if after < held:
            try:
                for record in self._trace.records_after(after):
                    if isinstance(record, Step):
                        if record.seq > min(upto, held):
                            break
                        yield record
            except TraceError as error:
                raise PastError(str(error)) from None
        yield from self._memory.records(max(after, held), upto)
