"""The command line of the benches."""

from pathlib import Path
from typing import Annotated

import typer

from engine.bench.serve_command import serve

app = typer.Typer(
    help="Measure what paging costs and what it buys, here; and how any server bears a load.",
    no_args_is_help=True,
)
app.command()(serve)


@app.command()
def throughput(
    model: Annotated[str, typer.Option(help="As for serve.")] = "SmolLM2-135M-Instruct",
    memory_tokens: Annotated[int, typer.Option(help="Slots of the KV cache, both ways.")] = 4096,
    max_model_len: Annotated[
        int, typer.Option(help="What naive reservation takes a sequence.")
    ] = 512,
    batch: Annotated[str, typer.Option(help="Most running sequences, a list.")] = "1,4,8,16,32",
    requests: Annotated[int, typer.Option(help="Requests of each run.")] = 32,
    repeats: Annotated[int, typer.Option(help="Interleaved runs of each point.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Folder for the data and a picture.")] = None,
) -> None:
    """Tokens a second against batch size: naive reservation and paging in the same memory."""
    from rich.console import Console

    from engine.bench import report
    from engine.bench import throughput as bench
    from engine.model.weights import load_model

    console = Console(stderr=True)
    with console.status("loading") as status:
        loaded = load_model(model, None, status.update)
        settings = bench.ThroughputSettings(
            memory_tokens=memory_tokens,
            max_model_len=max_model_len,
            batch_sizes=_numbers(batch),
            requests=requests,
            prompt_tokens=(16, 64),
            output_tokens=(16, 64),
            repeats=repeats,
        )
        rows = bench.measure(loaded, settings, status.update)
    report.show(f"{model}: {memory_tokens:,} slots", rows, bench.UNITS)
    if out is not None:
        for path in report.save(out, "throughput", rows, bench.chart(rows)):
            console.print(f"wrote {path}")


@app.command()
def attention(
    heads: Annotated[int, typer.Option(help="Query heads.")] = 9,
    kv_heads: Annotated[int, typer.Option(help="Key and value heads.")] = 3,
    head_dim: Annotated[int, typer.Option(help="Width of a head.")] = 64,
    batch: Annotated[str, typer.Option(help="Rows, a list.")] = "1,8,32",
    context: Annotated[str, typer.Option(help="Keys of each row, a list.")] = "256,1024",
    block_size: Annotated[str, typer.Option(help="Tokens in a block, a list.")] = "1,8,16,32,128",
    repeats: Annotated[int, typer.Option(help="Paired calls of each point.")] = 50,
    out: Annotated[Path | None, typer.Option(help="Folder for the data and a picture.")] = None,
) -> None:
    """One decode step's attention: over block tables against over contiguous keys."""
    import torch
    from rich.console import Console

    from engine.bench import attention as bench
    from engine.bench import report

    console = Console(stderr=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = bench.AttentionSettings(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=torch.float16 if device == "cuda" else torch.float32,
        device=device,
        batches=_numbers(batch),
        contexts=_numbers(context),
        block_sizes=_numbers(block_size),
        repeats=repeats,
    )
    with console.status("measuring") as status:
        rows = bench.measure(settings, status.update)
    report.show(f"decode attention on {device}, {settings.dtype}", rows, bench.UNITS)
    if out is not None:
        for path in report.save(out, "attention", rows, bench.chart(rows)):
            console.print(f"wrote {path}")


def _numbers(text: str) -> tuple[int, ...]:
    from engine.core.config import ConfigError

    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"{text} is no list of numbers above 0: write it like 1,8,32")
    return numbers
