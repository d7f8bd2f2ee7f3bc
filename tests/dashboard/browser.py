"""A real browser on a real dashboard process, and what must be true of the page with the pool.

`assert_pool_page_is_alive(page, url, num_blocks)` holds for a trace and for a live engine alike.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dashboard.launch import launch_command
from engine.service.ports import free_port
from tests.dashboard.waiting import wait_for

CHROMIUM = shutil.which("chromium")
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no `chromium` on the PATH: install Debian's chromium package"
)
CANVAS = "canvas.cells"

# One task of the page, so that attributes and pixels are of the same moment.
_SAMPLE = """canvas => {
    const data = canvas.dataset
    if (!data.geometry) return null
    const grid = JSON.parse(data.geometry)
    const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
    // A rich cell has its state's colour in its frame, a plain one everywhere.
    const [dx, dy] = grid.rich ? [1, grid.tall >> 1] : [grid.cell >> 1, grid.tall >> 1]
    const pixels = []
    for (let block = 0; block < grid.count; block += 1) {
        const x = (block % grid.columns) * grid.cell + dx
        const y = Math.floor(block / grid.columns) * grid.tall + dy
        const at = 4 * (y * canvas.width + x)
        pixels.push([...image.data.slice(at, at + 4)])
    }
    const style = getComputedStyle(canvas)
    const palette = style.getPropertyValue("--st-chart-categorical-colors").split(",").slice(0, 6)
    return {
        words: canvas.words.map((all) => [...all]),
        seq: Number(data.seq), step: Number(data.step), numBlocks: Number(data.numBlocks),
        counts: JSON.parse(data.counts), current: data.current, grid, pixels,
        palette: palette.map((c) => c.trim()),
    }
}"""
COLOURS = ("free", "used", "cached", "shared", "copied", "preempted")
"""What the palette's colours stand for, in its order."""


@dataclass(frozen=True)
class Sample:
    """The canvas at one moment: `colours[block]` is the name of the pixel colour of its cell.

    `words[block]` are the three words that it was drawn from, see dashboard/cells.py.
    """

    seq: int
    step: int
    num_blocks: int
    counts: dict[str, int]
    current: bool
    geometry: dict[str, Any]
    colours: list[str]
    words: list[tuple[int, int, int]]


def sample_pool(page: Page) -> Sample | None:
    """Read the canvas; None while it has drawn no cells. A pixel of no known colour fails."""
    found = page.locator(CANVAS).evaluate(_SAMPLE)
    if found is None:
        return None
    names = {}
    for name, colour in zip(COLOURS, found["palette"], strict=True):
        red, green, blue = bytes.fromhex(colour.removeprefix("#"))
        names[red, green, blue, 255] = name
    assert len(names) == len(COLOURS), f"the palette's colours are not distinct: {found['palette']}"
    colours = [names.get(tuple(pixel), f"pixel {pixel}") for pixel in found["pixels"]]
    unknown = [(block, colour) for block, colour in enumerate(colours) if colour not in COLOURS]
    assert not unknown, f"cells in no colour of the palette: {unknown[:5]}"
    return Sample(
        seq=found["seq"],
        step=found["step"],
        num_blocks=found["numBlocks"],
        counts=found["counts"],
        current=found["current"] == "true",
        geometry=found["grid"],
        colours=colours,
        words=list(zip(*found["words"], strict=True)),
    )


def hover(page: Page, geometry: dict[str, Any], block: int) -> str:
    """Move the mouse onto a block and give the tooltip's text."""
    box = page.locator(CANVAS).bounding_box()
    cell = geometry["cell"] / geometry["ratio"]
    tall = geometry["tall"] / geometry["ratio"]
    x = box["x"] + (block % geometry["columns"] + 0.5) * cell
    y = box["y"] + (block // geometry["columns"] + 0.5) * tall
    page.mouse.move(x, y)
    tip = page.locator(".tip.hover", has_text=f"Block {block}:")
    tip.wait_for(state="visible", timeout=5000)
    return tip.inner_text()


def assert_pool_page_is_alive(page: Page, url: str, num_blocks: int) -> None:
    """The page shows a pool of `num_blocks` that changes: for a trace or an engine under load.

    Cells in the palette's colours, counts that agree with the pixels and sum to the pool, steps
    that go on, blocks that change, a hover that names owner, index, ref count and fill, figures
    that sum up, no error on the page, and nothing fetched from anywhere else.
    """
    origin, strangers, errors = urlsplit(url).netloc, [], []
    page.on(
        "request",
        lambda request: (
            urlsplit(request.url).netloc in ("", origin) or strangers.append(request.url)
        ),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.locator(f"{CANVAS}[data-current=true][data-geometry]").wait_for(timeout=30_000)

    first = wait_for(lambda: sample_pool(page), what="the first cells")
    assert_sample_is_consistent(first, num_blocks)
    later = wait_for(
        lambda: (
            (sample := sample_pool(page))
            and sample.seq != first.seq
            and sample.colours != first.colours
            and sample
        ),
        seconds=30,
        what="a change of the cells",
    )
    assert_sample_is_consistent(later, num_blocks)

    text = wait_for(lambda: _hover_an_owned_block(page), seconds=30, what="a tip with an owner")
    for word in ("owner", "sequence", "index", "ref count", "fill", "slots"):
        assert word in text, f"the tip does not tell {word!r}: {text!r}"

    values = read_figures(page)
    parts = [values[name] for name in ("Active", "Cached", "Free")]
    assert sum(int(part.replace(",", "")) for part in parts) == num_blocks, values
    label = page.locator(CANVAS).get_attribute("aria-label")
    assert f"{num_blocks:,} blocks" in label
    assert page.get_by_test_id("stException").count() == 0
    assert not errors, errors
    assert not strangers, f"the page asked elsewhere: {strangers}"


def assert_sample_is_consistent(sample: Sample, num_blocks: int) -> None:
    """Counts, pixels and pool size of one moment agree."""
    counts = sample.counts
    assert sample.num_blocks == num_blocks == len(sample.colours)
    assert sum(counts[name] for name in ("free", "used", "cached", "shared")) == num_blocks
    for name in ("copied", "preempted"):
        assert sample.colours.count(name) == counts[name]
    for name in ("free", "used", "cached", "shared"):
        # A mark hides the colour of the state below it.
        hidden = counts[name] - sample.colours.count(name)
        assert 0 <= hidden <= counts["copied"] + counts["preempted"], (name, counts)


def read_figures(page: Page) -> dict[str, str]:
    """Label -> value of the figures that are shown."""
    return page.locator(".figure").evaluate_all(
        """figures => Object.fromEntries(figures.map((figure) =>
            [figure.querySelector("span").innerText, figure.querySelector("b").innerText]))"""
    )


def serious_faults(page: Page) -> list[tuple[str, list]]:
    """What axe finds serious or critical on the page: rule and first places. Skips without axe."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        (fault["id"], [node["target"] for node in fault["nodes"]][:3])
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


def open_pool(page: Page, url: str) -> None:
    """Load the page and wait for its first cells."""
    page.goto(url)
    page.locator(f"{CANVAS}[data-current=true][data-geometry]").wait_for(timeout=30_000)


def standing_at(page: Page, seq: int) -> Sample:
    """The canvas, once it shows record `seq`."""
    page.locator(f"{CANVAS}[data-seq='{seq}']").wait_for(timeout=10_000)
    return sample_pool(page)


def seek(page: Page, fraction: float) -> None:
    """Click on the scrubber, `fraction` of its width from the left."""
    box = page.locator(".scrubber").bounding_box()
    page.mouse.click(box["x"] + fraction * box["width"], box["y"] + box["height"] / 2)


def _hover_an_owned_block(page: Page) -> str | None:
    sample = sample_pool(page)
    owned = [block for block, name in enumerate(sample.colours) if name in ("used", "shared")]
    if not owned:
        return None
    text = hover(page, sample.geometry, owned[len(owned) // 2])
    return text if "sequence" in text else None  # released since the sample was taken


@contextmanager
def running_dashboard(sources: str | list[str], log: Path) -> Iterator[str]:
    """The dashboard as its own process on a free port, as the command line starts it: its URL."""
    port = free_port()
    argv, environment = launch_command(sources, "127.0.0.1", port)
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        # From another folder: settings and imports must not depend on it.
        process = subprocess.Popen(
            argv,
            env=os.environ | environment,
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(lambda: _answers(process, url, log), seconds=60, what="the dashboard's start")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(process: subprocess.Popen, url: str, log: Path) -> bool:
    assert process.poll() is None, f"the dashboard ended: {log.read_text()}"
    try:
        with urlopen(f"{url}/_stcore/health", timeout=2) as response:
            return response.status == 200
    except (URLError, OSError):
        return False


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        try:
            yield browser
        finally:
            browser.close()
