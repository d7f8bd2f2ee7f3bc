"""Any order of operations on a tiny engine: all rules hold after each of them, and it always ends.

`make fuzz` runs the same machine for as long as one likes, and with other choices each time.
"""

import os
import sys
from typing import ClassVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.core.config import EngineConfig, Policy, RequestError
from engine.core.runner import ModelFreeRunner
from engine.core.sequence import Request
from engine.events.records import FinishReason, RequestRejected
from engine.llm import LLMEngine
from tests.core.driver import Driver

# 0: the few examples that every run of the tests repeats, always the same ones.
FUZZ_EXAMPLES = int(os.environ.get("GLASSPOOL_FUZZ_EXAMPLES", "0"))
VOCABULARY = 6
MAX_MODEL_LEN = 16


@st.composite
def configs(draw) -> EngineConfig:
    seqs = draw(st.sampled_from([1, 2, 3, 4, 5, 5]))
    chunked = draw(st.booleans())
    least = seqs if chunked else MAX_MODEL_LEN
    block_size = draw(st.integers(1, 4))
    return EngineConfig(
        block_size=block_size,
        num_blocks=draw(st.integers(2, 40 // block_size)),
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=seqs,
        max_num_batched_tokens=least + draw(st.sampled_from([0, 0, 1, 3, 20])),
        enable_prefix_caching=draw(st.sampled_from([True, True, False])),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 3])) if chunked else 0,
        watermark=draw(st.sampled_from([0.0, 0.0, 0.2, 0.9])),
        max_num_queued_reqs=draw(st.sampled_from([0, 0, 0, 1, 3])),
        policy=draw(st.sampled_from(Policy)),
        prefix_hash_bits=draw(st.sampled_from([4, 8, 64])),
    )


class Core(RuleBasedStateMachine):
    """Preemptions, forks, hits, evictions and ends come about through these operations."""

    fixed: ClassVar[dict] = {}
    examples = 0

    @initialize(config=configs())
    def start(self, config):
        self.driver = Driver(msgspec.structs.replace(config, **self.fixed), VOCABULARY)
        self.requests: list[Request] = []

    @rule(
        copies=st.sampled_from([1, 1, 2, 3]),
        # Few tokens, so that prefixes come again; 0 is the token that ends a sequence.
        prompt=st.lists(st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=10),
        n=st.sampled_from([1, 1, 1, 2, 3, 4]),
        max_tokens=st.integers(1, 7),
        beams=st.sampled_from([False, False, True]),
        ignore_eos=st.booleans(),
        prompt_logprobs=st.sampled_from([None, None, None, 0]),
        priority=st.sampled_from([0, 0, 0, -1, 2]),
        cache_salt=st.sampled_from([None, None, "mine"]),
        seed=st.integers(0, 3),
    )
    def add(
        self, copies, prompt, n, max_tokens, beams, prompt_logprobs, priority, cache_salt, **params
    ):
        params |= {"n": n, "max_tokens": max_tokens, "use_beam_search": beams}
        if not beams:
            params["prompt_logprobs"] = prompt_logprobs
        for _ in range(copies):
            self._add_one(prompt, priority, cache_salt, params)

    def _add_one(self, prompt, priority, cache_salt, params):
        before = len(self.driver.events)
        name = f"r{len(self.requests)}"
        try:
            self.requests.append(self.driver.add(prompt, name, priority, cache_salt, **params))
        except RequestError:
            self.driver.engine.keyframe()  # records what was told of it
            told = self.driver.events[before:]
            assert all(isinstance(event, RequestRejected) for event in told)
        self.driver.check()

    @rule(times=st.integers(1, 3))
    def step(self, times):
        self.driver.step(times)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data):
        request = data.draw(st.sampled_from(self.requests[-6:]))
        was_alive = request.finish_reason is None
        assert self.driver.engine.abort(request.request_id) is was_alive
        assert not self.driver.engine.abort(request.request_id), "a second abort does no harm"
        self.driver.check()
        assert all(sequence.table == [] for sequence in request.sequences)

    @precondition(lambda self: self.driver.state.hashes)
    @rule()
    def reset(self):
        idle = self.driver.state.active_blocks == 0
        assert self.driver.engine.reset_prefix_cache() is idle
        self.driver.check()
        assert not idle or self.driver.state.free_blocks == self.driver.state.num_blocks

    @precondition(lambda self: self.driver.engine.has_work)
    @rule()
    def run_until_idle(self):
        self.driver.run()
        assert len(self.driver.finished) == len(self.requests)
        assert self.driver.state.requests == {}

    def teardown(self):
        if not hasattr(self, "driver"):
            return
        self.driver.run()
        assert len(self.driver.finished) == len(self.requests)
        for request in self.driver.finished:
            check_output(self.driver.config.block_size, request)
        Core.examples += 1
        if FUZZ_EXAMPLES and Core.examples % 100 == 0:
            print(f"{Core.examples} runs held", file=sys.stderr, flush=True)


def check_output(block_size: int, request: Request) -> None:
    """Rule 16: the same as if the request had been alone, uncut, in a pool with room for all."""
    params = request.params
    alone = Request("alone", request.prompt, params, 0.0)
    config = EngineConfig(block_size, 400, 64, 8, 400, enable_prefix_caching=False)
    engine = LLMEngine(config, ModelFreeRunner(VOCABULARY), eos_token_ids=frozenset({0}))
    engine.add(alone)
    while engine.has_work:
        engine.step()
    if request.finish_reason is FinishReason.ABORT:
        if request.beams is None:
            for sequence in request.sequences:
                expected = alone.sequences[sequence.index].output
                assert sequence.output == expected[: sequence.num_output]
    elif request.beams is not None:
        assert request.beams.best == alone.beams.best
    else:
        assert [s.output for s in request.sequences] == [s.output for s in alone.sequences]
        assert len(request.sequences) == params.n


class CoreWithCollisions(Core):
    """Sixteen keys for all contents."""

    fixed: ClassVar[dict] = {"prefix_hash_bits": 4, "enable_prefix_caching": True}


class CoreUnderPressure(Core):
    """Many sequences, hardly any blocks, and a budget of little more than the decodes."""

    fixed: ClassVar[dict] = {
        "block_size": 2,
        "num_blocks": 12,
        "max_num_seqs": 5,
        "max_num_batched_tokens": 7,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "watermark": 0.0,
    }


BUDGET = settings(
    max_examples=FUZZ_EXAMPLES or 40,
    stateful_step_count=50,
    deadline=None,
    derandomize=not FUZZ_EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCore = Core.TestCase
TestCoreWithCollisions = CoreWithCollisions.TestCase
TestCoreUnderPressure = CoreUnderPressure.TestCase
TestCore.settings = TestCoreWithCollisions.settings = TestCoreUnderPressure.settings = BUDGET
