"""Sends a workload's requests when they are due, at most so many at once, and keeps what was seen.

One event loop does it all. A request that is due is sent whether or not earlier ones have ended (an
open loop), unless `max_concurrency` makes it wait for one to end (a closed loop). Latencies count
from the real sending; how much later than due that was is kept for each request, so that waiting in
the client is never hidden.
"""

import asyncio
import time
from collections.abc import Sequence

from engine.bench.serve_client import Client, RequestRecord
from engine.bench.serve_prompts import Prompts
from engine.workloads.request import WorkloadRequest

PROBE_SECONDS = 15
SECONDS_TO_FAIL = 3
LAG_INTERVAL = 0.05


class Load:
    """One run. After `run`: `records` of what was sent, in that order, and how it ended.

    gone: why the server was given up; None where it was not. interrupted: `stop` was called. lags:
    seconds by which the event loop was late, sampled. cpu_seconds: of this process.
    """

    def __init__(self, client: Client, prompts: Prompts, max_concurrency: int | None) -> None:
        self.records: list[RequestRecord] = []
        self.ended = self.failed = 0
        self.gone: str | None = None
        self.interrupted = False
        self.lags: list[float] = []
        self.cpu_seconds = 0.0
        self._client = client
        self._prompts = prompts
        self._slots = asyncio.Semaphore(max_concurrency) if max_concurrency else None
        self._stopped = asyncio.Event()
        self._probe = asyncio.Lock()

    def stop(self) -> None:
        """End the run now; what is in flight is cut off."""
        self.interrupted = True
        self._stopped.set()

    async def run(self, requests: Sequence[WorkloadRequest], closed_loop: bool) -> None:
        """Send all requests and wait for their answers.

        A request is due at its arrival; in a closed loop arrivals don't count, and it is due when
        another has ended. Ends early by `stop`, or when the server no longer answers.
        """
        cpu = time.process_time()
        sending = asyncio.ensure_future(self._send_all(requests, closed_loop))
        stopped = asyncio.ensure_future(self._stopped.wait())
        lagging = asyncio.ensure_future(self._measure_lag())
        try:
            await asyncio.wait({sending, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self.gone is not None:
                # The end of a process resets its connections: let requests tell that themselves.
                await asyncio.wait({sending}, timeout=SECONDS_TO_FAIL)
        finally:
            for task in (sending, stopped, lagging):
                task.cancel()
            results = await asyncio.gather(sending, stopped, lagging, return_exceptions=True)
            self.cpu_seconds = time.process_time() - cpu
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _send_all(self, requests: Sequence[WorkloadRequest], closed_loop: bool) -> None:
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, request in enumerate(requests):
                body = self._prompts.body(number, request)
                due = start + request.arrival
                if not closed_loop:
                    await asyncio.sleep(due - time.monotonic())
                if self._slots is not None:
                    await self._slots.acquire()
                if closed_loop:
                    due = time.monotonic()
                if self._stopped.is_set():
                    return
                record = RequestRecord(due, request)
                self.records.append(record)
                group.create_task(self._send(record, body))

    async def _send(self, record: RequestRecord, body: bytes) -> None:
        await self._client.send(record, body)
        self.ended += 1
        if record.failure is not None:
            self.failed += 1
            if record.failure.status is None:
                await self._give_up_if_gone()
        if self._slots is not None:
            self._slots.release()

    async def _give_up_if_gone(self) -> None:
        """After a connection failed: go on where the server still answers others."""
        async with self._probe:
            if not self._stopped.is_set():
                self.gone = await self._client.why_gone(PROBE_SECONDS)
                if self.gone is not None:
                    self._stopped.set()

    async def _measure_lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(LAG_INTERVAL)
            self.lags.append(time.monotonic() - before - LAG_INTERVAL)
