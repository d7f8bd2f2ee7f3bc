"""`glasspool bench serve`: its options, and one run from them."""

import asyncio
import math
import resource
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from engine import __version__
from engine.bench.serve_prompts import Endpoint, Prompts
from engine.bench.serve_settings import ServeBenchSettings
from engine.core.config import ConfigError
from engine.workloads.named import Workload, parameters_help, read_parameters

if TYPE_CHECKING:
    from engine.bench.serve_load import Load
    from engine.bench.serve_report import ServeFigures

REFRESH_SECONDS = 0.2
STDOUT = Path("-")
INTERRUPTED = 130
CONNECTIONS = 65_536


def serve(
    url: Annotated[str, typer.Option(help="The server's address.")] = "http://127.0.0.1:8000",
    endpoint: Annotated[
        Endpoint, typer.Option(help="completions: prompts of exact length; chat: of about it.")
    ] = Endpoint.COMPLETIONS,
    model: Annotated[
        str | None, typer.Option(help="By default the first that the server names.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=["GLASSPOOL_API_KEY", "OPENAI_API_KEY"],
            help="Better in the environment, where other users cannot read it.",
        ),
    ] = None,
    workload: Annotated[
        Workload, typer.Option(help="What the requests are like.")
    ] = Workload.FIXED,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help=f"name=value of the workload; again for more. {parameters_help()}"),
    ] = None,
    input_len: Annotated[
        int, typer.Option(help="Tokens of a prompt (of a turn's message), or their mean.")
    ] = 256,
    output_len: Annotated[int, typer.Option(help="Tokens of an output, or their mean.")] = 128,
    range_ratio: Annotated[
        float, typer.Option(help="uniform: lengths from mean * (1 - this) to mean * (1 + this).")
    ] = 0.5,
    sigma: Annotated[
        float,
        typer.Option(
            help="Standard deviation of a length's logarithm; not for fixed, uniform, trace."
        ),
    ] = 1.0,
    trace: Annotated[
        Path | None,
        typer.Option(help="trace: an Azure LLM or BurstGPT CSV, or Mooncake JSON lines."),
    ] = None,
    scale_rate: Annotated[
        float, typer.Option(help="So many times as many requests a second.")
    ] = 1.0,
    scale_length: Annotated[
        float, typer.Option(help="Prompts and outputs so many times as long.")
    ] = 1.0,
    num_prompts: Annotated[
        int, typer.Option(help="Requests to send; of a trace, its first ones.")
    ] = 100,
    request_rate: Annotated[
        float | None,
        typer.Option(
            help="Requests a second, Poisson; inf: all at once. By default inf, a trace's own times.",
            show_default=False,
        ),
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(help="Most requests in flight; by default no limit.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of lengths, arrivals and prompts.")] = 0,
    ignore_eos: Annotated[
        bool,
        typer.Option(help="Ask for outputs of full length; vLLM and Glasspool can, OpenAI cannot."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds without a byte after which a request has failed.")
    ] = 300,
    json: Annotated[
        Path | None, typer.Option(help="Write the figures to this file too; -: to stdout.")
    ] = None,
) -> None:
    """Load any OpenAI-compatible server: latency percentiles and throughput, as a client sees them.

    Latencies count from the moment a request is really sent; how late after its due time that was is
    a row of its own. Exit code 1 where no request succeeded or the server went away.
    """
    settings = ServeBenchSettings(
        url=url,
        endpoint=endpoint,
        model=model,
        workload=workload,
        parameters=read_parameters(workload, parameter or []),
        input_len=input_len,
        output_len=output_len,
        range_ratio=range_ratio,
        sigma=sigma,
        trace=trace,
        scale_rate=scale_rate,
        scale_length=scale_length,
        num_prompts=num_prompts,
        request_rate=request_rate,
        max_concurrency=max_concurrency,
        seed=seed,
        ignore_eos=ignore_eos,
        timeout=timeout,
    )
    if json is not None and json != STDOUT:
        _check_writable(json)
    code = asyncio.run(_run(settings, api_key, json))
    if code:
        raise typer.Exit(code)


async def _run(settings: ServeBenchSettings, api_key: str | None, json: Path | None) -> int:
    """Run and report; returns the exit code."""
    from rich.console import Console

    from engine.bench import serve_report, serve_table
    from engine.bench.serve_client import Client
    from engine.bench.serve_load import Load

    requests = settings.requests()
    _allow_many_connections()
    started = datetime.now(UTC)
    async with Client(settings.url, settings.endpoint, api_key, settings.timeout) as client:
        served = await client.first_model()
        settings.model = settings.model or served
        if settings.model is None:
            raise ConfigError(f"{settings.url}/v1/models names no model: give one with --model")
        prompts = Prompts(settings.endpoint, settings.model, settings.ignore_eos, settings.seed)
        load = Load(client, prompts, settings.max_concurrency)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, load.stop)
        showing = asyncio.ensure_future(_show_progress(load, len(requests)))
        try:
            await load.run(requests, settings.closed_loop)
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
    figures = serve_report.figures(load, settings)
    title = f"{settings.model} at {settings.url}{settings.endpoint.path}: {settings.described()}"
    serve_table.show(Console(stderr=json == STDOUT, highlight=False), title, figures)
    if json is not None:
        _write(json, settings, started, figures)
    if load.interrupted:
        return INTERRUPTED
    return 1 if load.gone is not None or not figures.completed else 0


def _allow_many_connections() -> None:
    """Out of file handles, a server would seem to be gone; many shells allow 1,024 at first."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS if most == resource.RLIM_INFINITY else min(CONNECTIONS, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _show_progress(load: "Load", total: int) -> None:
    """A bar on stderr until cancelled."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("in flight {task.fields[in_flight]}  failed {task.fields[failed]}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as progress:
        bar = progress.add_task("", total=total, in_flight=0, failed=0)
        while True:
            in_flight = len(load.records) - load.ended
            progress.update(bar, completed=load.ended, in_flight=in_flight, failed=load.failed)
            progress.refresh()
            await asyncio.sleep(REFRESH_SECONDS)


def _check_writable(path: Path) -> None:
    """Before a long run, not after it."""
    if path.is_dir():
        raise ConfigError(f"{path} is no file to write: give --json another")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{path.parent} is no folder: make it, or give --json another")


def _write(
    path: Path, settings: ServeBenchSettings, started: datetime, figures: "ServeFigures"
) -> None:
    asked: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=str)
    if settings.request_rate == math.inf:
        asked["request_rate"] = "inf"  # JSON has no infinity
    run = {"glasspool": __version__, "date": started, "settings": asked}
    data = msgspec.json.format(
        msgspec.json.encode({**run, **msgspec.to_builtins(figures)}), indent=1
    )
    if path == STDOUT:
        print(data.decode())
    else:
        path.write_bytes(data + b"\n")
