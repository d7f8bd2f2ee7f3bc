"""`glasspool capacity`: how many sequences a KV cache holds, and why an engine runs fewer."""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from engine.core.config import ConfigError
from engine.core.memory_size import parse_bytes
from engine.events import PoolState, TraceReader, decode
from engine.events.records import Header, Keyframe
from engine.events.trace import MAX_LINE_BYTES
from engine.lab.capacity import GpuBudget, Sizing, parse_lengths
from engine.lab.capacity_report import CapacityReport, as_data, print_report
from engine.lab.model_shapes import ModelShape, model_shape
from engine.lab.observation import Observation, observe, observe_trace
from engine.lab.reconciliation import own_sizing, reconcile

KEY_VARIABLE = "GLASSPOOL_API_KEY"
LENGTHS = "512,1024,2048,4096,8192,16384,32768"
CONNECT_SECONDS = 10


def capacity(
    model: Annotated[
        str | None,
        typer.Option(help="A folder with a config.json, or a public model such as Qwen2.5-0.5B."),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Instead of a model: its layers.")] = None,
    kv_heads: Annotated[int | None, typer.Option(help="Instead of a model: its KV heads.")] = None,
    head_dim: Annotated[
        int | None, typer.Option(help="Instead of a model: numbers of one head.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Of the KV cache: bfloat16, float16, float32, fp8; the model's own."),
    ] = None,
    kv_cache_memory: Annotated[
        str | None, typer.Option(help="Memory of the KV cache, such as 12.4GB or 8GiB.")
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Instead: a GPU's memory, of which the rest is taken off.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float, typer.Option(help="Share of the GPU's memory that the engine may use.")
    ] = 0.9,
    weights: Annotated[
        str | None, typer.Option(help="The weights' size; by default that of the checkpoint.")
    ] = None,
    overhead: Annotated[
        str, typer.Option(help="What else takes GPU memory: activations, CUDA graphs.")
    ] = "0",
    block_size: Annotated[
        int | None, typer.Option(help="Slots in a block; 16, or the engine's.")
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help=f"Tokens of a sequence, a list; {LENGTHS}, or the engine's longest."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Reconcile with this engine now; its key is read from GLASSPOOL_API_KEY."
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Reconcile with this recorded run at its fullest.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """How many sequences a KV cache holds; with an engine or a trace, why it runs other than so many.

    To reconcile, the first of the lengths is the one that the memory was sized for; without a memory,
    the engine's own pool is what it was sized with.
    """
    if engine is not None and trace is not None:
        raise ConfigError("--engine and --trace are two things to compare with: give one of them")
    has_memory = kv_cache_memory is not None or gpu_memory is not None
    if not has_memory and (
        (engine is None and trace is None)
        or any(x is not None for x in (model, layers, kv_heads, head_dim, dtype, block_size))
    ):
        raise ConfigError("give a memory: --kv-cache-memory 12.4GB, or --gpu-memory 24GiB")
    # What is given is checked before anything is read.
    numbers = None if lengths is None else parse_lengths(lengths)
    shape = _shape(model, layers, kv_heads, head_dim)
    header, seen = _observed(engine, trace)
    if shape is None and header is not None:
        shape = _shape_of_engine(header)
    if numbers is None:
        numbers = parse_lengths(
            str(header.config["max_model_len"]) if _tells_longest(header) else LENGTHS
        )
    if has_memory:
        if shape is None:
            raise ConfigError("give a --model, or --layers, --kv-heads and --head-dim")
        budget, memory = _memory(
            shape, kv_cache_memory, gpu_memory, gpu_memory_utilization, weights, overhead
        )
        dtype = shape.dtype if dtype is None else dtype
        size = block_size
        if size is None:
            size = seen.block_size if seen is not None else 16
        sizing = Sizing(shape.bytes_per_token(dtype), size, memory)
    else:
        budget, dtype, sizing = None, header.dtype, own_sizing(seen)
    report = CapacityReport(
        shape=shape,
        dtype=dtype,
        budget=budget,
        sizing=sizing,
        rows=sizing.rows(numbers),
        seen=seen,
        reconciliation=None if seen is None else reconcile(sizing, numbers[0], seen),
    )
    if json:
        print(msgspec.json.format(msgspec.json.encode(as_data(report)), indent=2).decode())
    else:
        print_report(_console(), report)


def _observed(engine: str | None, trace: Path | None) -> tuple[Header | None, Observation | None]:
    if engine is not None:
        state = engine_state(engine, os.environ.get(KEY_VARIABLE))
        return state.header, observe(state)
    if trace is not None:
        with TraceReader(trace) as reader:
            header = reader.header
        with _console(stderr=True).status("reading the trace") as status:

            def tell(done: int, total: int) -> None:
                status.update(f"reading the trace, twice: {done / max(1, total):.0%}")

            return header, observe_trace(trace, tell)
    return None, None


def _shape(
    model: str | None,
    layers: int | None,
    kv_heads: int | None,
    head_dim: int | None,
) -> ModelShape | None:
    """The model's shape by name or by numbers; None where neither is given."""
    numbers = (layers, kv_heads, head_dim)
    if any(number is not None for number in numbers):
        if None in numbers or model is not None:
            raise ConfigError(
                "--layers, --kv-heads and --head-dim stand together, instead of --model"
            )
        return ModelShape("as given", layers, kv_heads, head_dim)
    return None if model is None else model_shape(model)


def _shape_of_engine(header: Header) -> ModelShape | None:
    """The shape of an engine's model; None where it runs without one."""
    if not header.num_layers:
        return None
    return ModelShape(
        header.model,
        header.num_layers,
        header.num_kv_heads,
        header.head_dim,
        dtype=header.dtype,
        source=f"as engine {header.engine_name} tells",
    )


def _memory(
    shape: ModelShape,
    kv_cache_memory: str | None,
    gpu_memory: str | None,
    utilization: float,
    weights: str | None,
    overhead: str,
) -> tuple[GpuBudget | None, int]:
    """The terms, where they are a GPU's, and the bytes for KV."""
    if kv_cache_memory is not None and gpu_memory is not None:
        raise ConfigError("--kv-cache-memory and --gpu-memory say the same thing: give one of them")
    if kv_cache_memory is not None:
        return None, parse_bytes(kv_cache_memory)
    size = shape.weight_bytes if weights is None else parse_bytes(weights)
    if size is None:
        raise ConfigError("the size of the model's weights is not known: give --weights 16GB")
    budget = GpuBudget(parse_bytes(gpu_memory), utilization, size, parse_bytes(overhead))
    return budget, budget.kv_memory


def _tells_longest(header: Header | None) -> bool:
    return header is not None and isinstance(header.config.get("max_model_len"), int)


def engine_state(url: str, api_key: str | None) -> PoolState:
    """The pool of a live engine now, from the beginning of its event stream. Raises ConfigError."""
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.sync.client import connect

    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no engine's address: write it like http://127.0.0.1:8000")
    address = f"ws{url.removeprefix('http').rstrip('/').removesuffix('/v1')}/v1/events"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with connect(
            address,
            max_size=MAX_LINE_BYTES,
            open_timeout=CONNECT_SECONDS,
            close_timeout=1,
            proxy=None,
            additional_headers=headers,
        ) as socket:
            state = None
            while state is None or not state.complete:
                for line in socket.recv(timeout=CONNECT_SECONDS, decode=False).splitlines():
                    record = decode(line)
                    if isinstance(record, Header):
                        state = PoolState(record)
                    elif isinstance(record, Keyframe) and state is not None:
                        state.apply(record)
            return state
    except InvalidStatus as error:
        status = error.response.status_code
        remedy = f"set its key in {KEY_VARIABLE}" if status in (401, 403) else "is it Glasspool?"
        raise ConfigError(f"{url} answers {status}: {remedy}") from None
    except (OSError, TimeoutError, WebSocketException, ValueError) as error:
        what = str(error) or type(error).__name__
        raise ConfigError(
            f"no event stream at {url} ({what}): start an engine there, or give another --engine"
        ) from None


def _console(stderr: bool = False) -> Console:
    """Where it is no terminal, wide enough that no figure is cut."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(highlight=False, stderr=stderr, width=None if stream.isatty() else 140)
