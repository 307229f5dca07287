"""Trainer's status server, for the jobs of one local cluster.

Source: kubeflow/trainer master of 2026-08, pkg/statusserver.
"""

import json
import socket
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput
from podium.files.documents import load_json

if TYPE_CHECKING:
    from podium.cluster.local.pushed import Mailbox

MOST_BYTES, MOST_METRICS, MOST_CHARACTERS = 1 << 16, 256, 64
"""Trainer's limits: of a post, of the metrics in it, and of a name and a value."""


def serve(
    listening: socket.socket,
    is_called: Callable[[], bool],
    boxes: "Mapping[str, Mailbox]",
    folder: Path,
) -> None:
    """Answer until nobody is to be answered.

    Args:
        listening: Bound, with the first connection waiting.
        is_called: Waits for a connection; False at the end.
        boxes: By their paths.
        folder: Directory of the credentials.
    """
    listening.setblocking(False)  # a client may be gone before it is answered
    server = _Server(listening, boxes, folder)
    while is_called():
        server.handle_request()


class _Server(ThreadingHTTPServer):
    """Trainer's status server."""

    def __init__(
        self, listening: socket.socket, boxes: "Mapping[str, Mailbox]", folder: Path
    ) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.boxes = listening, boxes
        self.token = (folder / "token").read_text()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "ca.crt", folder / "tls.key")

    def get_request(self) -> tuple[Any, Any]:
        """Leave the handshake to the thread of the connection."""
        connection, address = super().get_request()
        tls = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return tls, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away, or does not trust the certificate."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    wbufsize = 1 << 16  # an answer in one packet: in two the second waits 40 ms for the first
    server: _Server

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.close_connection = True
            return self._refuse(411, "LengthRequired", "Length required")
        size = int(length)
        body = self.rfile.read(min(size, 1 << 24))
        if size > MOST_BYTES:
            self.close_connection = True
            return self._refuse(413, "RequestEntityTooLarge", "Payload too large")
        scheme, _, token = self.headers.get("Authorization", "").strip().partition(" ")
        box = self.server.boxes.get(self.path)
        if box is None or scheme.lower() != "bearer" or token.strip() != self.server.token:
            return self._refuse(403, "Forbidden", "Forbidden")
        try:
            posted = _read_status(body)
        except InvalidInput as error:
            return self._refuse(422, "Invalid", error.message)
        if posted:
            box.take(posted)
        return self._answer(200, {"trainerStatus": posted} if posted else {})

    def do_GET(self) -> None:
        self._refuse(404, "NotFound", "Not found")

    def _refuse(self, code: int, reason: str, message: str) -> None:
        said = {"metadata": {}, "message": message, "reason": reason, "code": code}
        self._answer(code, {"status": "Failure", **said})

    def _answer(self, code: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log no post."""


def _read_status(body: bytes) -> dict[str, Any]:
    """Return the trainerStatus of a post; empty if it has none.

    Raises:
        InvalidInput: Trainer would refuse it.
    """
    posted = load_json(body, "Invalid payload", twice=True)
    trainer_status = posted.get("trainerStatus") if isinstance(posted, dict) else posted
    if trainer_status is None:
        return {}
    try:
        status = {
            name: _whole(trainer_status[name], most)
            for name, most in (("progressPercentage", 100), ("estimatedRemainingSeconds", 2**31))
            if trainer_status.get(name) is not None
        }
        metrics = [
            {"name": _word(metric["name"]), "value": _word(metric["value"])}
            for metric in trainer_status.get("metrics") or ()
        ]
        if len(metrics) > MOST_METRICS:
            raise ValueError(f"at most {MOST_METRICS} metrics, not {len(metrics)}")
        time = trainer_status["lastUpdatedTime"]
        if datetime.fromisoformat(time).utcoffset() is None:
            raise ValueError(f"lastUpdatedTime: a time with its offset, not {time!r}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(f"Invalid payload: trainerStatus: {error!s:.200}") from None
    return {**status, **({"metrics": metrics} if metrics else {}), "lastUpdatedTime": time}


def _whole(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"a whole number from 0 to {most}, not {value!r}")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MOST_CHARACTERS:
        raise ValueError(f"a text of 1 to {MOST_CHARACTERS} characters, not {value!r}")
    return value
