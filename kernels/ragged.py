"""RaggedBatch: where each row of a step has its queries and its keys."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class RaggedBatch:
    """The shape of one step, the same for all layers.

        q        | row 0: a decode | row 1: a prompt's chunk    | row 2: a decode | padding ... |
        cu_query_lens  0           1                            5                 6

    block_tables: [rows, max_blocks] int64; physical block of each logical block, padded with any
        valid block.
    seq_lens: [rows] int64; keys of each row, those written in this step included. A row without
        keys gets zeros.
    cu_query_lens: [rows + 1] int64; row r has the queries cu_query_lens[r] : cu_query_lens[r + 1],
        which are its last ones: query i of m sees keys up to seq_len - m + i. A row may have none.
        Queries past the last row belong to nobody and get zeros.

    Kernels run once per layer, and reading a tensor from a GPU waits for all that it has to do. So
    what the host must know is read once per step (`rows`), or never where `from_lists` made the
    batch; `once` keeps what a kernel derives from it.
    """

    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    cu_query_lens: torch.Tensor
    _derived: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_lists(
        cls,
        block_tables: Sequence[Sequence[int]],
        seq_lens: Sequence[int],
        query_lens: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> "RaggedBatch":
        """The same from the host's own lists, tables unpadded: nothing is read back from a GPU."""
        longest = max(map(len, block_tables), default=0)
        cu = [0]
        for count in query_lens:
            cu.append(cu[-1] + count)

        def tensor(values: list) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        batch = cls(
            block_tables=tensor(
                [list(table) + [0] * (longest - len(table)) for table in block_tables]
            ).view(len(block_tables), longest),
            seq_lens=tensor(list(seq_lens)),
            cu_query_lens=tensor(cu),
        )
        # Where a cached property keeps its value: it is known already.
        batch.__dict__["rows"] = list(zip(cu[:-1], cu[1:], seq_lens, strict=True))
        return batch

    @cached_property
    def rows(self) -> list[tuple[int, int, int]]:
        """(first query, end of queries, keys) of each row, on the host."""
        cu = self.cu_query_lens.tolist()
        return list(zip(cu[:-1], cu[1:], self.seq_lens.tolist(), strict=True))

    @cached_property
    def decode_rows(self) -> list[int]:
        """Rows with one query, and keys."""
        return [
            row for row, (start, end, keys) in enumerate(self.rows) if end - start == 1 and keys
        ]

    @cached_property
    def prefill_rows(self) -> list[int]:
        """Rows with more than one query, and keys."""
        return [row for row, (start, end, keys) in enumerate(self.rows) if end - start > 1 and keys]

    @cached_property
    def max_query_len(self) -> int:
        """The most queries of a row."""
        return max((end - start for start, end, _ in self.rows), default=0)

    @cached_property
    def max_seq_len(self) -> int:
        """The most keys of a row."""
        return max((keys for _, _, keys in self.rows), default=0)

    @cached_property
    def num_attended(self) -> int:
        """Queries of rows that have keys. Where q has more, the others get zeros."""
        return sum(end - start for start, end, keys in self.rows if keys)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """make() at the first layer that asks for `key`, the same object for all others."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]
