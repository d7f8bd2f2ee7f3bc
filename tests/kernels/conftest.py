"""The marker of tests that need a GPU: `make test-gpu` runs them, elsewhere they are skipped."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device (make test-gpu)")
