"""Kubeflow Trainer's status server as nodes of a TrainJob meet it: HTTPS with an authority of its own, bearer tokens."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/train-1/status"


class StatusServer(ThreadingHTTPServer):
    """Keeps what arrives with the right token, and answers as trainer v2.3.0, pkg/statusserver/server.go does."""

    def __init__(self, directory: Path) -> None:
        self.token, self.certificate = directory / "token", directory / "ca.crt"
        self.token.write_text("first-token\n")
        self.accepted = "first-token"
        self.posts: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(write_certificates(directory))
        self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def environment(self) -> dict[str, str]:
        """What Trainer sets in each node."""
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://127.0.0.1:{self.server_port}{PATH}",
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token),
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.certificate),
        }

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that does not trust the certificate."""


class Handler(BaseHTTPRequestHandler):
    """One post."""

    server: StatusServer

    def do_POST(self) -> None:
        """Keep a status."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != PATH:
            self.answer(404, "Not found")
        elif self.headers["Authorization"] != f"Bearer {self.server.accepted}":
            self.answer(403, "Forbidden")
        else:
            self.server.posts.append(body["trainerStatus"])
            self.answer(200, "")

    def answer(self, code: int, message: str) -> None:
        """Send a Status of Kubernetes."""
        content = json.dumps({"status": "Failure", "message": message, "code": code}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def status_server(directory: Path) -> Iterator[StatusServer]:
    """Serve on a free port of the loopback interface."""
    with StatusServer(directory) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def write_certificates(directory: Path) -> Path:
    """Write ``ca.crt``, and the file of a key with a certificate that it signed for 127.0.0.1."""
    authority, own = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    start = datetime.now(UTC) - timedelta(hours=1)

    def certificate(
        subject: x509.Name, key: ec.EllipticCurvePublicKey, *more: x509.ExtensionType
    ) -> bytes:
        builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), start,
                                          start + timedelta(days=1))  # fmt: skip
        signer = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False
        )
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key), critical=False
        )
        for extension in more:
            builder = builder.add_extension(
                extension, critical=isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            )
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    is_authority = (
        x509.BasicConstraints(ca=True, path_length=None),
        # Without it Python 3.13 trusts no authority.
        x509.KeyUsage(True, False, False, False, False, True, False, False, False),
    )
    (directory / "ca.crt").write_bytes(certificate(issuer, authority.public_key(), *is_authority))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "status server")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    chain = directory / "server.pem"
    key = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    chain.write_bytes(key + certificate(subject, own.public_key(), here))
    return chain
