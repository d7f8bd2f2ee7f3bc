"""Who is told: a server that keeps what Alertmanager posts."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Webhook:
    """`notifications`: the alerts that were posted, oldest first, each with its status."""

    def __init__(self) -> None:
        self.notifications: list[dict] = []
        kept = self.notifications

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posted = json.loads(body)
                kept.extend({**alert, "receiver": posted["receiver"]} for alert in posted["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "Webhook":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def told(self, alert: str, status: str) -> dict | None:
        """The first notification of an alert with this status."""
        for one in self.notifications:
            if one["labels"]["alertname"] == alert and one["status"] == status:
                return one
        return None
