"""Whatever is wrong with bytes from elsewhere is one sentence: each parser reads mutations of a valid file."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from handmade import npy

from podium.data.seen import parse_hashes
from podium.errors import PodiumError
from podium.manifests.typed import typed
from podium.models.document import seal, unseal
from podium.models.ledger import State
from podium.models.record import Record
from podium.models.signature import PublicKey, _signed
from podium.models.version import parse_metadata
from podium.prediction.command import PredictCommand, read_predictions
from podium.system.pod import load_configuration

COUNT = 300
NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 2**70, 1.5, 1e999, "", "é", "\x00", "../x", "9" * 5000, [], {}, [[]], [None], {"": None}, {"a": {}},
)  # fmt: skip


def mutated_bytes(content: bytes, draw: random.Random) -> bytes:
    """Flip, drop, repeat or insert some bytes, or cut the end off."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(changed) + 1)
        piece = draw.choice(
            (b"", b"\xc3\xa9", b"\xff", b"{", b'"', b"[" * 50, b"9" * 30, bytes(changed[:20]))
        )
        changed[at : at + draw.choice((0, 1, 1, 8))] = piece or draw.randbytes(1)
    return (
        bytes(changed[: draw.randrange(len(changed) + 1)])
        if draw.random() < 0.1
        else bytes(changed)
    )


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each holder in a document with a key of it."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def mutated(value: Any, draw: random.Random) -> Any:
    """Replace some values by nasty ones, or drop them."""
    changed = deepcopy(value)
    for _ in range(draw.choice((1, 1, 2))):
        holder, key = draw.choice(list(places(changed)) or [({"": 0}, "")])
        if draw.random() < 0.2:
            del holder[key]
        else:
            holder[key] = deepcopy(draw.choice(NASTY))
    return changed


def resealed(document: dict[str, Any], draw: random.Random) -> bytes:
    """Return a mutated document with a checksum that fits, as far as JSON can say it."""
    try:
        return seal(mutated(document, draw))
    except PodiumError:
        return mutated_bytes(seal(document), draw)


def dumped(document: Any, draw: random.Random) -> bytes:
    return json.dumps(mutated(document, draw)).encode()


@pytest.fixture(scope="module")
def key() -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return PublicKey(ec.generate_private_key(ec.SECP256R1()).public_key())


RECORD = Record.new("promotion", "shapes", "v2", alias="champion", sequence=1, evidence={
    "reason": "better", "reasons": ["a"], "metric": {"name": "accuracy"}, "value": 0.5, "champion": "v1", "p_value": 0.1,
}).to_json()  # fmt: skip
LEDGER = {
    "format": "podium.ledger/1", "name": "shapes", "versions": {"v2": "0" * 64}, "aliases": {"champion": RECORD}, "history": [RECORD],
    "segments": ["0" * 64], "deleting": {"v1": "t"}, "collected": "",
}  # fmt: skip
METADATA = {
    "format": "podium.model/1", "name": "shapes", "version": "v1", "created": "2026-01-01T00:00:00.000000Z", "run_id": "r",
    "files": {"model.onnx": {"sha256": "0" * 64, "size": 1}}, "metrics": {"accuracy": 0.5}, "code_version": "1",
    "metric": {"name": "accuracy", "maximize": True}, "dataset": {"digest": "d", "classes": ["a", "b"]},
    "origin": {"experiment": "sweep", "trial": "t"}, "environment": {"packages": {"numpy": "2"}},
}  # fmt: skip
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "here", "preferences": {},
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": "YQ=="}}],
    "users": [{"name": "u", "user": {"token": "secret", "client-certificate-data": "YQ==", "client-key-data": "YQ=="}}],
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
}  # fmt: skip
JOB = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": {"x": "y"}},
    "spec": {"backoffLimit": 1, "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"restartPolicy": "Never",
             "containers": [{"name": "main", "image": "python", "command": ["python"], "env": [{"name": "A", "value": "1"}]}]}}},
}  # fmt: skip


def of_signature(draw: random.Random, place: Path, key: PublicKey) -> None:
    statement = {
        "_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "x", "digest": {"sha256": "0"}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": {"method": "files"}, "resources": [{"algorithm": "sha256", "name": "f", "digest": "00"}]},
    }  # fmt: skip
    import base64

    bundle = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": key.fingerprint}},
        "dsseEnvelope": {"payload": base64.b64encode(dumped(statement, draw)).decode(),
                         "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AAAA", "keyid": ""}]},
    }  # fmt: skip
    from podium.models.signature import _resources

    for read in (
        lambda: _resources(dumped(statement, draw), "model.sig"),
        lambda: _signed(dumped(bundle, draw), key, "model.sig"),
        lambda: _signed(mutated_bytes(json.dumps(bundle).encode(), draw), key, "model.sig"),
    ):
        in_a_sentence(read)


def of_ledger(draw: random.Random, place: Path, key: PublicKey) -> None:
    in_a_sentence(lambda: State.parse(mutated(LEDGER, draw), "model.json", "shapes"))
    in_a_sentence(lambda: unseal(mutated_bytes(seal(LEDGER), draw), "model.json"))


def of_metadata(draw: random.Random, place: Path, key: PublicKey) -> None:
    storage: Any = SimpleNamespace(join=str)
    in_a_sentence(lambda: parse_metadata(resealed(METADATA, draw), storage, "shapes", "v1"))


def of_predictions(draw: random.Random, place: Path, key: PublicKey) -> None:
    file, content = place / "predictions.npy", npy(np.eye(3, dtype=np.float32))
    head = draw.random() < 0.7  # the header is a Python literal
    file.write_bytes(
        mutated_bytes(content[:128], draw) + content[128:] if head else mutated_bytes(content, draw)
    )
    in_a_sentence(lambda: read_predictions(file, items=3, classes=3, name="a command"))
    in_a_sentence(lambda: parse_hashes(file.read_bytes(), "hashes.npy"))


def of_predict_command(draw: random.Random, place: Path, key: PublicKey) -> None:
    in_a_sentence(
        lambda: PredictCommand.parse(
            dumped({"predict": ["a"], "serve": ["b"], "uris": True}, draw), "model.json"
        )
    )


def of_kubeconfig(draw: random.Random, place: Path, key: PublicKey) -> None:
    file, text = place / "config", yaml.safe_dump(mutated(KUBECONFIG, draw), allow_unicode=True)
    file.write_bytes(mutated_bytes(text.encode(), draw) if draw.random() < 0.3 else text.encode())
    in_a_sentence(lambda: load_configuration(environ={"KUBECONFIG": str(file)}))


def of_manifest(draw: random.Random, place: Path, key: PublicKey) -> None:
    from podium.files.documents import load_yaml
    from podium.manifests.admission import admit

    in_a_sentence(
        lambda: [
            typed(document)
            for document in load_yaml(mutated_bytes(json.dumps(JOB).encode(), draw), "a.yaml")
        ]
    )
    in_a_sentence(lambda: admit(mutated(JOB, draw)))


def in_a_sentence(read: Callable[[], Any]) -> None:
    """Read, or be refused by one of podium's errors."""
    with suppress(PodiumError):
        read()


def valid(place: Path) -> None:
    """Read what is not mutated: else nothing above would be tried."""
    from podium.manifests.admission import admit

    storage: Any = SimpleNamespace(join=str)
    (place / "config").write_text(yaml.safe_dump(KUBECONFIG))
    assert State.parse(LEDGER, "model.json", "shapes").aliases["champion"].version == "v2"
    assert parse_metadata(seal(METADATA), storage, "shapes", "v1").version == "v1"
    assert load_configuration(environ={"KUBECONFIG": str(place / "config")})[1] == "team"
    assert admit(JOB).name == "a"


PARSERS = (
    of_signature,
    of_ledger,
    of_metadata,
    of_predictions,
    of_predict_command,
    of_kubeconfig,
    of_manifest,
)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_what_is_wrong_with_foreign_bytes_is_a_sentence(
    parser: Callable[[random.Random, Path, PublicKey], None],
    tmp_path: Path,
    key: PublicKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for seed in range(COUNT // 3 if parser is of_kubeconfig else COUNT):  # whose client is slow
        try:
            parser(random.Random(seed), tmp_path, key)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_valid_foreign_bytes_are_read(tmp_path: Path) -> None:
    valid(tmp_path)
