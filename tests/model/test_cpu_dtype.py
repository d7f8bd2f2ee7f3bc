import torch

from engine.model.cpu_dtype import best_cpu_dtype


def test_without_units_for_bfloat16_a_cpu_computes_in_float32_unasked():
    def never(dtype):
        raise AssertionError("there is nothing to measure")

    assert best_cpu_dtype(lambda: False, never) is torch.float32


def test_with_units_the_faster_is_taken():
    times = {torch.float32: 2.0, torch.bfloat16: 1.0}
    assert best_cpu_dtype(lambda: True, times.get) is torch.bfloat16
    times[torch.bfloat16] = 3.0
    assert best_cpu_dtype(lambda: True, times.get) is torch.float32


def test_this_machine_gives_one_of_the_two():
    assert best_cpu_dtype() in (torch.float32, torch.bfloat16)
    assert best_cpu_dtype(lambda: True) in (torch.float32, torch.bfloat16)
