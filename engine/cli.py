"""`glasspool …`: the command line."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from engine import __version__
from engine.bench.commands import app as bench_app
from engine.capacity_command import capacity
from engine.core.config import ConfigError
from engine.events import TraceError
from engine.lab_commands import app as lab_app
from engine.simulate_commands import app as simulate_app
from engine.trace_commands import app as trace_app

# No import of torch or streamlit here: `--help` and the dashboard start without the engine's weight.

app = typer.Typer(
    name="glasspool",
    help="A paged-KV-cache LLM engine with a glass wall.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


app.add_typer(bench_app, name="bench")
app.add_typer(lab_app, name="lab")
app.add_typer(trace_app)
app.command()(capacity)
app.add_typer(simulate_app)


@app.command()
def serve(
    model: Annotated[
        str, typer.Option(help="The default model, a local folder, a hub name; none: no model.")
    ] = "SmolLM2-135M-Instruct",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    engine_name: Annotated[str, typer.Option(help="Name shown in dashboards.")] = "glasspool",
    dtype: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16, float16; by default what the machine is fast in."),
    ] = None,
    block_size: Annotated[int, typer.Option(help="Slots in a block.")] = 16,
    num_gpu_blocks_override: Annotated[
        int | None, typer.Option(help="Blocks in the pool, instead of what memory allows.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float, typer.Option(help="Share of a GPU's memory for weights and KV cache.")
    ] = 0.9,
    kv_cache_memory: Annotated[
        str, typer.Option(help="Memory of the KV cache on a CPU, such as 512MiB.")
    ] = "1GiB",
    max_model_len: Annotated[
        int | None, typer.Option(help="Most tokens of a sequence; by default what the model knows.")
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Most running sequences.")] = 64,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="Most tokens run through the model in one step.")
    ] = None,
    enable_prefix_caching: Annotated[
        bool, typer.Option(help="Share the blocks of equal prompts' beginnings.")
    ] = True,
    enable_chunked_prefill: Annotated[
        bool, typer.Option(help="Compute a long prompt over several steps.")
    ] = True,
    long_prefill_token_threshold: Annotated[
        int, typer.Option(help="Most tokens of one sequence in a step; 0: no limit.")
    ] = 0,
    watermark: Annotated[
        float, typer.Option(help="Share of the pool left free when a request starts beside others.")
    ] = 0.01,
    max_num_queued_reqs: Annotated[
        int, typer.Option(help="Most waiting requests; more are refused. 0: no limit.")
    ] = 0,
    scheduling_policy: Annotated[
        str, typer.Option(help="fcfs, or priority: requests with a lower number first.")
    ] = "fcfs",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="GLASSPOOL_API_KEY",
            help="Clients must send this key; better set in the environment, where ps shows it not.",
        ),
    ] = None,
    allowed_origins: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may use the server; again for more. *: any."),
    ] = None,
    shutdown_timeout: Annotated[
        float,
        typer.Option(help="Seconds that running requests have to end after SIGTERM or Ctrl-C."),
    ] = 30.0,
    record: Annotated[
        Path | None, typer.Option(help="Record every event to this .jsonl.zst file.")
    ] = None,
    record_text: Annotated[
        bool, typer.Option(help="Let events carry the text of prompts and outputs.")
    ] = False,
    record_max_size: Annotated[
        str | None,
        typer.Option(help="Go on in a new file beyond this size, such as 512MiB."),
    ] = None,
    record_fsync: Annotated[
        bool,
        typer.Option(help="Wait for the disk at each flush, so that a power cut loses no more."),
    ] = False,
    events: Annotated[
        bool, typer.Option(help="Make events; off only to measure what they cost.")
    ] = True,
) -> None:
    """Serve a model, and the events of its block pool."""
    _log_to_stderr()
    logging.getLogger("glasspool").info("starting %s", __version__)
    from engine.service.server import serve as run
    from engine.service.settings import ServeSettings

    run(
        ServeSettings(
            model=model,
            host=host,
            port=port,
            engine_name=engine_name,
            dtype=dtype,
            block_size=block_size,
            num_gpu_blocks_override=num_gpu_blocks_override,
            gpu_memory_utilization=gpu_memory_utilization,
            kv_cache_memory=kv_cache_memory,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            enable_chunked_prefill=enable_chunked_prefill,
            long_prefill_token_threshold=long_prefill_token_threshold,
            watermark=watermark,
            max_num_queued_reqs=max_num_queued_reqs,
            scheduling_policy=scheduling_policy,
            api_key=api_key,
            allowed_origins=tuple(allowed_origins or ()),
            shutdown_timeout=shutdown_timeout,
            record=record,
            record_text=record_text,
            record_max_size=record_max_size,
            record_fsync=record_fsync,
            events=events,
        )
    )


@app.command()
def demo(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the engine.")] = 8000,
    dashboard_port: Annotated[int, typer.Option(help="Port of the dashboard.")] = 8501,
    num_blocks: Annotated[
        int, typer.Option(help="Blocks in the pool; few, so that it fills.")
    ] = 96,
    record: Annotated[
        Path | None, typer.Option(help="Record the run to this .jsonl.zst file.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so many seconds of traffic.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 0,
) -> None:
    """Start an engine on a small pool, traffic, and the dashboard."""
    from engine.demo import DemoSettings, run_demo

    run_demo(DemoSettings(host, port, dashboard_port, num_blocks, record, seconds, seed))


@app.command()
def dashboard(
    engine: Annotated[
        list[str] | None,
        typer.Option(help="A live engine, such as http://127.0.0.1:8000; again for more."),
    ] = None,
    trace: Annotated[
        list[Path] | None, typer.Option(help="A recorded .jsonl.zst file; again for more.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8501,
) -> None:
    """Show live engines and recorded ones. An API key of the engines is read from GLASSPOOL_API_KEY."""
    from dashboard.launch import launch_command
    from dashboard.source import SourceError
    from engine.events import TraceReader
    from engine.service.ports import base_url, check_port

    engines, traces = engine or [], trace or []
    for url in engines:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url} is no engine's address: write it like http://127.0.0.1:8000")
    for path in traces:
        TraceReader(path).close()
    check_port(host, port, "--port")
    try:
        argv, environment = launch_command([*engines, *map(str, traces)], host, port)
    except SourceError as error:
        raise ConfigError(str(error)) from None
    print(f"dashboard on {base_url(host, port)}", file=sys.stderr)
    os.execve(argv[0], argv, {**os.environ, **environment})


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(help="A recorded .jsonl.zst file.", metavar="TRACE")],
    serve: Annotated[
        bool, typer.Option("--serve", help="Play it to clients of WS /v1/events, like an engine.")
    ] = False,
    speed: Annotated[float, typer.Option(help="Times as fast as it was recorded.")] = 1.0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
) -> None:
    """Play a recording to whoever watches an engine: to test and to teach with."""
    if not serve:
        raise ConfigError(
            f"add --serve to play {trace} to clients of the event stream; "
            f"to look at it: glasspool dashboard --trace {trace}"
        )
    _log_to_stderr()
    from engine.service.replay_server import serve_replay

    serve_replay(trace, host, port, speed)


@app.command()
def monitor(
    engine: Annotated[
        list[str] | None,
        typer.Option(help="An engine to watch, http://127.0.0.1:8000 by default; again for more."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="GLASSPOOL_API_KEY",
            help="The engines' key; better set in the environment, where ps shows it not.",
        ),
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(help="URL that alerts are posted to, by Alertmanager.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Keep what was seen in this folder, for the next time.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of Prometheus.")] = 9090,
    alertmanager_port: Annotated[int, typer.Option(help="Port of Alertmanager.")] = 9093,
) -> None:
    """Watch engines with a local Prometheus and Alertmanager, and be told of wasted work."""
    from engine.monitor import MonitorSettings, run_monitor

    engines = tuple(engine or ["http://127.0.0.1:8000"])
    run_monitor(MonitorSettings(engines, port, alertmanager_port, api_key, data, webhook))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("glasspool")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def main() -> None:
    """Errors that a user can mend are one line, not a traceback."""
    try:
        app()
    except (ConfigError, TraceError) as error:
        print(f"glasspool: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
