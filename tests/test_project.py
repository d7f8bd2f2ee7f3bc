"""The project's own rules: style, import directions, what loads what."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", [["check", "."], ["format", "--check", "."]])
def test_ruff_is_content(command):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_keep_their_directions():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", ["engine.events", "engine.core.scheduler", "engine.llm", "engine.cli"]
)
def test_these_modules_import_without_torch(module):
    code = f"import sys; sys.modules['torch'] = None; import {module}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_dependency_has_its_reason():
    listed = (ROOT / "docs" / "dependencies.md").read_text()
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    required = [*project["dependencies"], *(name for extra in extras for name in extra)]
    names = {requirement.split(">")[0].split("=")[0] for requirement in required}
    missing = [name for name in sorted(names) if f"| {name} |" not in listed]
    assert missing == []
