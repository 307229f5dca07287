"""The end of a server behind a proxy: it answers for some seconds more, until nobody asks it any
longer."""

import signal
import threading
from types import FrameType

import uvicorn

from podium.serving.app import Server


class DrainingServer(uvicorn.Server):
    """Ends some seconds after SIGTERM; a second signal ends it at once.

    A cluster tells its proxies that a pod leaves while it tells the pod, so requests still come;
    and a connection that is closed between two answers may have the next request on its way. So
    each answer says ``Connection: close``, and the client opens the next connection elsewhere.
    """

    def __init__(self, config: uvicorn.Config, server: Server, seconds: float) -> None:
        super().__init__(config)
        self._server, self._seconds = server, seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; called by the signal."""
        if sig != signal.SIGTERM or not self._seconds or self._server.draining:
            return super().handle_exit(sig, frame)
        self._server.draining = True
        later = threading.Timer(self._seconds, super().handle_exit, (sig, frame))
        later.daemon = True
        later.start()
