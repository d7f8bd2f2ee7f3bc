"""The pump for a trace: its records into a feed at the recorded pace, over and over."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from dashboard.feed import Feed, Phase, Status
from engine.events import FoldError, TraceError, TraceReader
from engine.events.records import Gap, Keyframe, Step

LONGEST_PAUSE = 1.0
"""Seconds that an idle stretch of the recording lasts at most."""
HOLD_SECONDS = 4.0
"""How long the end state stays before the replay begins again."""


@dataclass(frozen=True)
class Survey:
    """What a first reading of a trace found. `fault` says where and why it ends early."""

    last_step: int
    fault: str | None


def survey_trace(path: Path) -> Survey:
    """Read the trace once. Raises TraceError only where not even its header can be read."""
    last_step, fault = -1, None
    with TraceReader(path) as reader:
        try:
            for record in reader:
                if isinstance(record, Keyframe | Step):
                    last_step = record.step
            fault = reader.cut_off
        except TraceError as error:
            fault = str(error)
    return Survey(last_step, fault)


def play_trace(feed: Feed, path: Path, stop: threading.Event) -> None:
    """Runs until `stop` is set, or until the trace turns out not to be one."""
    try:
        feed.say(Status(Phase.CONNECTING, f"reading {path.name}"))
        survey = survey_trace(path)
        while not stop.is_set():
            _play_once(feed, path, survey, stop)
            stop.wait(HOLD_SECONDS)
    except (TraceError, OSError) as error:
        feed.say(Status(Phase.FAILED, str(error)))


def _play_once(feed: Feed, path: Path, survey: Survey, stop: threading.Event) -> None:
    clock = _Pace(stop)
    with TraceReader(path) as reader:
        feed.forget()
        feed.begin(reader.header)
        records = iter(reader)
        while not stop.is_set():
            try:
                record = next(records, None)
            except TraceError:
                break  # the survey has met the same fault, and every status repeats it
            if record is None:
                break
            if isinstance(record, Step):
                clock.wait_for(record.time)
            _take(feed, record, survey)
    if not stop.is_set():
        if survey.fault is not None:
            feed.missing(survey.fault)
        status = feed.status
        if status.phase is Phase.REPLAY:
            feed.say(Status(Phase.REPLAY, f"{status.text}: the end, begins again", survey.fault))


def _take(feed: Feed, record: Keyframe | Step | Gap, survey: Survey) -> None:
    if feed.status.phase is Phase.GAP and not isinstance(record, Keyframe):
        return
    try:
        feed.apply(record)
    except FoldError as error:
        feed.missing(f"the trace contradicts itself ({error})")
        text = f"The trace contradicts itself: {error}. Waiting for its next keyframe."
        feed.say(Status(Phase.GAP, text))
        return
    if isinstance(record, Gap):
        text = f"{record.count:,} step records are missing here: {record.why}."
        feed.say(Status(Phase.GAP, f"{text} Waiting for the trace's next keyframe."))
    else:
        step = max(0, record.step)
        text = f"replay, step {step:,} of {max(0, survey.last_step):,}"
        feed.say(Status(Phase.REPLAY, text, survey.fault))


class _Pace:
    """Waits as long as the recording took, from the first record on, so that no delay adds up."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._recorded: float | None = None
        self._due = 0.0

    def wait_for(self, recorded: float) -> None:
        """Return when the record of producer time `recorded` (seconds) is due."""
        now = time.monotonic()
        if self._recorded is None:
            self._due = now
        else:
            self._due += min(LONGEST_PAUSE, max(0.0, recorded - self._recorded))
        self._recorded = recorded
        self._due = max(self._due, now - LONGEST_PAUSE)
        if self._due > now:
            self._stop.wait(self._due - now)
