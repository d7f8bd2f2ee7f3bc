"""Paged attention and its cache writes: one interface, torch twins on every device.

`kernels.torch_twins` is the reference and the path for CPUs.
"""

from kernels.ragged import RaggedBatch
from kernels.torch_twins import copy_blocks, paged_attention, write_kv

__all__ = ["RaggedBatch", "copy_blocks", "paged_attention", "write_kv"]
