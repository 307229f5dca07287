"""HTTP servers by uvicorn: headers of limited size and time (httptools has no limits of its own),
and an end that answers for some seconds more, until nobody behind the proxy asks any longer."""

import asyncio
import signal
import sys
import threading
from types import FrameType
from typing import cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from podium.serving.app import Server

_MOST_BYTES = 64 << 10
"""Bytes of a request's first line and headers, and as many of its trailers."""

_SAID = b'{"error":"a request has at most %d bytes of headers"}' % _MOST_BYTES
_REFUSAL = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
_REFUSAL += b"content-length: %d\r\n\r\n%s" % (len(_SAID), _SAID)


class LimitedProtocol(HttpToolsProtocol):
    """Answers 431 and hangs up before anything else of a request is looked at."""

    seconds = 60.0
    """For the first line and headers: who sends half of them holds a descriptor."""

    _unended, _piece, _size, _refused = False, 0, 0, False
    _plain, _left = b"", 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a header that has not ended are kept by the parser, and counted
        here, as all are that are no body."""
        self._piece = len(data)
        if self._unended:  # since an earlier piece
            self._size += self._piece
        super().data_received(data)
        rest = memoryview(data)
        while self._plain and not self.transport.is_closing():
            head, rest, self._plain = self._plain, rest[self._left :], b""
            super().data_received(head)
            super().data_received(cast("bytes", rest))
        if self._unended and self._size > _MOST_BYTES:
            self._refuse()
        if not self._late and (self.cycle is None or self.cycle.response_complete):
            self._await_head()

    def on_message_begin(self) -> None:
        """Begin to count; other requests may have come in the same piece."""
        self._unended, self._size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Go on, unless they are too large; most requests come in one small piece, and nothing is
        added up."""
        self._stop_waiting()
        if self._size + self._piece > _MOST_BYTES and self._head() > _MOST_BYTES:
            self._refuse()
            raise ValueError("the headers are too large")  # ends the parsing
        super().on_headers_complete()
        self.headers = []  # of trailers, which count for nothing

    def on_body(self, body: bytes) -> None:
        """Count anew: the body has a limit of its own."""
        self._size = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Count no more."""
        self._unended = False
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        """Pass over what a client offers, who goes on as before; CONNECT is no offer."""
        return bool(self.parser.get_method() != b"CONNECT")

    def handle_websocket_upgrade(self) -> None:
        """Let the request be read as one that offers nothing: the parser has skipped its body."""
        offered = sys.exception()
        assert offered  # says where the rest begins
        self._left = offered.args[0]
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % each for each in self.scope["headers"] if each[0] != b"upgrade"]
        self._plain = b"\r\n".join([*lines, b"", b""])

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong with what the parser did not take, unless it is said already."""
        if not self._refused:
            super().send_400_response(msg)

    def _await_head(self) -> None:
        self._late = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late:
            self._late.cancel()
            self._late = None

    def _head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _refuse(self) -> None:
        self._refused = True
        self.transport.write(_REFUSAL)
        self.transport.close()


class DrainingServer(uvicorn.Server):
    """Ends some seconds after SIGTERM; a second signal ends it at once.

    A cluster tells its proxies that a pod leaves while it tells the pod, so requests still come;
    and a connection that is closed between two answers may have the next request on its way. So
    each answer says ``Connection: close``, and the client opens the next connection elsewhere.
    """

    def __init__(self, config: uvicorn.Config, server: Server, seconds: float) -> None:
        super().__init__(config)
        self._service, self._seconds = server.service, seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; called by the signal."""
        if sig != signal.SIGTERM or not self._seconds or self._service.draining:
            return super().handle_exit(sig, frame)
        self._service.draining = True
        later = threading.Timer(self._seconds, super().handle_exit, (sig, frame))
        later.daemon = True
        later.start()
