"""Where the server is and who asks: decided from the environment alone."""

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from podium.errors import InvalidInput, PodiumError
from podium.storage import connect
from podium.storage.s3.config import S3Config, read_config

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "very-secret"}


def identity(config: S3Config) -> tuple[str, str, str | None]:
    given = config.provider.retrieve()
    return given.access_key, given.secret_key, given.session_token


@pytest.mark.parametrize(
    ("scheme", "environ", "url"),
    [
        ("s3", {}, "https://s3.amazonaws.com"),
        ("s3", {"AWS_ENDPOINT_URL": "http://a:9000/"}, "http://a:9000"),
        ("s3", {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"}, "http://b"),
        ("s3", {"MINIO_ENDPOINT": "http://m", "S3_ENDPOINT": "http://s"}, "http://s"),
        ("minio", {"MINIO_ENDPOINT": "http://m", "AWS_ENDPOINT_URL": "http://a"}, "http://m"),
        ("minio", {"AWS_ENDPOINT_URL": "http://a"}, "http://a"),
        ("minio", {"MINIO_ENDPOINT": "m:9000"}, "https://m:9000"),
        ("minio", {"MINIO_ENDPOINT": "m:9000", "MINIO_SECURE": "false"}, "http://m:9000"),
        ("s3", {"S3_ENDPOINT": "m:9000", "S3_USE_HTTPS": "0"}, "http://m:9000"),
    ],
)
def test_the_first_endpoint_that_is_set_decides(
    scheme: str, environ: dict[str, str], url: str
) -> None:
    assert read_config(scheme, {**KEYS, **environ}).url == url


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://a",
        "http://a/path",
        "http://user:pw@a",
        "http://",
        "http://user:pw@[a",
        "http://a:9000x",
        "a:99999",
    ],
)
def test_a_malformed_endpoint_is_named_without_its_password(endpoint: str) -> None:
    with pytest.raises(InvalidInput, match="AWS_ENDPOINT_URL") as raised:
        read_config("s3", {**KEYS, "AWS_ENDPOINT_URL": endpoint})
    assert "pw" not in str(raised.value)


def test_minio_without_an_endpoint_asks_for_one() -> None:
    with pytest.raises(InvalidInput, match="MINIO_ENDPOINT=http"):
        read_config("minio", KEYS)


def test_the_region_is_asked_of_amazon_only() -> None:
    assert read_config("s3", KEYS).region is None
    assert read_config("s3", {**KEYS, "AWS_ENDPOINT_URL": "http://m"}).region == "us-east-1"
    assert read_config("s3", {**KEYS, "AWS_DEFAULT_REGION": "eu-west-1"}).region == "eu-west-1"


def test_the_first_identity_that_is_given_decides(tmp_path: Path) -> None:
    mounted = tmp_path / "secret"
    mounted.mkdir()
    (mounted / "accesskey").write_text("mounted\n")
    (mounted / "secretkey").write_text("from file\n")
    shared = tmp_path / "credentials"
    shared.write_text("[default]\naws_access_key_id = shared\naws_secret_access_key = s\n")
    environ = {
        "AWS_SHARED_CREDENTIALS_FILE": str(shared),
        "MINIO_ROOT_USER": "root",
        "MINIO_ROOT_PASSWORD": "r",
        "MINIO_ACCESS_KEY": "minio",
        "MINIO_SECRET_KEY": "m",
        **KEYS,
        "AWS_SESSION_TOKEN": "token",
        "PODIUM_S3_CREDENTIALS_DIR": str(mounted),
    }
    expected = [
        ("mounted", "from file", None),
        ("id", "very-secret", "token"),
        ("minio", "m", None),
        ("root", "r", None),
        ("shared", "s", None),
    ]
    taken_away = (
        "PODIUM_S3_CREDENTIALS_DIR",
        "AWS_ACCESS_KEY_ID",
        "MINIO_ACCESS_KEY",
        "MINIO_ROOT_USER",
    )
    partners = {
        "AWS_ACCESS_KEY_ID": "AWS_SECRET_ACCESS_KEY",
        "MINIO_ACCESS_KEY": "MINIO_SECRET_KEY",
    }
    partners["MINIO_ROOT_USER"] = "MINIO_ROOT_PASSWORD"
    for wanted, name in zip(expected, (*taken_away, ""), strict=True):
        assert identity(read_config("s3", environ)) == wanted
        environ.pop(name, None)
        environ.pop(partners.get(name, ""), None)


def test_mounted_keys_are_read_again_when_they_rotate(tmp_path: Path) -> None:
    (tmp_path / "accesskey").write_text("a")
    (tmp_path / "secretkey").write_text("old")
    config = read_config("s3", {"PODIUM_S3_CREDENTIALS_DIR": str(tmp_path)})
    (tmp_path / "secretkey").write_text("new")
    (tmp_path / "sessiontoken").write_text("t")
    assert identity(config) == ("a", "new", "t")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "no credentials for S3"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY is not set"),
        ({"PODIUM_S3_CREDENTIALS_DIR": "/no/such"}, "cannot read the key /no/such/accesskey"),
        ({**KEYS, "AWS_CA_BUNDLE": "/no/such.pem"}, "no PEM file at"),
    ],
)
def test_what_is_missing_is_named(environ: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_config("s3", {"HOME": "/nonexistent", **environ})
    assert said in str(raised.value)


def test_no_secret_shows_in_a_representation() -> None:
    assert "very-secret" not in repr(read_config("s3", KEYS))


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://Upper/x",
        "s3://a_b",
        "s3://ab",
        "s3://bucket/../x",
        "s3://bucket?a=b",
        "s3://bucket/a#b",
        "s3://bucket/a\nb",
        "s3://[bucket",
    ],
)
def test_a_url_without_a_proper_bucket_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput):
        connect(url)


@pytest.fixture
def kubernetes_api(tmp_path: Path) -> Iterator[dict[str, dict[str, str]]]:
    """An HTTP server that knows secrets by namespace/name, and a kubeconfig that leads there."""
    secrets: dict[str, dict[str, str]] = {}

    class Api(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, _, _, _, namespace, _, name = self.path.split("/")
            data = secrets.get(f"{namespace}/{name}")
            encoded = {
                key: base64.b64encode(value.encode()).decode()
                for key, value in (data or {}).items()
            }
            body = json.dumps(
                {"kind": "Secret", "data": encoded} if data else {"reason": "NotFound"}
            ).encode()
            self.send_response(200 if data else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    kubeconfig.write_text(
        json.dumps({
            "clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}], "current-context": "x",
        })
    )  # fmt: skip
    yield secrets
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_kubernetes_secret_gives_the_keys(
    kubernetes_api: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    environ = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    kubernetes_api["team-a/minio"] = {"accesskey": "from", "secretkey": "kubernetes"}
    assert identity(read_config("s3", {**environ, "PODIUM_S3_SECRET": "team-a/minio"}))[:2] == (
        "from",
        "kubernetes",
    )
    kubernetes_api["default/aws"] = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    assert identity(read_config("s3", {**environ, "PODIUM_S3_SECRET": "aws"}))[:2] == ("x", "y")


def test_a_kubernetes_secret_that_does_not_help_is_named(
    kubernetes_api: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    environ = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    with pytest.raises(PodiumError, match="cannot read Secret gone in namespace team-a: Not Found"):
        read_config("s3", {**environ, "PODIUM_S3_SECRET": "team-a/gone"})
    kubernetes_api["team-a/other"] = {"password": "p"}
    with pytest.raises(InvalidInput, match="has no accesskey and secretkey: its keys are password"):
        read_config("s3", {**environ, "PODIUM_S3_SECRET": "team-a/other"})
