"""`podium models export --to hub`, through the hub's own client; the slow tests ask a real server what it then knows."""

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from handmade import shapes_model
from terminals import PODIUM

from podium.errors import InvalidInput
from podium.models import Model, open_registry
from podium.models.export_hub import _Entry, check_address

pytestmark = pytest.mark.whole

FACTS = {
    "metric": {"name": "accuracy", "maximize": True},
    "metrics": {"accuracy": 0.9, "loss": None, "top5": 1, "sure": True},
    "dataset": {"name": "shapes", "digest": "d" * 64}, "code_version": "abc", "image": "trainer:1",
    "origin": {"kind": "trial", "name": "sweep-1", "experiment": "sweep", "uri": "file:///trained"},
}  # fmt: skip
PROPERTIES = {
    "accuracy": 0.9, "top5": 1.0, "run_id": "v1", "experiment": "sweep", "trial": "sweep-1", "dataset": "shapes",
    "data_digest": "d" * 64, "code_version": "abc", "image": "trainer:1",
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """v1, which is champion, v2, weights alone and a command; its name is not in a hub yet."""
    model = open_registry(tmp_path / "store").model(f"shapes-{uuid.uuid4().hex[:8]}")
    model.upload({"model.onnx": shapes_model()}, {"run_id": "v1", **FACTS})
    model.set_champion("v1", {}, expect=None)
    model.upload({"model.onnx": shapes_model()}, {"run_id": "v2"})
    model.upload({"model.safetensors": b"weights"}, {"run_id": "weights"})
    model.upload({"model.json": b'{"predict": ["true"]}'}, {"run_id": "command"})
    return model


def export(
    model: Model, *words: str, hub: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Export in a process of its own: the hub's client patches asyncio for good."""
    storage = model.storage.url
    command = [
        *PODIUM,
        "models",
        "export",
        model.name,
        *words,
        "--to",
        "hub",
        "--hub",
        hub,
        "--storage",
        storage,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | (env or {})
    )


def test_a_hub_is_told_uri_format_and_facts(model: Model) -> None:
    told = _Entry.of(model.champion)
    assert told.uri == f"{model.storage.url}/models/{model.name}/versions/v1"
    assert (told.form, told.form_version) == ("onnx", "1")
    assert told.description == "accuracy 0.9000 on the test part of shapes"
    assert told.properties == PROPERTIES
    assert Path(told.uri.removeprefix("file://"), "model.onnx").read_bytes() == shapes_model()


@pytest.mark.parametrize(
    ("version", "form"), [("weights", "safetensors"), ("command", "podium-command")]
)
def test_what_is_not_known_is_not_claimed(model: Model, version: str, form: str) -> None:
    told = _Entry.of(model.version(version))
    assert (told.form, told.form_version, told.description) == (form, None, None)
    assert told.properties == {"run_id": version}


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:8080",
        "ftp://hub",
        "http://",
        "http://hub/api",
        "http://hub:99999",
        "http://[",
        "http://u:secret@hub",
        "http://hub:8080#models",
        "http://a hub",
    ],
)
def test_an_address_that_cannot_be_a_hubs_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a model registry server") as refused:
        check_address(address)
    assert "secret" not in str(refused.value)


@contextmanager
def answering(status: int) -> Iterator[tuple[str, list[str]]]:
    """Serve one status for every request; yield the address, and the credentials that came."""
    came = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.headers["Authorization"])
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "it refuses the token"),
        (403, "it refuses the token"),
        (404, "it does not know the API"),
        (500, "it answered 500"),
    ],
)
def test_what_a_hub_refuses_is_a_sentence(
    model: Model, tmp_path: Path, status: int, reason: str
) -> None:
    (tmp_path / "token").write_text("let-me-in\n")
    with answering(status) as (hub, came):
        done = export(model, "--token-file", str(tmp_path / "token"), hub=hub)
    assert set(came) == {"Bearer let-me-in"}
    error, hint = done.stderr.splitlines()[-2:]  # a slow machine hears a sign of life first
    assert (done.returncode, done.stdout) == (1, "")
    assert error.startswith(f"error: {model.name} v1 is not registered at {hub}: {reason}")
    assert hint.startswith("hint: ")


def test_a_hub_that_is_not_there_is_a_sentence(model: Model) -> None:
    done = export(model, hub="http://127.0.0.1:1")
    error, hint = done.stderr.splitlines()[-2:]  # a slow machine hears a sign of life first
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not registered at http://127.0.0.1:1: Cannot connect to host 127.0.0.1:1" in error
    assert hint.startswith(
        "hint: kubectl port-forward --namespace kubeflow svc/model-registry-service 8080:8080"
    )


def test_a_hub_needs_both_of_its_options(model: Model) -> None:
    done = subprocess.run(
        [*PODIUM, "models", "export", model.name, "--to", "hub"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.splitlines()[-2]) == (
        2,
        "error: --to hub and --hub URL go together",
    )
    done = export(model, "-o", "out", hub="http://127.0.0.1:1")
    assert (done.returncode, done.stderr.splitlines()[-2]) == (
        2,
        "error: --to hub writes no directory and nothing to MLflow",
    )


HUB = os.environ.get("PODIUM_TEST_HUB", "")
real = pytest.mark.skipif(
    not HUB, reason="PODIUM_TEST_HUB names no server of Kubeflow's Model Registry"
)


def asked(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask the server without its client: POST what is given, else GET."""
    for api in ("v1", "v1alpha3"):
        request = Request(
            f"{HUB}/api/model_registry/{api}/{path}", json.dumps(body).encode() if body else None
        )
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=30) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            if error.code != 404 or api != "v1":
                raise
    raise AssertionError


def plain(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        name: next(held for key, held in value.items() if key != "metadataType")
        for name, value in properties.items()
    }


def known(
    model: Model, version: str
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Return the hub's model, its version and the artifacts of that."""
    there = asked(f"registered_model?name={quote(model.name)}")
    versions = asked(f"registered_models/{there['id']}/versions?pageSize=100")["items"]
    (found,) = [item for item in versions if item["name"] == version]
    return there, found, asked(f"model_versions/{found['id']}/artifacts")["items"]


@pytest.mark.slow
@real
def test_a_real_hub_has_one_version_after_two_exports(model: Model) -> None:
    first = export(model, hub=HUB)
    assert first.returncode == 0, first.stderr
    assert (
        f"hub: {model.name} v1 is version {first.stdout.strip()} at {HUB}, champion v1"
        in first.stderr
    )
    assert export(model, hub=HUB).stdout == first.stdout
    there, version, artifacts = known(model, "v1")
    assert (version["id"], version["state"], version["description"]) == (
        first.stdout.strip(), "LIVE", "accuracy 0.9000 on the test part of shapes",
    )  # fmt: skip
    assert plain(version["customProperties"]) == PROPERTIES
    assert plain(there["customProperties"]) == {"champion": "v1"}
    (artifact,) = artifacts
    assert artifact["uri"] == _Entry.of(model.champion).uri
    assert (artifact["modelFormatName"], artifact["modelFormatVersion"]) == ("onnx", "1")


@pytest.mark.slow
@real
def test_what_others_wrote_in_a_real_hub_stays(model: Model) -> None:
    text = {"metadataType": "MetadataStringValue", "string_value": "theirs"}
    there = asked(
        "registered_models",
        {"name": model.name, "owner": "them", "customProperties": {"team": text}},
    )
    cut_off = {
        "name": "v1",
        "registeredModelId": there["id"],
        "author": "them",
        "customProperties": {"note": text},
    }
    asked("model_versions", cut_off)  # and no artifact, as after an export that was killed
    assert export(model, hub=HUB).returncode == 0
    there, version, artifacts = known(model, "v1")
    assert (there["owner"], plain(there["customProperties"])) == (
        "them",
        {"team": "theirs", "champion": "v1"},
    )
    assert (version["author"], plain(version["customProperties"])) == (
        "them",
        {"note": "theirs", **PROPERTIES},
    )
    assert [artifact["uri"] for artifact in artifacts] == [_Entry.of(model.champion).uri]


@pytest.mark.slow
@real
def test_the_champion_of_a_real_hub_follows_exports(model: Model) -> None:
    assert export(model, "v2", hub=HUB).returncode == 0
    assert plain(known(model, "v2")[0]["customProperties"]) == {"champion": "v1"}
    model.set_champion("v2", {}, expect="v1")
    assert export(model, hub=HUB).returncode == 0
    assert plain(known(model, "v2")[0]["customProperties"]) == {"champion": "v2"}
    assert asked(f"registered_models/{known(model, 'v2')[0]['id']}/versions")["size"] == 1
