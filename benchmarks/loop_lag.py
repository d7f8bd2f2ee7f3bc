"""How long does the server's event loop keep others waiting while the model runs?

    python -m benchmarks.loop_lag [--streams 16] [--tokens 40] [--model SmolLM2-135M-Instruct]

Starts a server, streams, and asks /health over and over meanwhile; beside its latency stands the
length of a step, from /metrics. A loop that waited for the engine would take a step to answer.
"""

import asyncio
import re
import time

import httpx
import typer

from benchmarks.started import Started


async def measure(url: str, streams: int, tokens: int) -> list[float]:
    """Sorted seconds of each answer of /health while `streams` requests run."""
    waits: list[float] = []

    async def stream(http: httpx.AsyncClient, number: int) -> None:
        body = {"prompt": f"Story {number}:", "max_tokens": tokens, "ignore_eos": True}
        async with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
            answer.raise_for_status()
            async for _ in answer.aiter_lines():
                pass

    async def ask(http: httpx.AsyncClient) -> None:
        while True:
            started = time.perf_counter()
            await http.get("/health")
            waits.append(time.perf_counter() - started)
            await asyncio.sleep(0.01)

    async with httpx.AsyncClient(base_url=url, timeout=None) as http:
        asking = asyncio.ensure_future(ask(http))
        await asyncio.gather(*(stream(http, number) for number in range(streams)))
        asking.cancel()
    return sorted(waits)


def mean_step(url: str) -> float:
    text = httpx.get(f"{url}/metrics").text
    total, count = (
        float(re.search(rf"step_duration_seconds_{part} (\S+)", text)[1])
        for part in ("sum", "count")
    )
    return total / count


def main(streams: int = 16, tokens: int = 40, model: str = "SmolLM2-135M-Instruct") -> None:
    """Print the latencies of /health, and their ratios to a step."""
    with Started("serve", "--model", model) as server:
        waits = asyncio.run(measure(server.url, streams, tokens))
        step = mean_step(server.url)
    print(f"{streams} streams, a step takes {step * 1e3:.1f} ms in the mean")
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        wait = waits[int(share * (len(waits) - 1))]
        print(f"/health {name} {wait * 1e3:7.1f} ms = {wait / step:.3f} of a step")


if __name__ == "__main__":
    typer.run(main)
