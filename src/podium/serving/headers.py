"""HTTP with headers of limited size: httptools has no limit of its own."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES = 64 << 10
"""Of a request's first line and headers."""

_SAID = b'{"error":"a request has at most %d bytes of headers"}' % MOST_BYTES
_REFUSAL = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
_REFUSAL += b"content-length: %d\r\n\r\n%s" % (len(_SAID), _SAID)


class LimitedProtocol(HttpToolsProtocol):
    """Answers 431 and hangs up before anything else of a request is looked at."""

    _reads_head, _size, _refused = True, 0, False

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a header that has not ended are kept by the parser, and counted here."""
        if self._refused:
            return
        super().data_received(data)
        self._size += len(data) if self._reads_head else 0
        if self._size > MOST_BYTES:
            self._refuse()

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._reads_head, self._size = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Go on, unless they are too large."""
        self._reads_head = False
        self._size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._size > MOST_BYTES:
            return self._refuse()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        if not self._refused:
            super().on_message_complete()

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            self.transport.write(_REFUSAL)
            self.transport.close()
