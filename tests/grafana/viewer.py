"""A viewer of the event stream that looks at nothing: it keeps the stream's metrics moving."""

import threading

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect


class Viewer:
    """Connected inside `with`, reading as fast as it can."""

    def __init__(self, url: str, api_key: str) -> None:
        headers = {"Authorization": f"Bearer {api_key}"}
        self._connection = connect(url, max_size=None, additional_headers=headers)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Viewer":
        self._socket = self._connection.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._thread.join(20)

    def _read(self) -> None:
        try:
            for _ in self._socket:
                pass
        except ConnectionClosed:
            return
