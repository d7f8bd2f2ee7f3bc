"""Clients that ask an engine for more blocks than it has, until they are told to stop."""

import threading

import httpx

CLIENTS = 8
ANSWER_TOKENS = 120


class Thrash:
    """`with Thrash(url, key):` load; each request shares its first block with the others."""

    def __init__(self, url: str, api_key: str) -> None:
        self._http = httpx.Client(
            base_url=url, timeout=60, headers={"Authorization": f"Bearer {api_key}"}
        )
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,), daemon=True)
            for number in range(CLIENTS)
        ]
        self.refused: list[str] = []

    def __enter__(self) -> "Thrash":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self._http.close()

    def _ask(self, number: int) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            body = {
                "prompt": f"An equal beginning. Client {number}, turn {turn}.",
                "max_tokens": ANSWER_TOKENS,
                "n": 2 if number == 0 else 1,
            }
            answer = self._http.post("/v1/completions", json=body)
            if answer.status_code != 200:
                self.refused.append(answer.text)
                return
