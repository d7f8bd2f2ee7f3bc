"""Runs `interpreted.py` in a process of its own: Triton reads its switch when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

from tests.kernels.test_dispatch import needs_triton

HERE = Path(__file__).parent


@needs_triton
def test_the_triton_kernels_compute_what_the_reference_does():
    environment = os.environ | {"TRITON_INTERPRET": "1", "GLASSPOOL_KERNELS": "triton"}
    command = [sys.executable, "-m", "pytest", HERE / "interpreted.py", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=HERE.parents[1],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
