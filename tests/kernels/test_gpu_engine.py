"""The engine on a GPU: the Triton kernels give the text that the torch twins give there."""

import pytest
import torch

from engine.core.config import EngineConfig
from engine.model.weights import load_model
from tests.model.checked_engine import CheckedEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
PROMPTS = [[7, 3, 200, 9], [7, 3, 200, 9] * 9, [5], list(range(1, 50)), [7, 3, 200, 9] * 5]


@pytest.mark.parametrize("block_size", [1, 16])
def test_greedy_text_is_that_of_the_torch_twins(tiny_model, monkeypatch, block_size):
    loaded = load_model(str(tiny_model), torch.float32, print)

    def greedy(kernels: str) -> list[list[int]]:
        monkeypatch.setenv("GLASSPOOL_KERNELS", kernels)
        config = EngineConfig(
            block_size=block_size,
            num_blocks=-(-80 // block_size) + 1,
            max_model_len=96,
            max_num_seqs=8,
            max_num_batched_tokens=32,
        )
        engine = CheckedEngine(config, loaded)
        outputs = engine.greedy(PROMPTS, max_tokens=24, n=2)
        assert sum(engine.tally.totals.preemptions.values()), "the pool was meant to be tight"
        assert engine.tally.totals.cow_copies or block_size == 1
        return outputs

    assert greedy("triton") == greedy("torch")
