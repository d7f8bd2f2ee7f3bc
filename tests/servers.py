"""Starting `glasspool …` as users do, for tests: a process, its output, a clean end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

import httpx

from engine.service.ports import free_port


def wait_until(condition: Callable[[], object], seconds: float = 30, what: str = "") -> None:
    """Wait for a condition; fail with `what` after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.02)


class Process:
    """`glasspool ARGS…` in a process group of its own. `output` grows while it runs."""

    def __init__(self, *args: str, **environment: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "engine.cli", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        self.output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.popen.stdout:
            self.output += line

    def __enter__(self):
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)
            raise AssertionError(f"it did not stop:\n{self.output}") from None
        self._reader.join(10)
        return code


class EngineServer(Process):
    """`glasspool serve`, ready."""

    def __init__(self, *args: str, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.events_url = f"ws://127.0.0.1:{self.port}/v1/events"
        super().__init__("serve", "--port", str(self.port), *args, **environment)
        try:
            wait_until(self._ready, 120, "the engine is ready")
        except BaseException:
            self.stop()
            print(self.output)
            raise

    def _ready(self) -> bool:
        assert self.popen.poll() is None, self.output
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.TransportError:
            return False

    def complete(self, prompt: str | list[int], **body: object) -> httpx.Response:
        return httpx.post(
            f"{self.url}/v1/completions", json={"prompt": prompt, **body}, timeout=120
        )
