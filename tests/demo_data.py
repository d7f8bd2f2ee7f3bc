"""The recorded runs that the project ships."""

from pathlib import Path

TRACES = sorted((Path(__file__).parents[1] / "demo_data").glob("*.jsonl.zst"))
