"""Metrics in Prometheus' text format, and the port on which they are answered."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from podium.errors import PodiumError
from podium.system.background import Background

PATIENCE = 10.0
"""Seconds to wait for a request: who connects and says nothing holds a thread."""

_Samples = Iterable[tuple[Mapping[str, str], float]]
"""Labels and value of each sample."""


def metric(
    name: str, text: str, value: float | Mapping[str, float] | _Samples, label: str = ""
) -> str:
    """Return the lines of one metric.

    Args:
        name: Name of the metric; a counter's ends in _total, any other is a gauge.
        text: Help text for people.
        value: The value, the values by a label's value, or with several labels the samples.
        label: The name of a single label.
    """
    samples: _Samples
    if isinstance(value, Mapping):
        samples = [({label: key}, one) for key, one in value.items()]
    else:
        samples = value if isinstance(value, Iterable) else [({}, value)]
    kind = "counter" if name.endswith("_total") else "gauge"
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, one in samples:
        pairs = ",".join(
            f'{label}="{escaped(label_value)}"' for label, label_value in labels.items()
        )
        lines.append(f"{name}{{{pairs}}} {one}" if pairs else f"{name} {one}")
    return "\n".join(lines) + "\n"


def escaped(value: str) -> str:
    """Return the value of a label as the format has it."""
    return value.translate(_ESCAPES)


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def read_samples(page: str, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """Yield labels and value of each sample of a metric on a page."""
    back = {escaped: chr(plain) for plain, escaped in _ESCAPES.items()}
    for line in page.split("\n"):
        if found := re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line):
            labels = {
                label: re.sub(r"\\.", lambda escape: back.get(escape[0], escape[0]), value)
                for label, value in _LABEL.findall(found[1] or "")
            }
            yield labels, float(found[2])


def serve(
    port: int, metrics: Callable[[], str], alive: Callable[[], bool] = lambda: True
) -> ThreadingHTTPServer:
    """Answer /healthz and /metrics on a port of all addresses, in a thread, until the process ends.

    Args:
        port: 0 takes a free one.
        metrics: Returns the page; if it raises PodiumError, the response is 503 with the message.

    Raises:
        PodiumError: The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

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
        raise PodiumError(
            f"port {port} cannot be listened on: {error.strerror}", "--port takes another"
        ) from None
    Background(server.serve_forever, "podium-metrics", again=True).start()
    return server


def _page(metrics: Callable[[], str]) -> tuple[int, str]:
    try:
        return 200, metrics()
    except PodiumError as error:
        return 503, f"{error}\n"
