"""ModelRunner: computes plans with a transformers model and the pool's K and V caches.

Logits at position p predict the token at p + 1. They are computed where somebody needs them only:

    [ last token of each row that has samples | prompt positions that a client wants to be told ]
"""

import torch
from transformers import PreTrainedModel

import kernels
from engine.core.drawn import PromptToken, StepOutput
from engine.core.plan import Plan, Row
from engine.model.attention import PagedContext
from engine.model.logprobs import token_logprobs
from engine.model.sampler import sample


class ModelRunner:
    """Owns the caches: [num_blocks, block_size, kv_heads, head_dim] a layer, K and V, made once.

    Zeroed, not left as found: a masked slot still takes part in a product, and 0 x NaN is NaN.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        num_blocks: int,
        block_size: int,
        num_layers: int,
        kv_heads: int,
        head_dim: int,
        *,
        eos_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.model = model
        self.eos_token_ids = eos_token_ids
        self.block_size = block_size
        self.device = model.device
        shape = (num_blocks, block_size, kv_heads, head_dim)

        def caches() -> list[torch.Tensor]:
            return [
                torch.zeros(shape, dtype=model.dtype, device=self.device) for _ in range(num_layers)
            ]

        self.k_caches = caches()
        self.v_caches = caches()

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        kernels.copy_blocks(self.k_caches + self.v_caches, copies)

    @torch.inference_mode()
    def run(self, plan: Plan) -> torch.Tensor:
        """Logits that `sample` needs, in the order above: [needed, vocabulary], maybe none."""
        token_ids, positions, slots = [], [], []
        last, prompt = [], []
        for row in plan.rows:
            table, end = row.sequence.table, row.start + row.count
            token_ids += row.sequence.tokens[row.start : end]
            positions += range(row.start, end)
            slots += [
                table[position // self.block_size] * self.block_size + position % self.block_size
                for position in range(row.start, end)
            ]
            first = len(token_ids) - row.count
            if row.samples:
                last.append(first + row.count - 1)
            # The token at a position is predicted one before it.
            prompt += [first + position - 1 - row.start for position in _untold(row)]
        batch = kernels.RaggedBatch.from_lists(
            [row.sequence.table for row in plan.rows],
            [row.start + row.count for row in plan.rows],
            [row.count for row in plan.rows],
            self.device,
        )
        output = self.model(
            input_ids=self._tensor([token_ids]),
            position_ids=self._tensor([positions]),
            use_cache=False,
            logits_to_keep=self._tensor(last + prompt),
            paged=PagedContext(self.k_caches, self.v_caches, self._tensor(slots), batch),
        )
        return output.logits[0]

    @torch.inference_mode()
    def sample(self, output: torch.Tensor, plan: Plan) -> StepOutput:
        """What the plan's samples draw from `run`'s output, and what it says of prompt tokens."""
        sampled = [row for row in plan.rows if row.samples]
        last, prompt = output[: len(sampled)], output[len(sampled) :]
        rows = [number for number, row in enumerate(sampled) for _ in row.samples]
        if len(rows) != len(sampled):
            last = last[self._tensor(rows)]
        return StepOutput(
            sample(last, plan.samples, self.eos_token_ids), _prompt_tokens(prompt, plan)
        )

    def _tensor(self, values: list) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def _untold(row: Row) -> range:
    """Prompt positions that the row predicts and its request wants to be told, for the first time.

    A sequence that is recomputed predicts its prompt again; that is not told twice.
    """
    request = row.sequence.request
    if request.params.prompt_logprobs is None:
        return range(0)
    first = max(row.start, request.prompt_logprobs_told) + 1
    return range(first, min(row.start + row.count + 1, len(request.prompt)))


def _prompt_tokens(logits: torch.Tensor, plan: Plan) -> dict[str, list[PromptToken]]:
    """logits: [positions, vocabulary], those of each row's `_untold`, row after row."""
    wanted = [(row.sequence.request, position) for row in plan.rows for position in _untold(row)]
    told = token_logprobs(
        logits,
        [request.prompt[position] for request, position in wanted],
        [request.params.prompt_logprobs for request, _ in wanted],
    )
    by_request: dict[str, list[PromptToken]] = {}
    for (request, position), (chosen, top) in zip(wanted, told, strict=True):
        by_request.setdefault(request.request_id, []).append(PromptToken(position, chosen, top))
    return by_request
