"""What events cost: CPU of the engine's thread for each record, and throughput of a real model.

    python -m benchmarks.events_cost thread [--steps 1000] [--rounds 7] [--pace 0.005]
    python -m benchmarks.events_cost throughput [--rounds 5] [--sequences 16] [--tokens 48]

`thread`: the model-free runner, 64 running sequences, a step every `pace` seconds, as a GPU would have
it. CPU seconds of the engine's thread a step, with events, a recorder and 4 clients of the stream, less
the same without events.
`throughput`: SmolLM2 behind `glasspool serve`; output tokens a second with events, a recording and 4
clients, over those with --no-events; and the same of the CPU time that the server's process took, which a
busy machine disturbs less. Pairs of runs, one after the other in changing order; medians.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psutil
import typer
import uvicorn

from benchmarks.started import Started
from engine.core.config import EngineConfig, SamplingParams
from engine.core.runner import ModelFreeRunner, StepCost
from engine.core.sequence import Request
from engine.llm import LLMEngine
from engine.service.app import create_app
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.parts import model_free_parts
from engine.service.ports import free_port
from engine.service.recorder import Recording
from engine.service.server import header_of
from engine.service.settings import ServeSettings

CLIENTS = 4
app = typer.Typer()

# Reads and drops: what a viewer does with its records is its own affair.
_READER = """
import asyncio, sys
from websockets.asyncio.client import connect
async def read(url):
    async with connect(url, max_size=None) as stream:
        print("reads", flush=True)
        async for _ in stream: pass
async def main(): await asyncio.gather(*(read(sys.argv[1]) for _ in range(int(sys.argv[2]))))
asyncio.run(main())
"""


class Readers:
    """Clients of a stream, in a process of their own."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _READER, url, str(CLIENTS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(CLIENTS):
            self._process.stdout.readline()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


# -- the engine's thread ------------------------------------------------------------------------


def thread_round(steps: int, pace: float, events: bool, folder: Path) -> float:
    """CPU microseconds of the engine's thread a step, 64 sequences running."""
    sequences, prompt = 64, 128
    config = EngineConfig(
        block_size=16,
        num_blocks=sequences * (prompt + steps) // 16 + 2 * sequences,
        max_model_len=prompt + steps + 32,
        max_num_seqs=sequences,
        max_num_batched_tokens=8192 + sequences,
    )
    cost = StepCost(step=pace, prefill=0.0, decode=0.0, key=0.0)
    engine = LLMEngine(config, ModelFreeRunner(50_000, cost), events=events)
    parts = model_free_parts()
    header = header_of(ServeSettings("none"), config, parts)
    log = EventLog()
    thread = EngineThread(engine, log)
    if events:
        thread.record(Recording(folder / "run.jsonl.zst"), header)
    context = ServiceContext(thread, log, header, parts.tokenizer)
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(context, events=events),
            port=port,
            log_level="error",
            timeout_graceful_shutdown=1,
            ws_per_message_deflate=False,
        )
    )
    running = threading.Thread(target=server.run)
    running.start()
    while not server.started:
        time.sleep(0.01)
    readers = Readers(f"ws://127.0.0.1:{port}/v1/events") if events else None
    done = threading.Semaphore(0)
    requests = [
        Request(
            f"r{number}",
            [number * 1000 + token for token in range(prompt)],
            SamplingParams(max_tokens=steps, ignore_eos=True),
            time.monotonic(),
            on_finish=lambda _: done.release(),
        )
        for number in range(sequences)
    ]

    def clock() -> tuple[float, int]:
        return time.thread_time(), engine.steps

    thread.add(requests).result()
    while thread.call(clock).result()[1] < 20:
        time.sleep(0.001)
    cpu, step = thread.call(clock).result()
    for _ in range(sequences):
        done.acquire()
    cpu_after, step_after = thread.call(clock).result()
    if readers is not None:
        readers.stop()
    server.should_exit = True
    running.join()
    return (cpu_after - cpu) / (step_after - step) * 1e6


@app.command()
def thread(steps: int = 1000, rounds: int = 7, pace: float = 0.005) -> None:
    """CPU of the engine's thread for each step record."""
    told, quiet, differences = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            figures = {}
            for events in (number % 2 == 0, number % 2 == 1):
                figures[events] = thread_round(steps, pace, events, Path(folder))
            told.append(figures[True])
            quiet.append(figures[False])
            differences.append(figures[True] - figures[False])
            print(
                f"round {number + 1}: {figures[True]:.1f} us a step with, {figures[False]:.1f} without"
            )
    print(
        f"median of {rounds} pairs: {statistics.median(differences):.1f} us of CPU a step record "
        f"({statistics.median(told) / statistics.median(quiet):.2f} times the step without)"
    )


# -- throughput ---------------------------------------------------------------------------------


async def tokens_a_second(url: str, sequences: int, tokens: int) -> float:
    async with httpx.AsyncClient(base_url=url, timeout=None) as http:
        body = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        started = time.perf_counter()
        answers = await asyncio.gather(
            *(
                http.post("/v1/completions", json=body | {"prompt": f"Story {number}: once"})
                for number in range(sequences)
            )
        )
        seconds = time.perf_counter() - started
    return sum(answer.json()["usage"]["completion_tokens"] for answer in answers) / seconds


class Engine:
    """`glasspool serve` with SmolLM2, told to be quiet or with all that events bring."""

    def __init__(self, events: bool, folder: Path) -> None:
        options = ["--record", str(folder / "real.jsonl.zst")] if events else ["--no-events"]
        self._server = Started("serve", *options)
        self.url = self._server.url
        self._readers = Readers(self._server.events_url) if events else None

    def cpu(self) -> float:
        """CPU seconds of the server so far, all threads."""
        times = psutil.Process(self._server.pid).cpu_times()
        return times.user + times.system

    def stop(self) -> None:
        if self._readers is not None:
            self._readers.stop()
        self._server.stop()


@app.command()
def throughput(rounds: int = 5, sequences: int = 16, tokens: int = 48) -> None:
    """Throughput with events, recording and clients, over that without events."""
    ratios, cpu_ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        engines = {events: Engine(events, Path(folder)) for events in (True, False)}
        try:
            for engine in engines.values():
                asyncio.run(tokens_a_second(engine.url, sequences, 4))
            for number in range(rounds):
                speed, cpu = {}, {}
                for events in (number % 2 == 0, number % 2 == 1):
                    engine = engines[events]
                    before = engine.cpu()
                    speed[events] = asyncio.run(tokens_a_second(engine.url, sequences, tokens))
                    cpu[events] = engine.cpu() - before
                ratios.append(speed[True] / speed[False])
                cpu_ratios.append(cpu[True] / cpu[False])
                print(f"pair {number + 1}: {ratios[-1]:.3f}, CPU {cpu_ratios[-1]:.3f}", flush=True)
        finally:
            for engine in engines.values():
                engine.stop()
    print(
        f"median of {rounds} pairs: {statistics.median(ratios):.3f} of the throughput without events, "
        f"{statistics.median(cpu_ratios):.3f} of the server's CPU time"
    )


if __name__ == "__main__":
    app()
