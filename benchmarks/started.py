"""A `glasspool …` process that a benchmark measures: on a free port, and awaited until it answers."""

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import httpx

from engine.service.ports import free_port

ROOT = Path(__file__).parents[1]
ASK_EVERY_SECONDS = 0.2


class Started:
    """`glasspool ARGS…` at `url`, once `health` answers there; what it says is dropped."""

    def __init__(self, *args: str, health: str = "/health") -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.events_url = f"ws://127.0.0.1:{port}/v1/events"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "engine.cli", *args, "--port", str(port)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._process.pid
        try:
            while not self._answers(health):
                time.sleep(ASK_EVERY_SECONDS)
        except BaseException:
            self.stop()
            raise

    def _answers(self, health: str) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"`glasspool {self._process.args[3]}` ended before it was up")
        try:
            return httpx.get(f"{self.url}{health}").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> "Started":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
