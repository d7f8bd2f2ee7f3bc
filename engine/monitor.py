"""`glasspool monitor`: a local Prometheus and Alertmanager that watch engines, with Glasspool's rules.

Both are programs of the system, listen on loopback, and end with this one.
"""

import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from rich.console import Console

from engine.core.config import ConfigError
from engine.service.ports import check_port
from engine.service.settings import checked_api_key
from grafana.prometheus_files import Target, alertmanager_config, prometheus_config, rules
from grafana.spec.parameters import Parameters
from grafana.yaml_text import yaml_text

HOST = "127.0.0.1"
SECONDS_TO_START = 30
SECONDS_TO_STOP = 15
# Debian's package calls it by the longer name, so that it comes first.
PROGRAMS = {
    "prometheus": ("prometheus",),
    "prometheus-alertmanager": ("prometheus-alertmanager", "alertmanager"),
}
RUNBOOKS = Path(__file__).parents[1] / "docs" / "runbooks"


@dataclass(frozen=True)
class MonitorSettings:
    """The options of `glasspool monitor`. `data` None: a temporary folder, removed at the end."""

    engines: tuple[str, ...]
    port: int
    alertmanager_port: int
    api_key: str | None = None
    data: Path | None = None
    webhook: str | None = None


def run_monitor(settings: MonitorSettings) -> None:
    """Watch until a signal comes. Raises ConfigError where something is missing or ends early."""
    console = Console(stderr=True, highlight=False)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    parameters = Parameters()
    if RUNBOOKS.is_dir():
        parameters = replace(parameters, runbooks=RUNBOOKS.as_uri())
    with Monitor(settings, parameters) as monitor:
        console.print(f"\n  alerts        [bold]{monitor.prometheus_url}/alerts[/bold]")
        console.print(f"  Prometheus    {monitor.prometheus_url}")
        console.print(f"  Alertmanager  {monitor.alertmanager_url}")
        console.print(f"  watching      {', '.join(settings.engines)}")
        console.print(f"  told          {settings.webhook or 'nobody (see --webhook)'}")
        console.print("  Ctrl-C stops both\n")
        while not stop.wait(0.2):
            monitor.refuse_early_exit()
    console.print("stopped")


class Monitor:
    """Prometheus and Alertmanager as processes: both ready inside `with`, both gone after it."""

    def __init__(self, settings: MonitorSettings, parameters: Parameters) -> None:
        """Raises ConfigError for a missing program, a taken port, a wrong address or key."""
        self.settings = settings
        self.parameters = parameters
        self.api_key = checked_api_key(settings.api_key)
        self.targets = [_target(url) for url in settings.engines]
        _check_webhook(settings.webhook)
        self.programs = _programs()
        check_port(HOST, settings.port, "--port")
        check_port(HOST, settings.alertmanager_port, "--alertmanager-port")
        self.prometheus_url = f"http://{HOST}:{settings.port}"
        self.alertmanager_url = f"http://{HOST}:{settings.alertmanager_port}"
        self.processes: dict[str, subprocess.Popen] = {}
        self._cleanup = ExitStack()

    def __enter__(self) -> "Monitor":
        with ExitStack() as cleanup:
            folder = self._folder(cleanup)
            self._write_files(folder, cleanup)
            cleanup.callback(self._stop)
            self._start("prometheus-alertmanager", _alertmanager_flags(self.settings, folder))
            self._start("prometheus", _prometheus_flags(self.settings, folder))
            self._wait(f"{self.alertmanager_url}/-/ready")
            self._wait(f"{self.prometheus_url}/-/ready")
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cleanup.close()

    def refuse_early_exit(self) -> None:
        """Raises ConfigError when one of the two has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise ConfigError(
                    f"{name} ended with exit code {process.returncode}; "
                    "its last lines above say why"
                )

    def _folder(self, cleanup: ExitStack) -> Path:
        if self.settings.data is None:
            return Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="glasspool-")))
        try:
            self.settings.data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.settings.data} can't be used for data ({error.strerror}): "
                "choose another folder with --data"
            ) from None
        return self.settings.data.resolve()

    def _write_files(self, folder: Path, cleanup: ExitStack) -> None:
        key_file = None
        if self.api_key is not None:
            # A file, because Prometheus shows its configuration to everybody who asks.
            key_file = folder / "engine-key"
            key_file.unlink(missing_ok=True)
            key_file.touch(mode=0o600)
            key_file.write_text(self.api_key)
            cleanup.callback(key_file.unlink, missing_ok=True)
        alertmanager = f"{HOST}:{self.settings.alertmanager_port}"
        documents = {
            "prometheus.yml": prometheus_config(
                self.parameters, self.targets, alertmanager, key_file and key_file.name
            ),
            "rules.yml": rules(self.parameters),
            "alertmanager.yml": alertmanager_config(self.parameters, self.settings.webhook),
        }
        for name, document in documents.items():
            (folder / name).write_text(yaml_text(document))

    def _start(self, name: str, flags: list[str]) -> None:
        self.processes[name] = subprocess.Popen([self.programs[name], "--log.level=warn", *flags])

    def _wait(self, url: str) -> None:
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline:
            self.refuse_early_exit()
            try:
                with urllib.request.urlopen(url, timeout=1):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise ConfigError(f"{url} does not answer after {SECONDS_TO_START} s: try again")

    def _stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _programs() -> dict[str, str]:
    """The path of each program. Raises ConfigError with the packages of those that are missing."""
    found = {
        package: next(filter(None, map(shutil.which, names)), None)
        for package, names in PROGRAMS.items()
    }
    missing = [package for package, path in found.items() if path is None]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} can't be found on the PATH: on Debian and Ubuntu, "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    return found


def _target(url: str) -> Target:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
        raise ConfigError(f"{url} is no engine's address: write it like http://127.0.0.1:8000")
    return Target(parts.scheme, parts.netloc)


def _check_webhook(url: str | None) -> None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{url} is no address to post alerts to: write it like http://127.0.0.1:5001/alerts"
        )


def _prometheus_flags(settings: MonitorSettings, folder: Path) -> list[str]:
    return [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={HOST}:{settings.port}",
        f"--web.external-url=http://{HOST}:{settings.port}/",
    ]


def _alertmanager_flags(settings: MonitorSettings, folder: Path) -> list[str]:
    return [
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={HOST}:{settings.alertmanager_port}",
        f"--web.external-url=http://{HOST}:{settings.alertmanager_port}/",
        # Alone, it needs no port for its kind.
        "--cluster.listen-address=",
    ]
