import msgspec
import pytest

from engine.events import FoldError, PoolState
from engine.events.records import (
    Allocate,
    BlockSource,
    Computed,
    CopyOnWrite,
    Gap,
    Release,
    ReleaseWhy,
    RequestAdded,
)
from tests.core.driver import Driver, config, header, sorted_rows


def run_records(**sizes):
    """A model-free run's engine, first keyframe and records."""
    driver = Driver(config(num_blocks=5, max_model_len=16, **sizes))
    keyframe = driver.engine.keyframe()
    records = []
    fold = driver.engine.on_record
    driver.engine.on_record = lambda record: (records.append(record), fold(record))
    for n in (1, 2, 2):
        driver.add(6, n=n, max_tokens=6)
    driver.run()
    return driver, keyframe, records


def state_at(driver, keyframe, records):
    state = PoolState(header(driver.config))
    state.apply(keyframe)
    for record in records:
        state.apply(record)
    return state


def test_a_keyframe_of_the_fold_stands_for_all_records_before_it():
    driver, keyframe, records = run_records()
    for cut in range(len(records)):
        early = state_at(driver, keyframe, records[:cut])
        late = PoolState(header(driver.config))
        late.apply(early.keyframe())
        for record in records[cut:]:
            early.apply(record)
            late.apply(record)
        assert sorted_rows(late.keyframe()) == sorted_rows(early.keyframe())


FIGURES = (
    *("active_blocks", "cached_blocks", "free_blocks", "shared_blocks", "references"),
    *("slots_filled", "slots_allocated", "queues"),
)


def test_figures_are_the_same_from_a_keyframe_and_from_the_records_before_it():
    driver, keyframe, records = run_records()
    shared = 0
    for cut in range(len(records)):
        folded = state_at(driver, keyframe, records[:cut])
        loaded = PoolState(header(driver.config))
        loaded.apply(folded.keyframe())
        for name in FIGURES:
            assert getattr(loaded, name) == getattr(folded, name), name
        shared = max(shared, folded.shared_blocks)
    assert shared, "the run has blocks to count more than once"


def test_a_keyframe_that_goes_back_is_refused():
    driver, keyframe, records = run_records()
    state = state_at(driver, keyframe, records[:3])
    with pytest.raises(FoldError, match="seq goes back"):
        state.apply(keyframe)
    assert not state.complete


def test_a_missing_record_is_noticed():
    driver, keyframe, records = run_records()
    state = state_at(driver, keyframe, records[:3])
    with pytest.raises(FoldError, match="records are missing"):
        state.apply(records[4])
    assert not state.complete


def test_after_a_gap_nothing_counts_until_a_keyframe():
    driver, keyframe, records = run_records()
    state = state_at(driver, keyframe, records[:3])
    whole = state_at(driver, keyframe, records[:6])
    state.apply(Gap(2, 3, "slow"))
    assert not state.complete
    with pytest.raises(FoldError, match="before a keyframe"):
        state.apply(records[6])
    state.apply(whole.keyframe())
    state.apply(records[6])
    assert state.complete
    assert state.seq == 6


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Allocate(0, 0, 0, BlockSource.FREE), "does not follow"),
        (Allocate(1, 0, 2, BlockSource.FREE), "not free"),
        (Allocate(99, 0, 2, BlockSource.FREE), "outside the pool"),
        (Allocate(2, 7, 0, BlockSource.FREE), "unknown sequence"),
        (Release(0, 0, ReleaseWhy.FINISHED, 0), "not the table's last entry"),
        (Release(1, 0, ReleaseWhy.FINISHED, 1), "0 references remain"),
        (CopyOnWrite(1, 2, 0, 1, BlockSource.FREE), "not shared"),
        (Computed(0, 9), "do not fit"),
        (RequestAdded("r0", 9, 1, 1, 1, 0.0), "exists already"),
        (RequestAdded("new", 0, 1, 1, 1, 0.0), "exists already"),
    ],
)
def test_an_event_that_cannot_follow_is_refused_by_name(event, words):
    driver = Driver(config())
    driver.add(6, max_tokens=4)
    driver.step()
    step = driver.engine.step()
    state = PoolState(header(driver.config))
    state.apply(driver.engine.keyframe())
    bad = msgspec.structs.replace(step, seq=state.seq + 1, events=[event])
    with pytest.raises(FoldError, match=words):
        state.apply(bad)
    assert not state.complete


def test_block_text_is_the_text_of_the_tokens_with_kv():
    driver = Driver(config())
    driver.add(6, max_tokens=4)
    driver.step()
    assert driver.state.block_text(0) == "1 2 3 4 "
    assert driver.state.block_text(1) == "5 6 ", "the token just drawn has no KV yet"
    assert driver.state.block_text(2) is None
