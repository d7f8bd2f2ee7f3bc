"""The Triton kernels compile for GPUs that are not here, and keep their values in registers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.ahead_of_time import SHARED_LIMIT, Usage
from tests.kernels.test_dispatch import needs_triton

HERE = Path(__file__).parent
# Bytes a thread. None spills in a loop; one fp32 variant keeps 8 bytes on sm_80.
STACK_LIMIT = 16


@pytest.fixture(scope="module")
def usages() -> dict[int, list[Usage]]:
    """All variants, both architectures at once. The first time takes a minute; Triton keeps them."""
    environment = os.environ | {"TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("TRITON_INTERPRET", None)
    compilers = {
        arch: subprocess.Popen(
            [sys.executable, "-m", "tests.kernels.ahead_of_time", str(arch)],
            cwd=HERE.parents[1],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for arch in SHARED_LIMIT
    }
    outputs = {arch: compiler.communicate()[0] for arch, compiler in compilers.items()}
    assert all(compiler.returncode == 0 for compiler in compilers.values())
    return {
        arch: [Usage(**usage) for usage in json.loads(output)] for arch, output in outputs.items()
    }


@needs_triton
@pytest.mark.parametrize("arch", SHARED_LIMIT)
def test_every_kernel_compiles_without_spills(usages, arch):
    assert {usage.kernel for usage in usages[arch]} == {
        "attend",
        "combine",
        "store_tokens",
        "copy_words",
    }
    spilled = [u for u in usages[arch] if u.stack > STACK_LIMIT or u.local]
    assert not spilled


@needs_triton
@pytest.mark.parametrize("arch", SHARED_LIMIT)
def test_every_kernel_fits_into_shared_memory(usages, arch):
    assert not [usage for usage in usages[arch] if usage.shared > SHARED_LIMIT[arch]]
