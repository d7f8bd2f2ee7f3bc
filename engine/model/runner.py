"""ModelRunner: computes plans with a transformers model and the pool's K and V caches."""

import torch
from transformers import PreTrainedModel

import kernels
from engine.core.scheduler import Plan
from engine.model.attention import PagedContext
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
    ) -> None:
        self.model = model
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
        """Logits of each row's last token: [rows, vocabulary]."""
        token_ids, positions, slots, last, cu_query_lens = [], [], [], [], [0]
        for row in plan.rows:
            table, end = row.sequence.table, row.start + row.count
            token_ids += row.sequence.tokens[row.start : end]
            positions += range(row.start, end)
            slots += [
                table[position // self.block_size] * self.block_size + position % self.block_size
                for position in range(row.start, end)
            ]
            cu_query_lens.append(cu_query_lens[-1] + row.count)
            last.append(cu_query_lens[-1] - 1)
        tables = [row.sequence.table for row in plan.rows]
        longest = max(map(len, tables))
        batch = kernels.RaggedBatch(
            block_tables=self._tensor([table + [0] * (longest - len(table)) for table in tables]),
            seq_lens=self._tensor([row.start + row.count for row in plan.rows]),
            cu_query_lens=self._tensor(cu_query_lens),
        )
        output = self.model(
            input_ids=self._tensor([token_ids]),
            position_ids=self._tensor([positions]),
            use_cache=False,
            logits_to_keep=self._tensor(last),
            paged=PagedContext(self.k_caches, self.v_caches, self._tensor(slots), batch),
        )
        return output.logits[0]

    @torch.inference_mode()
    def sample(self, output: torch.Tensor, plan: Plan) -> list[int]:
        rows = [row for row, planned in enumerate(plan.rows) for _ in planned.samples]
        if len(rows) != len(plan.rows):
            output = output[self._tensor(rows)]
        return sample(output, plan.samples)

    def _tensor(self, values: list) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)
