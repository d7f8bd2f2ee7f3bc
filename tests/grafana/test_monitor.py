"""`glasspool monitor`: what it starts, what it keeps to itself, how it ends and what it refuses."""

import os
import signal
import stat
import subprocess
import sys

import httpx
import psutil
import pytest

from engine.core.config import ConfigError
from engine.monitor import Monitor, MonitorSettings
from engine.service.ports import free_port
from grafana.spec.parameters import Parameters
from tests.conftest import needs
from tests.servers import Process, wait_until


def both_programs(test):
    return needs("prometheus")(needs("prometheus-alertmanager")(test))


def settings(**changes: object) -> MonitorSettings:
    usual = {"engines": ("http://127.0.0.1:8000",), "port": 0, "alertmanager_port": 0}
    return MonitorSettings(**usual | changes)


def targets(url: str) -> set[tuple[str, str]]:
    """Job and address of all that a Prometheus scrapes."""
    found = httpx.get(f"{url}/api/v1/targets").json()["data"]["activeTargets"]
    return {(target["labels"]["job"], target["scrapeUrl"]) for target in found}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The command over two engines that are not there, with a key; then its end."""
    folder = tmp_path_factory.mktemp("data")
    port, alertmanager_port = free_port(), free_port()
    options = ["--port", str(port), "--alertmanager-port", str(alertmanager_port)]
    options += ["--engine", "http://127.0.0.1:1", "--engine", "https://127.0.0.1:2"]
    options += ["--data", str(folder), "--webhook", "http://127.0.0.1:3/"]
    seen = {"folder": folder}
    with Process("monitor", *options, GLASSPOOL_API_KEY="secret-of-the-test") as process:
        wait_until(lambda: "Ctrl-C stops both" in process.output, 40, "it says its addresses")
        url = f"http://127.0.0.1:{port}"
        seen["told"] = process.output
        seen["url"] = url
        seen["config"] = httpx.get(f"{url}/api/v1/status/config").text
        wait_until(lambda: len(targets(url)) == 2, 30, "both are targets")
        seen["targets"] = targets(url)
        seen["mode"] = stat.S_IMODE((folder / "engine-key").stat().st_mode)
        children = psutil.Process(process.popen.pid).children(recursive=True)
        seen["listening"] = {
            connection.laddr.ip
            for child in children
            for connection in child.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        seen["code"] = process.stop(signal.SIGINT)
        seen["left"] = [child for child in children if child.is_running()]
        for child in seen["left"]:
            child.kill()
    return seen


@both_programs
def test_it_tells_where_to_look(watched):
    assert f"{watched['url']}/alerts" in watched["told"]


@both_programs
def test_every_engine_is_a_target_of_the_same_job(watched):
    assert watched["targets"] == {
        ("glasspool", "http://127.0.0.1:1/metrics"),
        ("glasspool", "https://127.0.0.1:2/metrics"),
    }


@both_programs
def test_only_this_machine_can_reach_it(watched):
    assert watched["listening"] == {"127.0.0.1"}


@both_programs
def test_the_key_is_in_a_file_of_its_owner_and_gone_at_the_end(watched):
    assert watched["mode"] == 0o600
    assert "engine-key" in watched["config"]
    assert "secret-of-the-test" not in watched["config"]
    assert not (watched["folder"] / "engine-key").exists()


@both_programs
def test_a_signal_ends_both_and_keeps_the_data(watched):
    assert watched["code"] == 0
    assert watched["left"] == []
    assert (watched["folder"] / "prometheus").is_dir()


@both_programs
def test_a_program_that_ends_early_ends_the_other(tmp_path):
    """A data folder that a file is in the way of: Prometheus can't start on it."""
    (tmp_path / "prometheus").write_text("in the way")
    monitor = Monitor(
        settings(data=tmp_path, port=free_port(), alertmanager_port=free_port()), Parameters()
    )
    with pytest.raises(ConfigError, match="prometheus ended with exit code"), monitor:
        pass
    assert all(process.poll() is not None for process in monitor.processes.values())


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://x", "http://", "http://x/metrics"])
def test_a_wrong_address_is_named(address):
    with pytest.raises(ConfigError, match="is no engine's address: write it like http://"):
        Monitor(settings(engines=(address,)), Parameters())


def test_a_wrong_webhook_is_named():
    with pytest.raises(ConfigError, match="pager is no address to post alerts to"):
        Monitor(settings(webhook="pager"), Parameters())


@both_programs
def test_a_folder_for_data_that_is_a_file_is_named(tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(ConfigError, match="choose another folder with --data"):
        Monitor(settings(data=taken), Parameters()).__enter__()


def test_missing_programs_are_named_with_their_packages():
    done = subprocess.run(
        [sys.executable, "-m", "engine.cli", "monitor"],
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("glasspool: prometheus and prometheus-alertmanager can't be found")
    assert "install --no-install-recommends prometheus prometheus-alertmanager" in line


def test_it_needs_neither_torch_nor_grafanas_types():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['grafana_foundation_sdk'] = None\n"
        "import engine.monitor"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
