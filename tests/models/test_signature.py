"""Signatures of versions: podium's and those of OpenSSF's model_signing, each read by the other."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from handmade import npy, shapes_model

from podium.cli.predict import predict
from podium.errors import Conflict, Damaged, InvalidInput, Untrusted
from podium.models import Model, NotPromoted, Version, open_registry, signature
from podium.models.document import seal, sha256_of
from podium.models.ledger import Ledger
from podium.models.signature import PublicKey, sign, signature_key
from podium.serving.served import find_models

LABELS = (np.arange(200) % 2).astype(np.uint8)
FOREIGN = Path(sys.executable).with_name("model_signing")


def made_key(directory: Path, name: str, curve: str = "prime256v1") -> Path:
    """Make name.pem and name.pub as a person does, and return the private one."""
    private = directory / f"{name}.pem"
    subprocess.run(
        ["openssl", "ecparam", "-name", curve, "-genkey", "-noout", "-out", private], check=True
    )
    public = ["openssl", "ec", "-in", private, "-pubout", "-out", private.with_suffix(".pub")]
    subprocess.run(public, check=True, capture_output=True)
    return private


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """key.pem and key.pub; other.pem and other.pub of somebody else."""
    directory = tmp_path_factory.mktemp("keys")
    made_key(directory, "key")
    made_key(directory, "other")
    return directory


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """v1, and v2, which is better; v1 is champion."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    model = open_registry(tmp_path / "store").model("shapes")
    for version, wrong in (("v1", 40), ("v2", 5)):
        predicted = np.where(np.arange(200) < wrong, 1 - LABELS, LABELS).astype(np.uint8)
        model.upload(
            {"model.onnx": shapes_model(), "predictions.npy": npy(predicted), "target.npy": npy(LABELS), "report/a.json": b"{}"},
            {
                "run_id": version, "code_version": "0.1.0+abc", "image": "podium-steps@sha256:12", "metrics": {"accuracy": 1 - wrong / 200},
                "origin": {"experiment": "sweep", "trial": "sweep-1"}, "metric": {"name": "accuracy", "maximize": True},
                "dataset": {"digest": "d" * 64, "test_digest": "t", "classes": ["wide", "tall"]},
            },
        )  # fmt: skip
    model.set_champion("v1", {}, expect=None)
    return model


def folder(version: Version) -> Path:
    """Where the files of a version lie: the bucket of somebody who can write to it."""
    return Path(version.storage.url.removeprefix("file://")) / version.prefix


def foreign(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run OpenSSF's command."""
    return subprocess.run([FOREIGN, *map(str, words)], capture_output=True, text=True, check=False)


def swap(version: Version) -> None:
    """Replace model.onnx and everything that its hash stands in, so that podium's own checks find nothing."""
    other = shapes_model().replace(b"logits", b"stigol")
    (folder(version) / "model.onnx").write_bytes(other)
    document = version.document()
    digest, size = sha256_of(other)
    document["files"]["model.onnx"] = {"sha256": digest, "size": size}
    publish(version, seal(document))


def publish(version: Version, metadata: bytes) -> None:
    """Replace metadata.json, and what the document of the model says of it."""
    (folder(version) / "metadata.json").write_bytes(metadata)
    digest, _ = sha256_of(metadata)
    ledger = Ledger(version.storage, version.name)
    ledger.change(
        lambda state: replace(state, versions={**state.versions, version.version: digest})
    )


@pytest.mark.parametrize("curve", ["prime256v1", "secp384r1", "secp521r1"])
def test_model_signing_accepts_what_podium_signed(model: Model, tmp_path: Path, curve: str) -> None:
    private = made_key(tmp_path, "own", curve)
    version = model.version("v2")
    sign(version, private)
    version.fetch(tmp_path / "out")
    checked = foreign("verify", "key", tmp_path / "out", "--signature", tmp_path / "out/model.sig",
                      "--public_key", private.with_suffix(".pub"))  # fmt: skip
    assert (checked.returncode, checked.stdout) == (0, "Verification succeeded\n"), checked.stderr


def test_podium_accepts_what_model_signing_signed(
    model: Model,
    keys: Path,
    tmp_path: Path,
    typed: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model.version("v2").fetch(tmp_path / "out")
    made = foreign(
        "sign",
        "key",
        tmp_path / "out",
        "--signature",
        tmp_path / "out/model.sig",
        "--private_key",
        keys / "key.pem",
    )
    assert made.returncode == 0, made.stderr
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    assert (
        typed(
            "models", "sign", "shapes", "v2", "--signature", tmp_path / "out/model.sig"
        ).returncode
        == 0
    )
    assert typed("models", "verify", "shapes", "v2").returncode == 0
    assert (
        typed(
            "models", "sign", "shapes", "v1", "--signature", tmp_path / "out/model.sig"
        ).returncode
        == 1
    )


def test_a_swapped_model_is_found_by_both(
    model: Model, keys: Path, tmp_path: Path, typed: Callable[..., Any]
) -> None:
    assert typed("models", "sign", "shapes", "--key", keys / "key.pem").returncode == 0
    swap(model.version("v1"))
    assert (
        typed("models", "verify", "shapes").returncode == 0
    )  # the hashes fit: they were swapped too
    found = typed("models", "verify", "shapes", "champion", "--key", keys / "key.pub", "--json")
    (finding,) = json.loads(found.stdout)["findings"]
    assert found.returncode == 1
    assert finding["what"].startswith(
        "shapes v1 is not what was signed: metadata.json, model.onnx differ"
    )
    assert typed("models", "verify", "--key", keys / "key.pub").returncode == 1
    model.version("v1").fetch(tmp_path / "out")
    words = (
        "verify",
        "key",
        tmp_path / "out",
        "--signature",
        tmp_path / "out/model.sig",
        "--public_key",
        keys / "key.pub",
    )
    checked = foreign(*words)
    assert checked.returncode == 1
    assert "Hash mismatch for 'model.onnx'" in checked.stdout + checked.stderr


def test_what_is_not_signed_is_not_used(
    model: Model, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    attempts: list[Callable[[], object]] = [
        lambda: model.promote("v2"),
        lambda: model.champion.fetch(tmp_path / "out"),
        lambda: model.champion.opened,
        lambda: [served.open() for served in find_models(["shapes"], None)],
    ]
    for attempt in attempts:
        with pytest.raises(Untrusted, match=r"shapes v\d is not signed"):
            attempt()
    assert not (tmp_path / "out").exists()
    assert model.champion.version == "v1"
    for name in ("v1", "v2"):
        sign(model.version(name), keys / "key.pem")
    for attempt in attempts:
        attempt()
    assert model.champion.version == "v2"
    assert model.rollback().version == "v1"


def test_the_key_of_somebody_else_does_not_count(
    model: Model, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    sign(model.version("v2"), keys / "other.pem")
    with pytest.raises(Untrusted, match="was made with the key"):
        model.promote("v2")
    # The name of the key in the file is not what is believed.
    place = folder(model.version("v2")) / "model.sig"
    bundle = json.loads(place.read_text())
    bundle["verificationMaterial"]["publicKey"]["hint"] = PublicKey.read(
        keys / "key.pub"
    ).fingerprint
    place.write_text(json.dumps(bundle))
    with pytest.raises(Untrusted, match="not a valid signature"):
        model.promote("v2")


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"mediaType": 1}', '{"dsseEnvelope": {"signatures": []}}', "nul"]
)
def test_nonsense_is_not_a_signature(model: Model, keys: Path, content: str) -> None:
    version = model.version("v2")
    (folder(version) / "model.sig").write_text(content)
    with pytest.raises(Untrusted, match="not a signature of") as refused:
        PublicKey.read(keys / "key.pub").check(version)
    assert refused.value.message.endswith("made with a key"), "no word of a parser"


@pytest.mark.parametrize("member", ["payload", "sig"])
def test_a_letter_beyond_ascii_in_a_signature_is_a_sentence(
    model: Model,
    keys: Path,
    typed: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    member: str,
) -> None:
    version = model.version("v1")
    sign(version, keys / "key.pem")
    file = folder(version) / "model.sig"
    before = f'"{member}":"'.encode()
    file.write_bytes(file.read_bytes().replace(before, before + "é".encode()))
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    for words in (["models", "verify", "shapes", "v1"], ["predict", file, "--model", "shapes"]):
        done = typed(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        assert "is not a signature of model-signing 1.x" in done.stdout + done.stderr


def test_the_signature_of_another_version_does_not_count(model: Model, keys: Path) -> None:
    sign(model.version("v1"), keys / "key.pem")
    place = folder(model.version("v2")) / "model.sig"
    place.write_bytes((folder(model.version("v1")) / "model.sig").read_bytes())
    with pytest.raises(Untrusted, match=r"metadata\.json, predictions\.npy differ"):
        PublicKey.read(keys / "key.pub").check(model.version("v2"))


def test_metadata_that_changes_between_two_reads_is_noticed(model: Model, keys: Path) -> None:
    version = model.version("v2")
    sign(version, keys / "key.pem")
    honest = (folder(version) / "metadata.json").read_bytes()
    swap(version)
    swapped = model.version("v2")
    (folder(version) / "metadata.json").write_bytes(honest)
    with pytest.raises(Conflict, match="changed while it was read"):
        PublicKey.read(keys / "key.pub").check(swapped)


def test_a_rule_can_ask_for_a_signature(
    model: Model, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="PODIUM_PUBLIC_KEY names no key"):
        model.promote("v2", rule="better,signed")
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    with pytest.raises(NotPromoted) as refused:
        model.promote("v2", rule="better,signed")
    assert refused.value.decision.reasons[0] == "no: shapes v2 is not signed"
    assert model.records()[-1].event == "refusal"
    sign(model.version("v2"), keys / "key.pem")
    promoted = model.promote("v2", rule="better,signed")
    assert promoted.version == "v2"
    assert promoted.decision
    assert promoted.decision.figures["rule"].endswith(",signed")
    assert any(reason.startswith("ok: signed with the key") for reason in promoted.decision.reasons)


def test_a_signature_changes_nothing_about_the_version(model: Model, keys: Path) -> None:
    before = model.version("v2")
    sign(before, keys / "key.pem")
    assert model.version("v2") == before
    assert list(model.verify()) == []
    assert [garbage for garbage in model.gc(delete=True) if garbage.version == "v2"] == []
    model.delete("v2")
    assert not folder(before).exists()
    with pytest.raises(InvalidInput, match=r"cannot be called model\.sig"):
        model.upload({"model.onnx": b"graph", "model.sig": b"{}"}, {}, "v3")


def test_a_damaged_version_is_not_signed(model: Model, keys: Path) -> None:
    version = model.version("v2")
    (folder(version) / "report/a.json").write_bytes(b"[]")
    with pytest.raises(Damaged):
        sign(version, keys / "key.pem")
    assert not (folder(version) / "model.sig").exists()


def test_a_served_directory_must_be_what_was_signed(
    model: Model, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    sign(model.version("v1"), keys / "key.pem")
    model.champion.fetch(tmp_path / "out")
    (served,) = find_models([str(tmp_path / "out")], None)
    served.open()
    (tmp_path / "out/preprocessing.json").write_text("{}")
    (served,) = find_models([str(tmp_path / "out")], None)
    with pytest.raises(Untrusted, match=r"preprocessing\.json differ"):
        served.open()
    (tmp_path / "out/model.sig").unlink()
    with pytest.raises(Untrusted, match=r"has no model\.sig"):
        served.open()


@pytest.mark.parametrize("named", ["out", "out/model.json"])
def test_a_command_runs_in_no_copy_that_nobody_signed(
    model: Model, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    code = b"import sys, numpy as np\nwords = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n" \
        b"np.save(words['--output'], np.load(words['--inputs'] + '/table.npy').sum(1))\n"  # fmt: skip
    described = json.dumps({"predict": ["python", "predict.py"]}).encode()
    model.upload({"model.json": described, "predict.py": code}, {"run_id": "v3"})
    sign(model.version("v3"), keys / "key.pem")
    model.version("v3").fetch(tmp_path / "out")
    (served,) = find_models([str(tmp_path / named)], None)
    _, _, opened = served._find()
    command = opened().model
    inputs = {"table": np.ones((2, 3), np.float32)}
    assert command.predict(inputs, classes=None).tolist() == [3, 3]  # type: ignore[union-attr, call-arg]
    (tmp_path / "out").chmod(0o555)
    command.fetch(tmp_path / "copy")  # type: ignore[union-attr]
    assert (tmp_path / "copy").stat().st_mode & 0o200, "a command may write beside its model"
    (tmp_path / "out").chmod(0o755)
    (tmp_path / "out/predict.py").write_bytes(code.replace(b"sum", b"max"))
    with pytest.raises(Untrusted, match=r"/out is not what was signed: predict\.py differ"):
        command.predict(inputs, classes=None)  # type: ignore[union-attr, call-arg]


@pytest.mark.parametrize("named", ["out", "out/model.onnx"])
def test_a_directory_that_predicts_must_be_what_was_signed(
    model: Model, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    model.champion.fetch(tmp_path / "out")
    (tmp_path / "rows.csv").write_text("x,color\n1,red\n")
    words = ["predict", str(tmp_path / "rows.csv"), "--file", str(tmp_path / named)]
    assert "has no model.sig" not in CliRunner().invoke(predict, words).output
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    asked = CliRunner().invoke(predict, words)
    assert isinstance(asked.exception, Untrusted), asked.output
    assert "has no model.sig" in str(asked.exception)


def test_keys_that_cannot_sign_are_refused_in_a_sentence(
    model: Model, keys: Path, tmp_path: Path
) -> None:
    version = model.version("v2")
    rsa, locked = tmp_path / "rsa.pem", tmp_path / "locked.pem"
    subprocess.run(["openssl", "genrsa", "-out", rsa, "2048"], check=True, capture_output=True)
    lock = [
        "openssl",
        "ec",
        "-in",
        keys / "key.pem",
        "-aes256",
        "-passout",
        "pass:secret",
        "-out",
        locked,
    ]
    subprocess.run(lock, check=True, capture_output=True)
    for file, said in (
        (rsa, "not of a curve"),
        (locked, "encrypted"),
        (keys / "key.pub", "private key"),
        (tmp_path / "no", "cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=said):
            sign(version, file)


def test_a_signature_of_some_files_only_is_refused(
    model: Model, keys: Path, tmp_path: Path
) -> None:
    version = model.version("v2")
    version.fetch(tmp_path / "out")
    words = (
        "sign",
        "key",
        tmp_path / "out",
        "--signature",
        folder(version) / "model.sig",
        "--private_key",
        keys / "key.pem",
    )
    assert foreign(*words, "--ignore-paths", tmp_path / "out/model.onnx").returncode == 0
    with pytest.raises(Untrusted, match=r"model\.onnx differ, or are on one side only"):
        PublicKey.read(keys / "key.pub").check(version)


def test_an_unsigned_version_is_no_way_back(
    model: Model, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(keys / "key.pub"))
    for name in ("v1", "v2"):
        sign(model.version(name), keys / "key.pem")
    model.promote("v2")
    os.unlink(folder(model.version("v1")) / "model.sig")
    with pytest.raises(Untrusted, match="v1 is not signed"):
        model.rollback()
    assert model.champion.version == "v2"


def test_a_link_in_a_served_directory_is_refused(model: Model, keys: Path, tmp_path: Path) -> None:
    version = model.version("v2")
    sign(version, keys / "key.pem")
    version.fetch(tmp_path / "out")
    PublicKey.read(keys / "key.pub").check_directory(tmp_path / "out")
    (tmp_path / "out" / "model.onnx").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "model.onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Untrusted, match="symbolic link"):
        PublicKey.read(keys / "key.pub").check_directory(tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda listed: listed[0].update(algorithm="sha1"), "is not of whole files"),
        (lambda listed: listed.append({**listed[0], "digest": "0" * 64}), "contradicts itself"),
    ],
)
def test_a_list_of_files_that_says_two_things_is_refused(
    model: Model, keys: Path, change: Callable[[list[dict[str, str]]], None], said: str
) -> None:
    version = model.version("v2")
    sign(version, keys / "key.pem")
    place = folder(version) / "model.sig"
    bundle = json.loads(place.read_text())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    listed = statement["predicate"]["resources"]
    change(listed)
    whole = b"".join(bytes.fromhex(item["digest"]) for item in listed)
    statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(whole).hexdigest()
    with pytest.raises(Untrusted, match=said):
        signature._resources(json.dumps(statement).encode(), "model.sig")


def test_checking_a_signature_reads_no_file(
    model: Model, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = model.version("v2")
    sign(version, keys / "key.pem")
    monkeypatch.setattr(Version, "read", None)
    monkeypatch.setattr(Version, "_fetch", None)
    os.unlink(folder(version) / "model.onnx")
    PublicKey.read(keys / "key.pub").check(version)


def test_a_version_in_a_bucket_is_signed_there(
    new_bucket: Callable[[str], str], keys: Path, tmp_path: Path
) -> None:
    model = open_registry(new_bucket("moto")).model("shapes")
    version = model.upload({"model.onnx": shapes_model()}, {}, "v1")
    public = PublicKey.read(keys / "key.pub")
    with pytest.raises(Untrusted, match="not signed"):
        public.check(version)
    sign(version, keys / "key.pem")
    assert list(model.verify(key=public, only="v1")) == []
    version.fetch(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "metadata.json",
        "model.onnx",
        "model.sig",
    ]
    model.storage.put(signature_key(version), b"{}")
    assert [finding.where for finding in model.verify(key=public, only="v1")] == [
        signature_key(version)
    ]
