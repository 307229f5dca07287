"""The signature of a version: ``model.sig`` beside its files, in the format of OpenSSF's
model-signing 1.x.

A Sigstore bundle holds a DSSE envelope around an in-toto statement that lists every file of the
version with its sha256. metadata.json is one of them, and says in turn which run, code, image and
dataset the version comes from. Keys are local PEM files. A check need not read the files:
metadata.json holds their checksums, and every read of a version compares with those.
"""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, NotFound, PodiumError, Untrusted
from podium.files.documents import foreign, load_json
from podium.models.decision import Decision
from podium.models.document import CARD, MAX_BYTES, command, sha256_of
from podium.storage import connect, transfer
from podium.system.settings import PUBLIC_KEY

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    from podium.models.version import Version
    from podium.prediction import Predictor

SIGNATURE = "model.sig"
"""Beside the files of a version that was signed; not one of them, so a version can be signed after
its upload."""

_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
_CURVES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
"""The digest that goes with each curve."""

_MAKE = "openssl ecparam -name prime256v1 -genkey -noout -out key.pem; openssl ec -in key.pem -pubout -out pub.pem"


@dataclass(frozen=True)
class PublicKey:
    """Public key that signatures are verified with."""

    key: "EllipticCurvePublicKey"

    @property
    def fingerprint(self) -> str:
        """The sha256 of its PEM, as a signature names its key."""
        return hashlib.sha256(self.pem.encode()).hexdigest()

    @property
    def pem(self) -> str:
        """The key as text."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    @classmethod
    def read(cls, path: Path) -> "PublicKey":
        """Read a PEM file.

        Raises:
            InvalidInput: It holds no public key of a curve that can be used.
        """
        load = _crypto("load_pem_public_key")
        with foreign(
            f"{path} does not hold a public key", hint="openssl ec -in key.pem -pubout", why=False
        ):
            key = load(_pem(path))
        return cls(_of_a_curve(key, path))

    def check(self, version: "Version") -> None:
        """Refuse a version unless its signature was made with this key, and of the metadata and
        checksums it has.

        Raises:
            Untrusted: It is not signed, was signed with another key, or is not what was signed.
            Conflict: It was deleted or replaced meanwhile.
        """
        storage = version.storage
        try:
            content = storage.get(signature_key(version), limit=MAX_BYTES + 1)
        except NotFound:
            hint = command(f"models sign {version.name} {version.version} --key key.pem", storage)
            raise Untrusted(f"{version.title} is not signed", hint) from None
        signed = _signed(content, self, storage.join(signature_key(version)))
        _compare(version.title, signed, version.checksums())

    def check_directory(self, directory: Path) -> None:
        """Refuse a directory, such as one that was exported, unless its model.sig is of the files
        it has.

        Raises:
            Untrusted: It is not signed, was signed with another key, or is not what was signed.
        """
        file = directory / SIGNATURE
        if not file.is_file():
            raise Untrusted(
                f"{directory} has no {SIGNATURE}",
                f"unset {PUBLIC_KEY} for what nobody signed, or export a "
                "signed version: podium models export NAME champion DIRECTORY",
            )
        signed = _signed(file.read_bytes(), self, str(file))
        inside = [
            path
            for path in directory.rglob("*")
            if path != file and (path.is_symlink() or not path.is_dir())
        ]
        if strange := next(
            (path for path in inside if path.is_symlink() or not path.is_file()), None
        ):
            raise Untrusted(
                f"{strange} is a symbolic link or a special file",
                "a signature is of files: export it again",
            )
        present = {path.relative_to(directory).as_posix(): sha256_of(path)[0] for path in inside}
        if CARD not in signed:
            present.pop(CARD, None)  # export writes it beside what was signed, and nothing reads it
        _compare(str(directory), signed, present)

    def attach(self, version: "Version", signature_file: Path) -> None:
        """Store a signature that was made elsewhere, if it is one of this version.

        Raises:
            Untrusted: It was made with another key, or of other files.
        """
        _require_place(version)
        try:
            content = signature_file.read_bytes()
        except OSError as error:
            raise InvalidInput(
                f"{signature_file} cannot be read: {error.strerror}", "name a model.sig"
            ) from None
        _compare(version.title, _signed(content, self, str(signature_file)), version.checksums())
        version.storage.put(signature_key(version), content)

    def require(self, made: bytes, content: bytes, subject: str) -> None:
        """Refuse content unless this key has made its signature.

        Raises:
            Untrusted: It has not.
        """
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        algorithm = ec.ECDSA(getattr(hashes, _CURVES[self.key.curve.name])())
        try:
            self.key.verify(made, content, algorithm)
        except InvalidSignature:
            raise Untrusted(
                f"{subject} is not a valid signature of the key {self.fingerprint[:16]}",
                "sign it again",
            ) from None


def signature_key(version: "Version") -> str:
    """Return the key of a version's signature, whether it is signed or not."""
    return f"{version.prefix}/{SIGNATURE}"


def public_key() -> PublicKey | None:
    """Return the key of PODIUM_PUBLIC_KEY; None if it is not set.

    Raises:
        InvalidInput: There is no such file, or it holds no public key.
    """
    path = os.environ.get(PUBLIC_KEY)
    return PublicKey.read(Path(path)) if path else None


def require_trusted(version: "Version") -> None:
    """Refuse a version without a valid signature, if PODIUM_PUBLIC_KEY names a key.

    Raises:
        Untrusted: It is not signed, was signed with another key, or is not what was signed.
    """
    if key := public_key():
        key.check(version)


def _require_trusted_directory(model: str | Path) -> None:
    """Refuse a model directory, or the one that a model file lies in, as require_trusted does a
    version.

    Raises:
        Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have.
    """
    if key := public_key():
        path = Path(model)
        key.check_directory(path.parent if path.is_file() else path)


def open_trusted(model: str | Path) -> "Predictor":
    """Open a model directory or a file in it; a required signature is that of the directory, and of
    each copy that a command runs in.

    Raises:
        Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have.
    """
    from podium.prediction import open_model
    from podium.prediction.command import CommandModel

    _require_trusted_directory(model)
    predictor, path = open_model(model), Path(model)
    if public_key() and isinstance(predictor.model, CommandModel):
        directory = path.parent if path.is_file() else path
        predictor.model = replace(predictor.model, fetch=partial(_copy_trusted, directory))
    return predictor


def _copy_trusted(directory: Path, target: Path) -> None:
    transfer.get(connect(directory), target)
    try:
        _require_trusted_directory(target)  # somebody may have written to the directory meanwhile
    except Untrusted as error:  # by the directory's name: the copy is gone then
        message = error.message.replace(str(target), str(directory))
        raise Untrusted(message, error.hint) from None


def require_key() -> PublicKey:
    """Return the key of PODIUM_PUBLIC_KEY.

    Raises:
        InvalidInput: It is not set, or no public key is there.
    """
    if key := public_key():
        return key
    raise InvalidInput(
        f"a signature is asked for, but {PUBLIC_KEY} names no key", f"export {PUBLIC_KEY}=pub.pem"
    )


def judge(decision: Decision, challenger: "Version") -> Decision:
    """Return a decision that also refuses a challenger without a valid signature, if
    PODIUM_PUBLIC_KEY names a key."""
    key = public_key()
    if key is None:
        return decision
    try:
        key.check(challenger)
    except Untrusted as error:
        return decision.refused(error.message)
    return decision.noting(f"signed with the key {key.fingerprint[:16]}")


def sign(version: "Version", key_file: Path) -> PublicKey:
    """Sign a version after reading every byte of it; an earlier signature is replaced.

    Args:
        key_file: PEM of the private key.

    Raises:
        InvalidInput: It holds no private key of a curve that can be used, or the version has a
            model.sig of its own.
        Damaged: A file of the version is missing or not what was uploaded.
    """
    _require_place(version)
    write, public = signer(key_file)
    version.verify()
    payload = json.dumps(
        _statement(f"{version.name}@{version.version}", version.checksums()), indent=2
    ).encode()
    made = write(_pae(payload))
    bundle = {
        "mediaType": _BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": public.fingerprint}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": _PAYLOAD,
            "signatures": [{"sig": base64.b64encode(made).decode(), "keyid": ""}],
        },
    }
    version.storage.put(signature_key(version), json.dumps(bundle, separators=(",", ":")).encode())
    return public


def signer(key_file: Path) -> tuple[Callable[[bytes], bytes], PublicKey]:
    """Return what signs with a private key, and the public key that belongs to it.

    Raises:
        InvalidInput: The file holds no private key of a curve that can be used.
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    load = _crypto("load_pem_private_key")
    try:
        key = load(_pem(key_file), None)
    except TypeError:
        raise InvalidInput(
            f"the key in {key_file} is encrypted",
            f"openssl ec -in {key_file} -out plain.pem; then --key plain.pem",
        ) from None
    except InvalidInput:
        raise
    except Exception:  # also for a curve that cryptography does not know
        raise InvalidInput(f"{key_file} does not hold a private key", _MAKE) from None
    public = PublicKey(_of_a_curve(key, key_file).public_key())
    algorithm = ec.ECDSA(getattr(hashes, _CURVES[public.key.curve.name])())
    return lambda content: bytes(key.sign(content, algorithm)), public


def _require_place(version: "Version") -> None:
    if SIGNATURE in version.files:
        raise InvalidInput(
            f"{version.title} was uploaded with a {SIGNATURE} of its own",
            "upload it without that file",
        )


def _compare(subject: str, signed: Mapping[str, str], present: Mapping[str, str]) -> None:
    differing = sorted(
        name for name in {*signed, *present} if signed.get(name) != present.get(name)
    )
    if differing:
        raise Untrusted(
            f"{subject} is not what was signed: {', '.join(differing):.200} differ, or are on one side only",
            "find out who changed it; restore it from a backup, or sign it again",
        )


def _statement(subject: str, files: Mapping[str, str]) -> dict[str, Any]:
    ordered = sorted(files.items(), key=lambda item: PurePosixPath(item[0]))
    return {
        "_type": _STATEMENT,
        "subject": [
            {"name": subject, "digest": {"sha256": _root(digest for _, digest in ordered)}}
        ],
        "predicateType": _PREDICATE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": [SIGNATURE],
            },
            "resources": [
                {"algorithm": "sha256", "name": name, "digest": digest} for name, digest in ordered
            ],
        },
    }


def _root(digests: Iterable[str]) -> str:
    return hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


def _signed(content: bytes, key: PublicKey, where: str) -> dict[str, str]:
    """Return the sha256 of each signed file, after checking the signature.

    Raises:
        Untrusted: The signature is not valid, not of this key, or not in a form that is known.
    """
    unknown = f"{where} is not a signature of model-signing 1.x made with a key"
    with foreign(unknown, Untrusted, "sign it again", why=False):
        bundle = load_json(content, where, limit=MAX_BYTES)
        envelope = bundle["dsseEnvelope"]
        hint = bundle["verificationMaterial"].get("publicKey", {}).get("hint")
        payload = base64.b64decode(envelope["payload"], validate=True)
        made = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
        if (bundle["mediaType"], envelope["payloadType"]) != (_BUNDLE, _PAYLOAD):
            raise Untrusted(unknown, "sign it again")
    if hint not in (None, key.fingerprint):
        raise Untrusted(
            f"{where} was made with the key {hint!s:.16}, not with {key.fingerprint[:16]}",
            "check with the public key that belongs to the signer's",
        )
    key.require(made, _pae(payload), where)
    return _resources(payload, where)


def _resources(payload: bytes, where: str) -> dict[str, str]:
    with foreign(
        f"{where} holds no statement of model-signing 1.x", Untrusted, "sign it again", why=False
    ):
        statement = load_json(payload, where)
        predicate = statement["predicate"]
        form = (
            statement["_type"],
            statement["predicateType"],
            predicate["serialization"]["method"],
        )
        listed = [(str(item["name"]), str(item["digest"])) for item in predicate["resources"]]
        algorithms = {str(item["algorithm"]) for item in predicate["resources"]}
        root, whole = (
            _root(digest for _, digest in listed),
            statement["subject"][0]["digest"]["sha256"],
        )
    if form != (_STATEMENT, _PREDICATE, "files") or algorithms != {"sha256"}:
        raise Untrusted(
            f"{where} is not of whole files and their sha256, but {form[2]}, {', '.join(algorithms)}",
            "model_signing sign key, without another hash or shards",
        )
    if root != whole or len(dict(listed)) != len(listed):
        raise Untrusted(f"the list of files in {where} contradicts itself", "sign it again")
    return dict(listed)


def _pae(payload: bytes) -> bytes:
    """Return the pre-authentication encoding of an envelope (DSSE v1.0.0, protocol.md)."""
    return b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD), _PAYLOAD.encode(), len(payload), payload)


def _pem(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"the key {path} cannot be read: {error.strerror}", _MAKE) from None


def _of_a_curve(key: Any, path: Path) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    if (
        not isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey)
        or key.curve.name not in _CURVES
    ):
        raise InvalidInput(f"the key in {path} is not of a curve {', '.join(_CURVES)}", _MAKE)
    return key


def _crypto(function: str) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise PodiumError("signatures need cryptography", "pip install 'podium-ml[sign]'") from None
    return getattr(serialization, function)
