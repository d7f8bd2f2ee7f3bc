"""`glasspool demo`: an engine on a small pool, clients that overload it now and then, the dashboard.

Engine and dashboard are processes of their own; the clients run here. Whatever ends first, or a
signal, ends all of them.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console

from dashboard.launch import launch_command
from engine.core.config import ConfigError
from engine.service.ports import check_port
from engine.workloads.chat import chat_requests

CLIENTS = 12
SECONDS_TO_STOP = 15


@dataclass(frozen=True)
class DemoSettings:
    """The options of `glasspool demo`. `seconds` None runs until a signal."""

    host: str
    port: int
    dashboard_port: int
    num_blocks: int
    record: Path | None
    seconds: float | None
    seed: int


def run_demo(settings: DemoSettings) -> None:
    """Run the demo. Raises ConfigError where a port is taken or a part does not start."""
    check_port(settings.host, settings.port, "--port")
    check_port(settings.host, settings.dashboard_port, "--dashboard-port")
    asyncio.run(_Demo(settings).run())


class _Demo:
    def __init__(self, settings: DemoSettings) -> None:
        self.settings = settings
        self.console = Console(stderr=True, highlight=False)
        self.engine_url = f"http://{settings.host}:{settings.port}"
        self.dashboard_url = f"http://{settings.host}:{settings.dashboard_port}"
        self.stop = asyncio.Event()
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.stop.set)
        try:
            await self._start_all()
            if not self.stop.is_set():
                await self._serve_clients()
        finally:
            await self._stop_all()

    async def _start_all(self) -> None:
        await self._start("engine", self._engine_argv(), {})
        await self._start(
            "dashboard",
            *launch_command(self.engine_url, self.settings.host, self.settings.dashboard_port),
        )
        await self._until_up("engine", f"{self.engine_url}/health")
        await self._until_up("dashboard", f"{self.dashboard_url}/_stcore/health")
        if self.stop.is_set():
            return
        self.console.print(f"\n  dashboard  [bold]{self.dashboard_url}[/bold]")
        self.console.print(f"  engine     {self.engine_url}  (docs at /docs, metrics at /metrics)")
        self.console.print("  Ctrl-C stops everything\n")

    async def _serve_clients(self) -> None:
        # The engine inherits this environment, and so asks for the key that is in it.
        key = os.environ.get("GLASSPOOL_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(
            base_url=self.engine_url, headers=headers, timeout=None
        ) as http:
            clients = [
                asyncio.ensure_future(self._client(http, number)) for number in range(CLIENTS)
            ]
            stopped = asyncio.ensure_future(self.stop.wait())
            try:
                await asyncio.wait(
                    [stopped, *clients, *self._exits()],
                    timeout=self.settings.seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not self.stop.is_set():
                    self._refuse_early_exit()
                    for client in clients:
                        if client.done():
                            client.result()
            finally:
                for task in (stopped, *clients):
                    task.cancel()
                await asyncio.gather(stopped, *clients, return_exceptions=True)

    async def _client(self, http: httpx.AsyncClient, number: int) -> None:
        """One client: asks, waits for the answer, thinks for a while, asks again."""
        draw = random.Random(self.settings.seed + number)
        await asyncio.sleep(number * 0.5)
        for body in chat_requests(self.settings.seed + number):
            answer = await http.post("/v1/completions", json=body)
            if answer.status_code != 200:
                if self.stop.is_set():
                    return
                raise ConfigError(f"the engine refused a request of the demo: {answer.text}")
            await asyncio.sleep(draw.expovariate(2.0))

    # -- processes ----------------------------------------------------------------------------

    def _engine_argv(self) -> list[str]:
        settings = self.settings
        argv = [sys.executable, "-m", "engine.cli", "serve"]
        argv += ["--host", settings.host, "--port", str(settings.port)]
        argv += ["--num-gpu-blocks-override", str(settings.num_blocks), "--block-size", "16"]
        argv += ["--max-model-len", "512", "--max-num-seqs", "24", "--record-text"]
        # The demo's own clients are gone when it stops.
        argv += ["--shutdown-timeout", "0"]
        if settings.record is not None:
            argv += ["--record", str(settings.record)]
        return argv

    async def _start(self, name: str, argv: list[str], environment: dict[str, str]) -> None:
        if not self.stop.is_set():
            self.processes[name] = await asyncio.create_subprocess_exec(
                *argv, env={**os.environ, **environment}
            )

    async def _until_up(self, name: str, url: str) -> None:
        """Wait until `url` answers, the process ends or a signal comes."""
        async with httpx.AsyncClient() as http:
            while not self.stop.is_set():
                self._refuse_early_exit()
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get(url)).status_code == 200:
                        return
                await asyncio.sleep(0.1)

    def _refuse_early_exit(self) -> None:
        for name, process in self.processes.items():
            if process.returncode is not None:
                raise ConfigError(
                    f"the {name} ended with exit code {process.returncode}; "
                    "its last lines above say why"
                )

    def _exits(self) -> Iterator[asyncio.Future]:
        for process in self.processes.values():
            yield asyncio.ensure_future(process.wait())

    async def _stop_all(self) -> None:
        self.stop.set()
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for name, process in self.processes.items():
            try:
                await asyncio.wait_for(process.wait(), SECONDS_TO_STOP)
            except TimeoutError:
                self.console.print(f"the {name} does not stop; it is killed")
                process.kill()
                await process.wait()
        self.console.print("stopped")
