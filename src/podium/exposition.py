"""Metrics in Prometheus' text format, and the port on which they are answered."""

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from podium.errors import PodiumError

Value = float | Mapping[str, float]
"""A metric's value, or for a metric with a label one for each of the label's values."""


def metric(name: str, text: str, value: Value, label: str = "") -> str:
    """Return the lines of one metric.

    Args:
        name: Its name; a counter's ends in _total, any other is a gauge.
        text: What it says, for people.
        value: Its value, or values by a label's value.
        label: The name of that label.
    """
    samples = {f'{{{label}="{key}"}}': one for key, one in value.items()} if isinstance(value, Mapping) else {"": value}
    kind = "counter" if name.endswith("_total") else "gauge"
    lines = [
        f"# HELP {name} {text}",
        f"# TYPE {name} {kind}",
        *(f"{name}{key} {one}" for key, one in samples.items()),
    ]
    return "\n".join(lines) + "\n"


def serve(port: int, metrics: Callable[[], str], alive: Callable[[], bool] = lambda: True) -> ThreadingHTTPServer:
    """Answer /healthz and /metrics on a port of all addresses, in a thread, until the process ends.

    Args:
        port: 0 takes a free one.
        metrics: Makes the page; where it raises PodiumError, the answer is 503 with its words.

    Raises:
        PodiumError: The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = (200, "ok\n") if alive() else (503, "no round has ended lately\n")
            if self.path == "/metrics":
                code, text = _page(metrics)
            elif self.path != "/healthz":
                code, text = 404, "/healthz, /metrics\n"
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Log no probe."""

    try:
        server = ThreadingHTTPServer(("", port), Handler)
    except OSError as error:
        raise PodiumError(f"port {port} cannot be listened on: {error.strerror}", "--port takes another") from None
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def _page(metrics: Callable[[], str]) -> tuple[int, str]:
    try:
        return 200, metrics()
    except PodiumError as error:
        return 503, f"{error}\n"
