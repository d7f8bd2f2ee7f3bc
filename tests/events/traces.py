"""Small recorded runs of the model-free engine, for tests of whoever reads traces."""

from pathlib import Path

import msgspec

from engine.core.config import EngineConfig
from engine.events import KeyframePolicy, TraceWriter, encode
from engine.events.records import Gap, Header, Keyframe, Step
from engine.llm import KNOWS
from tests.core.driver import Driver, config, header


class Often(KeyframePolicy):
    """A keyframe every few events, so that a small trace has many frames."""

    def __init__(self, events: int) -> None:
        super().__init__(1)
        self._most = events


def full_header(of: EngineConfig) -> Header:
    """As a real engine writes it: all is known, and every configuration value is there."""
    values = {**msgspec.structs.asdict(of), "policy": str(of.policy)}
    return msgspec.structs.replace(header(of), knows=KNOWS, config=values, wall_time=1000.0)


def busy_run(**sizes) -> tuple[Header, list[Keyframe | Step]]:
    """A run with every kind of event but pool_reset: header, then a keyframe after each step.

    Forks, copy-on-write, prefix hits, evictions, preemptions, an abort, a rejection, beams.
    """
    driver = Driver(
        config(**{"num_blocks": 7, "max_model_len": 20, "enable_prefix_caching": True, **sizes})
    )
    records: list[Keyframe | Step] = [driver.engine.keyframe()]
    follow = driver.engine.on_record
    driver.engine.on_record = lambda record: (records.append(record), follow(record))
    shared = list(range(1, 10))
    driver.add(shared, n=1, max_tokens=6)
    driver.add(shared[:6], n=2, max_tokens=7)
    driver.add([*shared, 40], n=1, max_tokens=8, seed=5)
    _reject(driver)
    keyed = [records[0]]
    for turn in range(200):
        if turn == 4:
            driver.add([*shared, 41, 42], request_id="aborted", max_tokens=9)
        if turn == 6:
            driver.engine.abort("aborted")
        if turn == 9:
            driver.add(shared[:5], n=2, use_beam_search=True, max_tokens=5)
            driver.add([30 + i for i in range(11)], n=1, max_tokens=6)
        if not driver.engine.has_work:
            break
        seen = len(records)
        driver.step()
        keyed += records[seen:]
        keyed.append(driver.engine.keyframe())
    return full_header(driver.config), keyed


def _reject(driver: Driver) -> None:
    from engine.core.config import RequestError

    try:
        driver.add(19, max_tokens=19)
    except RequestError:
        return
    raise AssertionError("the request should not fit")


def steps_of(records: list[Keyframe | Step]) -> list[Step]:
    return [record for record in records if isinstance(record, Step)]


def write_trace(
    path: Path,
    head: Header,
    records: list[Keyframe | Step],
    events_per_keyframe: int = 12,
    gap: tuple[int, int] | None = None,
) -> Path:
    """Write the run with a keyframe about every so many events; `gap` leaves records a..b out."""
    policy = Often(events_per_keyframe)
    writer = TraceWriter(path, head, records[0])
    for record in records[1:]:
        match record:
            case Step() if gap and gap[0] <= record.seq <= gap[1]:
                if record.seq == gap[1]:
                    writer.write(encode(Gap(gap[0] - 1, gap[1] - gap[0] + 1, "slow disk")))
                    policy.count(10**9)
            case Step():
                writer.write(encode(record))
                policy.count(len(record.events))
            case Keyframe() if policy.due:
                writer.write_keyframe(record)
                policy.restart()
    writer.close()
    return path
