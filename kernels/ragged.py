"""RaggedBatch: where each row of a step has its queries and its keys."""

from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True)
class RaggedBatch:
    """The shape of one step, the same for all layers.

    block_tables: [rows, max_blocks] int64; physical block of each logical block, padded with any
        valid block.
    seq_lens: [rows] int64; keys of each row, those written in this step included.
    cu_query_lens: [rows + 1] int64; row r has the queries cu_query_lens[r] : cu_query_lens[r + 1],
        which are its last ones: query i of m sees keys up to seq_len - m + i.

    The properties are what a kernel derives from these once per step rather than once per layer.
    """

    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    cu_query_lens: torch.Tensor

    @cached_property
    def rows(self) -> list[tuple[int, int, int]]:
        """(first query, end of queries, keys) of each row, on the host."""
        cu = self.cu_query_lens.tolist()
        return list(zip(cu[:-1], cu[1:], self.seq_lens.tolist(), strict=True))

    @cached_property
    def decode_rows(self) -> list[int]:
        """Rows with one query."""
        return [row for row, (start, end, _) in enumerate(self.rows) if end - start == 1]

    @cached_property
    def prefill_rows(self) -> list[int]:
        """Rows with more than one query."""
        return [row for row, (start, end, _) in enumerate(self.rows) if end - start > 1]

    @cached_property
    def decode_queries(self) -> torch.Tensor:
        """[decode rows] int64; where their queries are."""
        return self.cu_query_lens[:-1][self.decode_rows]

    @cached_property
    def decode_lens(self) -> torch.Tensor:
        """[decode rows] int64."""
        return self.seq_lens[self.decode_rows]
