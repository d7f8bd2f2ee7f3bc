"""The recorded runs that the project ships."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "demo_data"
TRACES = sorted(FOLDER.glob("*.jsonl.zst"))
OVERVIEW = FOLDER / "smollm2-96-blocks.jsonl.zst"
"""The run of the demo: it has a little of everything."""
