"""The command line of the benches."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure what paging costs and what it buys, here.", no_args_is_help=True)


@app.command()
def throughput(
    model: Annotated[str, typer.Option(help="As for serve.")] = "SmolLM2-135M-Instruct",
    memory_tokens: Annotated[int, typer.Option(help="Slots of the KV cache, both ways.")] = 4096,
    max_model_len: Annotated[int, typer.Option(help="What naive reservation takes a sequence.")] = 512,
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


def _numbers(text: str) -> tuple[int, ...]:
    from engine.core.config import ConfigError

    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"{text} is no list of numbers above 0: write it like 1,8,32")
    return numbers
