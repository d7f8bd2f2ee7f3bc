"""Paged attention and its cache writes: one interface, Triton on a GPU, torch elsewhere.

`kernels.torch_twins` is the reference for every device and the path for CPUs; `kernels.gpu` has the
Triton kernels, imported only where they run; `kernels.dispatch` chooses.
"""

from kernels.dispatch import Backend, backend, copy_blocks, paged_attention, write_kv
from kernels.errors import KernelError
from kernels.ragged import RaggedBatch

__all__ = [
    "Backend",
    "KernelError",
    "RaggedBatch",
    "backend",
    "copy_blocks",
    "paged_attention",
    "write_kv",
]
