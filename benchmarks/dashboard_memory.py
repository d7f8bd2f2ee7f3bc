"""Does the dashboard's memory grow while it is watched?

    python -m benchmarks.dashboard_memory [--minutes 10]

A live engine without a model under load, a dashboard, one browser on the page Pool; the resident memory
of the dashboard's server twice a minute, and the growth after the first two minutes.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import httpx
import psutil
import typer
from playwright.sync_api import sync_playwright

from benchmarks.started import Started

WARM_UP_SECONDS = 120


async def load(url: str, stop: threading.Event) -> None:
    async def client(http: httpx.AsyncClient, number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            body = {"prompt": f"{number} asks {turn}", "n": 1 + number % 3, "ignore_eos": True}
            await http.post("/v1/completions", json=body | {"max_tokens": 120 + 10 * number})

    async with httpx.AsyncClient(base_url=url, timeout=None) as http:
        with contextlib.suppress(httpx.TransportError):
            await asyncio.gather(*(client(http, number) for number in range(12)))


@contextlib.contextmanager
def under_load(url: str) -> Iterator[None]:
    stop = threading.Event()
    threading.Thread(target=lambda: asyncio.run(load(url, stop)), daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def main(minutes: float = 10) -> None:
    """Print resident memory over time, and its growth."""
    serve = ["serve", "--model", "none", "--num-gpu-blocks-override", "160"]
    with (
        Started(*serve) as engine,
        Started("dashboard", "--engine", engine.url, health="/_stcore/health") as dashboard,
        under_load(engine.url),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(dashboard.url)
        process, started, seen = psutil.Process(dashboard.pid), time.monotonic(), []
        while (elapsed := time.monotonic() - started) < minutes * 60:
            page.wait_for_timeout(30_000)
            seen.append((elapsed, process.memory_info().rss / 1e6))
            print(f"{elapsed / 60:5.1f} min  {seen[-1][1]:7.1f} MB", flush=True)
        browser.close()
    first = next(size for elapsed, size in seen if elapsed >= WARM_UP_SECONDS)
    print(f"growth after {WARM_UP_SECONDS / 60:g} minutes: {seen[-1][1] - first:+.1f} MB")


if __name__ == "__main__":
    typer.run(main)
