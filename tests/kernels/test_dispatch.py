"""Which kernels run where, and what is said when they can't."""

import importlib.util
import subprocess
import sys

import pytest
import torch

import kernels
from kernels import Backend, KernelError, RaggedBatch
from kernels.dispatch import VARIABLE
from tests.kernels.cases import build

CPU, GPU = torch.device("cpu"), torch.device("cuda")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed on this machine"
)


def test_a_cpu_takes_torch(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert kernels.backend(CPU) is Backend.TORCH


@needs_triton
def test_a_gpu_takes_triton(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert kernels.backend(GPU) is Backend.TRITON


def test_the_override_holds_on_every_device(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    assert kernels.backend(CPU) is Backend.TORCH
    assert kernels.backend(GPU) is Backend.TORCH


def test_an_unknown_override_is_refused_with_its_value_and_the_remedy(monkeypatch):
    monkeypatch.setenv(VARIABLE, "cutlass")
    with pytest.raises(KernelError, match=r"GLASSPOOL_KERNELS is 'cutlass': set it to triton or"):
        kernels.backend(CPU)


@needs_triton
def test_triton_on_a_cpu_is_refused_unless_interpreted(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(KernelError, match="TRITON_INTERPRET=1"):
        kernels.backend(CPU)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert kernels.backend(CPU) is Backend.TRITON


def test_triton_is_not_imported_where_torch_serves():
    program = (
        "import sys, torch, kernels, kernels.contiguous\n"
        "batch = kernels.RaggedBatch.from_lists([[0]], [1], [1])\n"
        "cache = torch.zeros(1, 1, 1, 8)\n"
        "kernels.paged_attention(torch.zeros(1, 1, 8), cache, cache, batch, 1.0)\n"
        "assert not any(name.startswith('kernels.gpu') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_without_room_for_a_key_is_refused(window):
    case = build([(3, 1)])
    with pytest.raises(KernelError, match=f"window is {window}"):
        kernels.paged_attention(case.q, case.k_cache, case.v_cache, case.batch, 1.0, window)


def test_a_batch_from_lists_is_the_same_as_from_tensors():
    made = RaggedBatch.from_lists([[3, 1], [2], []], [20, 5, 0], [1, 5, 0])
    assert made.block_tables.tolist() == [[3, 1], [2, 0], [0, 0]]
    same = RaggedBatch(made.block_tables, made.seq_lens, made.cu_query_lens)
    assert made.rows == same.rows == [(0, 1, 20), (1, 6, 5), (6, 6, 0)]
    assert (made.max_query_len, made.max_seq_len, made.num_attended) == (5, 20, 6)
    assert (made.decode_rows, made.prefill_rows) == ([0], [1])
