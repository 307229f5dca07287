"""Address and credentials of an S3 server, from the environment. The first one that is set decides.

==========
=========================================================================================================
endpoint   ``s3://``: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, S3_ENDPOINT, MINIO_ENDPOINT, else
Amazon;
           ``minio://``: MINIO_ENDPOINT, then the same. ``http://host:port``, or ``host:port`` with
           MINIO_SECURE or S3_USE_HTTPS (0 or 1, default 1)
identity   files ``accesskey``, ``secretkey`` (and ``sessiontoken``) in the directory
PODIUM_S3_CREDENTIALS_DIR,
           read again for each request: mounted secrets rotate; AWS_ACCESS_KEY_ID,
           AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; MINIO_ACCESS_KEY, MINIO_SECRET_KEY;
           MINIO_ROOT_USER, MINIO_ROOT_PASSWORD; PODIUM_S3_SECRET, a Kubernetes Secret
           ``[namespace/]name`` with accesskey and secretkey; AWS_SHARED_CREDENTIALS_FILE or
           ~/.aws/credentials, profile AWS_PROFILE; the role of the pod or machine, where
           AWS_WEB_IDENTITY_TOKEN_FILE or AWS_CONTAINER_CREDENTIALS_* is set
region     AWS_REGION, AWS_DEFAULT_REGION; for other servers than Amazon's us-east-1 trust
AWS_CA_BUNDLE, SSL_CERT_FILE, REQUESTS_CA_BUNDLE, else the certificates of the certifi package
==========
=========================================================================================================
"""

import os
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from podium.errors import InvalidInput, PodiumError
from podium.files.documents import foreign
from podium.system.pod import load_configuration
from podium.system.settings import ENDPOINTS

if TYPE_CHECKING:
    from minio.credentials import Provider

_PAIRS = (
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"),
    ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"),
)


@dataclass(frozen=True, kw_only=True)
class S3Config:
    """A server and an identity."""

    endpoint: str
    """host or host:port."""

    secure: bool
    region: str | None
    """None to ask the server."""

    ca_file: str | None
    """PEM file of trusted certificates; None for those of certifi."""

    provider: "Provider" = field(repr=False)
    """Returns the credentials for each request."""

    source: str
    """Where the credentials came from, for messages; never the credentials."""

    @property
    def url(self) -> str:
        """The endpoint with its scheme."""
        return f"{'https' if self.secure else 'http'}://{self.endpoint}"


def read_config(scheme: str, environ: Mapping[str, str] | None = None) -> S3Config:
    """Read the environment.

    Args:
        scheme: s3 or minio.
        environ: The environment; the process's own if None.

    Raises:
        InvalidInput: Something is missing, incomplete or malformed.
    """
    env = os.environ if environ is None else environ
    endpoint, secure = _endpoint(scheme, env)
    source, provider = _provider(env)
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if not region and not endpoint.endswith("amazonaws.com"):
        region = "us-east-1"
    return S3Config(
        endpoint=endpoint,
        secure=secure,
        region=region,
        ca_file=_ca_file(env),
        provider=provider,
        source=source,
    )


def _endpoint(scheme: str, env: Mapping[str, str]) -> tuple[str, bool]:
    names = ENDPOINTS if scheme == "s3" else ("MINIO_ENDPOINT", *ENDPOINTS[:-1])
    name = next((name for name in names if env.get(name)), None)
    if name is None:
        if scheme != "s3":
            raise InvalidInput(
                "no endpoint is set for minio:// URLs", f"set {names[0]}=http://host:9000"
            )
        return "s3.amazonaws.com", True
    endpoint = env[name]
    with foreign(f"{name} is not http://host:port or https://host:port", why=False):
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        parts.port  # noqa: B018  raises for one that is no number, or above 65535
    is_plain = (
        parts.scheme in ("http", "https", "") and parts.path in ("", "/") and not parts.username
    )
    if not is_plain or not parts.hostname:
        shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
        raise InvalidInput(
            f"{name} is not http://host:port or https://host:port: {shown!r}",
            "no path, no credentials in it",
        )
    flag = env.get("MINIO_SECURE") or env.get("S3_USE_HTTPS") or "1"
    secure = parts.scheme == "https" if parts.scheme else flag.lower() not in ("0", "false", "no")
    return parts.netloc, secure


def _ca_file(env: Mapping[str, str]) -> str | None:
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if env.get(name):
            if not Path(env[name]).is_file():
                raise InvalidInput(f"no PEM file at {env[name]!r}, which {name} names")
            return env[name]
    return None


def _provider(env: Mapping[str, str]) -> "tuple[str, Provider]":
    from minio.credentials import AWSConfigProvider, IamAwsProvider, StaticProvider

    if directory := env.get("PODIUM_S3_CREDENTIALS_DIR"):
        return directory, _mounted(Path(directory))
    for access, secret in _PAIRS:
        if env.get(access) or env.get(secret):
            missing = secret if env.get(access) else access
            if not (env.get(access) and env.get(secret)):
                raise InvalidInput(f"{missing} is not set", f"{access} and {secret} go together")
            token = env.get("AWS_SESSION_TOKEN") if access.startswith("AWS") else None
            return access, StaticProvider(
                access_key=env[access], secret_key=env[secret], session_token=token
            )
    if name := env.get("PODIUM_S3_SECRET"):
        access_key, secret_key = _kubernetes_secret(name, env)
        return f"Secret {name}", StaticProvider(access_key=access_key, secret_key=secret_key)
    shared = Path(
        env.get("AWS_SHARED_CREDENTIALS_FILE")
        or Path(env.get("HOME") or "~").expanduser() / ".aws/credentials"
    )
    if shared.is_file():
        return str(shared), AWSConfigProvider(filename=str(shared), profile=env.get("AWS_PROFILE"))
    if any(
        name.startswith(("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_"))
        for name in env
    ):
        return "the role of this pod", IamAwsProvider()
    raise InvalidInput(
        "no credentials for S3",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or PODIUM_S3_CREDENTIALS_DIR to a directory with the files"
        " accesskey and secretkey, or PODIUM_S3_SECRET to a Kubernetes Secret",
    )


def _mounted(directory: Path) -> "Provider":
    from minio.credentials import Credentials, Provider

    def read(name: str) -> str:
        try:
            return (directory / name).read_text().strip()
        except OSError as error:
            raise InvalidInput(
                f"cannot read the key {directory}/{name}: {error.strerror}",
                "PODIUM_S3_CREDENTIALS_DIR is a directory with the files accesskey and secretkey",
            ) from None

    class Mounted(Provider):
        """Reads the files again for each request."""

        def retrieve(self) -> Credentials:
            token = read("sessiontoken") if (directory / "sessiontoken").exists() else None
            return Credentials(
                access_key=read("accesskey"), secret_key=read("secretkey"), session_token=token
            )

    provider = Mounted()
    provider.retrieve()  # fail now rather than in the middle of an upload
    return provider


def _kubernetes_secret(name: str, env: Mapping[str, str]) -> tuple[str, str]:
    """Read a Secret with the kubeconfig or as the pod's service account."""
    from kubernetes.client import ApiClient, CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    configuration, own_namespace = load_configuration(environ=env)
    namespace, _, short = name.rpartition("/")
    namespace = namespace or own_namespace
    try:
        with ApiClient(configuration=configuration) as api:
            secret = CoreV1Api(api).read_namespaced_secret(
                name=short, namespace=namespace, _request_timeout=10
            )
    except (ApiException, HTTPError) as error:
        reason = getattr(error, "reason", None) or error
        raise PodiumError(
            f"cannot read Secret {short} in namespace {namespace}: {reason}",
            "PODIUM_S3_SECRET is [namespace/]name; the service account needs get on secrets",
        ) from None
    data = secret.data or {}
    values = {
        key.lower().replace("_", "").replace("-", ""): b64decode(value).decode()
        for key, value in data.items()
    }
    access_key, secret_key = (values.get(a) or values.get(b) for a, b in _SECRET_KEYS)
    if not access_key or not secret_key:
        raise InvalidInput(
            f"Secret {short} in namespace {namespace} has no accesskey and secretkey: its keys are {', '.join(data)}",
        )
    return access_key, secret_key


_SECRET_KEYS = (("accesskey", "awsaccesskeyid"), ("secretkey", "awssecretaccesskey"))
