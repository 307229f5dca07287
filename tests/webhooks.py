"""A webhook on this machine: a real HTTP server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Hook(BaseHTTPRequestHandler):
    """Keeps every JSON body; answers as its path says."""

    bodies: list[Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).bodies.append((self.headers["Content-Type"], json.loads(body)))
        self.send_response(int(self.path.partition("?")[0].strip("/") or 200))
        self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """Serve a webhook; yield its URL, and what it got."""
    handler = type("OneHook", (Hook,), {"bodies": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.bodies
    finally:
        server.shutdown()
        server.server_close()
