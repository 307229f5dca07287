"""Report progress to a TrainJob's ``status.trainerStatus``, where Kubeflow Trainer offers a server
for it.

With its feature gate TrainJobStatus, Trainer puts three variables into each node:
KUBEFLOW_TRAINER_SERVER_URL (the whole address to post to), KUBEFLOW_TRAINER_SERVER_TOKEN and
KUBEFLOW_TRAINER_SERVER_CA_CERT (files). Source: trainer v2.3.0,
pkg/runtime/framework/plugins/trainjobstatus/trainjobstatus.go, pkg/statusserver/server.go and
TrainerStatus in pkg/apis/trainer/v1alpha1/trainjob_types.go.

Posts are made by a thread of their own: a server that does not answer costs the training nothing.
"""

import http.client
import json
import math
import os
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TIMEOUT = 10.0
"""Seconds for each step of a post."""

_LAST_POST = 3.0
"""Seconds that the end of a training waits for its last post."""

_SERVER, _TOKEN, _CA = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "TOKEN", "CA_CERT"))
_MOST, _LONGEST, _INT32 = (
    256,
    64,
    2**31 - 1,
)  # metrics, characters of their names and values, seconds


@dataclass(frozen=True, kw_only=True)
class _Server:
    """Where a TrainJob takes its status."""

    url: str
    token: Path
    """File of the bearer token; it changes within the hour."""

    certificate: Path
    """File of the authority that signed the server's certificate."""

    def post(self, status: Mapping[str, Any]) -> None:
        """Send a status; no proxy and no redirect gets the token.

        Raises:
            OSError: A file cannot be read, or the server does not answer or refuses.
            ValueError: The address is not one of HTTPS.
        """
        address = urlsplit(self.url)
        if address.scheme != "https" or not address.hostname:
            raise ValueError(f"{_SERVER} is not an address of HTTPS: {self.url}")
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        headers = {
            "Authorization": f"Bearer {self.token.read_text().strip()}",
            "Content-Type": "application/json",
        }
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=TIMEOUT, context=trusted
        )
        try:
            connection.request("POST", address.path, json.dumps({"trainerStatus": status}), headers)
            answer = connection.getresponse()
            said = answer.read(2000).decode(errors="replace")
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(f"{answer.status} {answer.reason}: {said.strip()[:300]}")


class StatusReporter:
    """Reports how far a training is, once an epoch; nothing that goes wrong reaches the training.

    Args:
        environ: Names the server; without one nothing is reported.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        url, token, certificate = (environ.get(name, "") for name in (_SERVER, _TOKEN, _CA))
        configured = url and token and certificate
        self.server = (
            _Server(url=url, token=Path(token), certificate=Path(certificate))
            if configured
            else None
        )
        self._started = time.monotonic()
        self._reports = 0
        self._warned = False
        self._lock = threading.Lock()
        self._next: Mapping[str, Any] | None = None
        self._thread: threading.Thread | None = None

    def report(
        self, epoch: int, epochs: int | None, metrics: Mapping[str, float], *, done: bool = False
    ) -> None:
        """Post the state after an epoch, without waiting for the answer; an older state still to be
        sent is dropped.

        Args:
            epoch: The epoch that has ended, from 1.
            epochs: How many there will be; None if that is not known.
            metrics: Numbers by name.
            done: Whether it was the last, even if fewer than `epochs`.
        """
        if self.server is None:
            return
        self._reports += 1
        each = (time.monotonic() - self._started) / self._reports
        status = _described(epoch, epochs, metrics, each, done=done)
        with self._lock:
            self._next = status
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._send, args=(self.server,), daemon=True, name="trainjob-status"
                )
                self._thread.start()

    def close(self) -> None:
        """Wait a moment for the last post."""
        thread = self._thread
        if thread is not None:
            thread.join(_LAST_POST)

    def _send(self, server: _Server) -> None:
        while True:
            with self._lock:
                status, self._next = self._next, None
                if status is None:
                    self._thread = None
                    return
            try:
                server.post(status)
            except Exception as error:  # whatever it is, the training matters more
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            reason = " ".join(str(error).split()) or type(error).__name__
            print(
                f"warning: progress does not reach the TrainJob: {reason}",
                file=sys.stderr,
                flush=True,
            )


def _described(
    epoch: int,
    epochs: int | None,
    metrics: Mapping[str, float],
    each: float,
    *,
    done: bool = False,
) -> dict[str, Any]:
    """Return a ``trainerStatus`` as Trainer's CRD has it: integers, and numbers of metrics as text.

    Args:
        epoch: The epoch that has ended, from 1.
        epochs: How many there will be; None if that is not known.
        metrics: Numbers by name.
        each: Seconds an epoch takes.
        done: Whether it was the last.
    """
    status: dict[str, Any] = {}
    if done:
        status = {"progressPercentage": 100, "estimatedRemainingSeconds": 0}
    elif epochs:
        left = max(0, epochs - epoch)
        status = {
            "progressPercentage": min(100, 100 * epoch // epochs),
            "estimatedRemainingSeconds": min(math.ceil(left * each), _INT32),
        }
    values = [{"name": name[:_LONGEST], "value": f"{value:.6g}"} for name, value in metrics.items()]
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**status, "metrics": values[:_MOST], "lastUpdatedTime": moment}
