"""Any order of operations on a tiny pool: all rules hold after each of them, and it always ends."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.config import RequestError
from tests.core.driver import Driver, config

sizes = st.tuples(st.sampled_from([1, 2, 4]), st.integers(3, 14), st.integers(4, 8))
adds = st.tuples(
    st.just("add"), st.integers(1, 9), st.sampled_from([1, 1, 2, 4]), st.integers(1, 7)
)
operations = st.lists(
    st.one_of(adds, st.tuples(st.just("step")), st.tuples(st.just("abort"), st.integers(0, 30))),
    max_size=60,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sizes, operations)
def test_rules_hold_after_every_operation(size, plan):
    block_size, num_blocks, max_num_seqs = size
    driver = Driver(
        config(
            block_size=block_size,
            num_blocks=num_blocks,
            max_model_len=16,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=24,
        )
    )
    accepted = 0
    for number, (operation, *arguments) in enumerate(plan):
        if operation == "add":
            prompt, n, max_tokens = arguments
            try:
                driver.add(prompt, f"r{number}", n=n, max_tokens=max_tokens, seed=number)
                accepted += 1
            except RequestError:
                """It can never fit; nothing may have changed, which check() sees."""
        elif operation == "abort":
            driver.engine.abort(f"r{arguments[0]}")
        else:
            driver.step()
        driver.check()
    driver.run()
    assert len(driver.finished) == accepted
    assert driver.state.active_blocks == 0
    assert driver.state.requests == {}
    for request in driver.finished:
        for sequence in request.sequences:
            aborted = sequence.finish_reason == "abort"
            assert aborted or sequence.num_output == request.params.max_tokens
