"""Metrics that a program pushes instead of printing them: to Kubeflow Trainer's status server, and
to Katib's database.

Each pod has the variables and files that Trainer gives one, and each post is a line of its job's
``pushed.jsonl``. Source: kubeflow/trainer master of 2026-08, pkg/statusserver and
pkg/runtime/framework/plugins/trainjobstatus; katib 0.19, pkg/apis/manager/v1beta1/api.proto.
"""

import json
import os
import secrets
import selectors
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from podium.cluster.local.store import Store
from podium.errors import InvalidInput
from podium.files.documents import load_json
from podium.files.protobuf import make_messages
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.labels import TRAINER_API
from podium.manifests.workload import Workload
from podium.system.background import Background
from podium.system.settings import Settings

FILE = "logs/pushed.jsonl"
"""In a job's directory: metric, value and time a line, as Reading.row has them."""

_STARTUP = Path(__file__).parent / "startup"

_CREDENTIALS = ("ca.crt", "tls.key", "token")

Row = tuple[str, str, str]
"""Time (RFC3339), metric and value."""


class Mailbox:
    """Receives what the pods of one job push.

    Args:
        job: As stored.
        directory: The job's own.
        wake: Called from any thread when ``status`` has changed.
    """

    def __init__(self, job: Workload, directory: Path, wake: Callable[[], None]) -> None:
        self.name, self.directory = job.name, directory
        plural = f"{job.kind.lower()}s"
        self.path = (
            f"/apis/{TRAINER_API}/v1alpha1/namespaces/{job.namespace}/{plural}/{job.name}/status"
        )
        self.status: dict[str, Any] = {}
        """The last trainerStatus."""

        self._wake, self._lock = wake, threading.Lock()

    def take(self, status: dict[str, Any]) -> None:
        """Take a trainerStatus; those of its metrics count that the last one did not have, since
        libraries repeat them in every post."""
        with self._lock:
            new = changed(self.status, status)
            self.status = status
            self._write((status["lastUpdatedTime"], *metric) for metric in new.items())
        self._wake()

    def report(self, rows: Iterable[Row]) -> None:
        """Take values as Katib's database does."""
        with self._lock:
            self._write(rows)

    def _write(self, rows: Iterable[Row]) -> None:
        lines = [json.dumps([name, value, time]) for time, name, value in rows]
        if lines:
            file = self.directory / FILE
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as pushed:
                pushed.write("\n".join([*lines, ""]))


def changed(before: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics of a trainerStatus whose values differ from those of the one before."""
    had = {metric["name"]: metric["value"] for metric in before.get("metrics") or ()}
    has = {metric["name"]: metric["value"] for metric in status.get("metrics") or ()}
    return {name: value for name, value in has.items() if had.get(name) != value}


class PushServer:
    """Takes what the jobs of one cluster push, from its first pod on.

    Args:
        store: The cluster's objects.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._boxes: dict[str, Mailbox] = {}
        self._endpoint: _Endpoint | None = None
        self._database: Any = None
        self._private: TemporaryDirectory[str] | None = None
        self._address = ""

    def open(self, box: Mailbox) -> dict[str, str]:
        """Return the variables by which a job's pods reach its mailbox."""
        with self._lock:
            if self._endpoint is None:
                self._endpoint = _Endpoint(self._boxes, self._store.directory)
            self._boxes[box.path] = box
            address = {"PODIUM_DB_MANAGER": self._address} if self._address else {}
            return self._endpoint.variables(box) | address

    def close_box(self, box: Mailbox) -> None:
        """Take nothing more for a job."""
        with self._lock:
            self._boxes.pop(box.path, None)

    def serve_database(self) -> None:
        """Stand for Katib's database, too, for the pods that start from now on.

        Raises:
            InvalidInput: The package grpcio is not installed.
        """
        with self._lock:
            if not self._address:
                # No other user may enter it; the path of a socket has a hundred characters.
                place = "/tmp" if len(gettempdir()) > 70 else None
                self._private = TemporaryDirectory(
                    prefix="podium-", dir=place, ignore_cleanup_errors=True
                )
                address = f"unix:{self._private.name}/katib"
                self._database = serve_database(address, self._report, self._rows)
                self._address = address

    def close(self) -> None:
        if self._endpoint:
            self._endpoint.close()
        if self._database:
            self._database.stop(None)
        if self._private:
            self._private.cleanup()

    def _report(self, trial: str, rows: Iterable[Row]) -> bool:
        box = next((box for box in [*self._boxes.values()] if box.name == trial), None)
        if box:
            box.report(rows)
        return box is not None

    def _rows(self, trial: str) -> list[Row]:
        for kind in ("Trial", *JOB_KINDS):
            file = self._store.path(kind, trial) / FILE
            if file.is_file():
                lines = [load_json(line, FILE) for line in file.read_text().splitlines()]
                return [(time, name, value) for name, value, time in lines]
        return []


def reachable(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which programs find this machine's endpoints: Python's libraries by
    startup/sitecustomize.py, all of them past a proxy."""
    path = [str(_STARTUP), *filter(None, [env.get("PYTHONPATH")])]
    past = [*filter(None, map(env.get, ("no_proxy", "NO_PROXY"))), "127.0.0.1"]
    named = ("no_proxy", "NO_PROXY")
    proxies = {} if "*" in past else dict.fromkeys(named, ",".join(past))  # it is so only alone
    return {**env, **proxies, "PYTHONPATH": os.pathsep.join(path)}


class _Endpoint:
    """Address of Trainer's status server, which begins with the first connection: HTTP and TLS take
    a tenth of a second to import, and few programs push.

    Args:
        boxes: By their paths.
        folder: Directory for the _credentials if podium's cache cannot be written.
    """

    def __init__(self, boxes: Mapping[str, Mailbox], folder: Path) -> None:
        self._boxes, self._folder = boxes, _credentials(folder)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ending, self._end = socket.socketpair()
        self._thread = Background(self._serve, "podium-pushed")
        self._thread.start()

    def variables(self, box: Mailbox) -> dict[str, str]:
        port = self._listening.getsockname()[1]
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://127.0.0.1:{port}{box.path}",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self._folder / "ca.crt"),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self._folder / "token"),
        }

    def close(self) -> None:
        """Answer nothing more; a process that was forked meanwhile may hold these sockets."""
        for held in (self._end, self._listening):
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
        self._end.close()
        self._thread.join()

    def _serve(self) -> None:
        with self._listening, self._ending:
            if self._is_called():
                from podium.cluster.local.status_server import serve

                serve(self._listening, self._is_called, self._boxes, self._folder)

    def _is_called(self) -> bool:
        with selectors.DefaultSelector() as selector:
            for each in (self._listening, self._ending):
                selector.register(each, selectors.EVENT_READ)
            return self._ending not in [key.fileobj for key, _ in selector.select()]


def _credentials(folder: Path) -> Path:
    """Return the directory with the certificate, the key and the token of this user's endpoints,
    which are made once: the package that makes them takes a sixth of a second to import.

    Args:
        folder: Where they are made if podium's cache has none of this user's, and takes none.
    """
    places = [Settings.from_environment().cache / "push", folder / "push"]
    for place in places:
        if not _is_whole(place):
            with suppress(OSError):
                _make(place)
        if _is_whole(place):
            return place
    return _make(places[-1])


def _is_whole(place: Path) -> bool:
    try:
        is_own = place.stat().st_uid == os.geteuid()
    except OSError:
        return False
    return is_own and all(os.access(place / name, os.R_OK) for name in _CREDENTIALS)


def _make(place: Path) -> Path:
    """Make _credentials where there are none, or not all of them."""
    draft = place.parent / f".podium-{uuid.uuid4().hex}.tmp"
    draft.mkdir(mode=0o700, parents=True)
    try:
        key, certificate = _new_certificate()
        made = (certificate, key, secrets.token_urlsafe(32).encode())
        for name, content in zip(_CREDENTIALS, made, strict=True):
            (draft / name).write_bytes(content)
        if place.exists() and not _is_whole(place):
            place.rename(draft / "before")
        with suppress(OSError):  # another process was first
            draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place


def _new_certificate() -> tuple[bytes, bytes]:
    from ipaddress import IPv4Address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "podium")])
    now, public = datetime.now(UTC), key.public_key()
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    certificate = (
        x509.CertificateBuilder(name, name, public, x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=36_500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


_MESSAGES = {
    "Metric": {"name": "1 string", "value": "2 string"},
    "MetricLog": {"time_stamp": "1 string", "metric": "2 Metric"},
    "ObservationLog": {"metric_logs": "1 *MetricLog"},
    "ReportObservationLogRequest": {
        "trial_name": "1 string",
        "observation_log": "2 ObservationLog",
    },
    "ReportObservationLogReply": {},
    "GetObservationLogRequest": {
        "trial_name": "1 string",
        "metric_name": "2 string",
        "start_time": "3 string",
        "end_time": "4 string",
    },
    "GetObservationLogReply": {"observation_log": "1 ObservationLog"},
}
"""Messages of Katib's api.proto, as make_messages takes them."""


def serve_database(
    address: str,
    report: Callable[[str, Iterable[Row]], bool],
    rows: Callable[[str], Iterable[Row]],
) -> Any:
    """Serve ReportObservationLog and GetObservationLog of Katib's database, unencrypted and without
    _credentials as it does.

    Args:
        address: Host and port, or ``unix:`` and the path of a socket.
        report: Takes what a trial reports; returns whether there is such a trial.
        rows: Returns what a trial has reported.

    Returns:
        The running server.

    Raises:
        InvalidInput: The package grpcio is not installed.
    """
    try:
        import grpc
    except ImportError:
        raise InvalidInput(
            "the collector Push needs the package grpcio", "pip install 'podium-ml[grpc]'"
        ) from None
    messages = make_messages("api.v1.beta1", _MESSAGES)

    def take(request: Any, context: Any) -> Any:
        logs = request.observation_log.metric_logs
        rows = [(log.time_stamp, log.metric.name, log.metric.value) for log in logs]
        _check_times(context, *(time for time, _, _ in rows))
        if not report(request.trial_name, rows):
            context.abort(grpc.StatusCode.NOT_FOUND, f"no trial {request.trial_name} runs here")
        return messages["ReportObservationLogReply"]()

    def give(request: Any, context: Any) -> Any:
        reply = messages["GetObservationLogReply"]()
        _check_times(context, *filter(None, (request.start_time, request.end_time)))
        for time, name, value in rows(request.trial_name):
            if request.metric_name in ("", name) and _is_between(time, request):
                log = reply.observation_log.metric_logs.add(time_stamp=time)
                log.metric.name, log.metric.value = name, value
        return reply

    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            method,
            messages[f"{name}Request"].FromString,
            messages[f"{name}Reply"].SerializeToString,
        )
        for name, method in (("ReportObservationLog", take), ("GetObservationLog", give))
    }
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("api.v1.beta1.DBManager", handlers)]
    )
    server.add_insecure_port(address)
    server.start()
    return server


def _check_times(context: Any, *times: str) -> None:
    """Refuse a request with a time that is not of RFC3339."""
    for time in times:
        try:
            valid = datetime.fromisoformat(time).tzinfo is not None
        except ValueError:
            valid = False
        if not valid:
            import grpc

            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no time of RFC3339: {time!r:.100}")


def _is_between(time: str, request: Any) -> bool:
    begin, end, at = (
        datetime.fromisoformat(text) if text else None
        for text in (request.start_time, request.end_time, time)
    )
    return at is None or ((begin is None or begin <= at) and (end is None or at <= end))
