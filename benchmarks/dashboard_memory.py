"""Does the dashboard's memory grow while it is watched?

    python benchmarks/dashboard_memory.py [--minutes 10]

A live engine without a model under load, a dashboard, one browser on the page Pool; the resident memory
of the dashboard's server twice a minute, and the growth after the first two minutes.
"""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import typer
from playwright.sync_api import sync_playwright

from engine.service.ports import free_port

ROOT = Path(__file__).parents[1]
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


def until_up(url: str) -> None:
    while True:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)


def main(minutes: float = 10) -> None:
    """Print resident memory over time, and its growth."""
    engine_port, port = free_port(), free_port()
    engine = f"http://127.0.0.1:{engine_port}"
    glasspool = [sys.executable, "-m", "engine.cli"]
    quiet = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    serve = ["serve", "--model", "none", "--num-gpu-blocks-override", "160"]
    server = subprocess.Popen([*glasspool, *serve, "--port", str(engine_port)], **quiet)
    until_up(f"{engine}/health")
    watch = [*glasspool, "dashboard", "--engine", engine, "--port", str(port)]
    dashboard = subprocess.Popen(watch, **quiet)
    stop = threading.Event()
    clients = threading.Thread(target=lambda: asyncio.run(load(engine, stop)), daemon=True)
    try:
        until_up(f"http://127.0.0.1:{port}/_stcore/health")
        clients.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(f"http://127.0.0.1:{port}")
            process, started, seen = psutil.Process(dashboard.pid), time.monotonic(), []
            while (elapsed := time.monotonic() - started) < minutes * 60:
                page.wait_for_timeout(30_000)
                seen.append((elapsed, process.memory_info().rss / 1e6))
                print(f"{elapsed / 60:5.1f} min  {seen[-1][1]:7.1f} MB", flush=True)
            browser.close()
    finally:
        stop.set()
        for part in (dashboard, server):
            part.terminate()
            part.wait()
    first = next(size for elapsed, size in seen if elapsed >= WARM_UP_SECONDS)
    print(f"growth after {WARM_UP_SECONDS / 60:g} minutes: {seen[-1][1] - first:+.1f} MB")


if __name__ == "__main__":
    typer.run(main)
