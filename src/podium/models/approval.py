"""A person's word on a version that meets its promotion rule: yes or no, who said so, and why.

A rule with ``approved`` keeps such a version waiting: the refusal in the history says so.
``approve`` writes a record and compares anew, as the champion may have moved since; ``reject``
writes one too, and the version stays refused.
"""

import base64
import binascii
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, NotFound, Untrusted, require
from podium.models.decision import Decision, Promotion
from podium.models.document import command
from podium.models.ledger import Ledger
from podium.models.record import Record
from podium.models.signature import public_key, signer
from podium.models.version import Version
from podium.system.machine import user_name
from podium.system.settings import PUBLIC_KEY

if TYPE_CHECKING:
    from podium.models.model import Model

WAITING = "waiting"
"""In the evidence of a refusal: only a person's word was missing."""

_WORDS = ("approval", "rejection")


def judge(decision: Decision, challenger: Version) -> Decision:
    """Return a decision of a rule with ``approved``, which also takes a person's yes."""
    if not decision.promote:
        return decision
    word = _word(challenger)
    if word is None:
        words = f"models approve {challenger.name} {challenger.version} --reason …"
        approve = command(words, challenger.storage)
        return _keeping_waiting(decision, f"it waits for a person: {approve}")
    said = f"{word.evidence['by']}: {word.evidence['reason']}"
    if word.event == "rejection":
        return decision.refused(f"rejected by {said}")
    try:
        signed = _check(word, challenger)
    except Untrusted as error:
        return _keeping_waiting(decision, error.message)
    return decision.noting(f"approved by {said}{signed}")


def _keeping_waiting(decision: Decision, why: str) -> Decision:
    refused = decision.refused(why)
    return replace(refused, figures={**refused.figures, WAITING: True})


def waiting(ledger: Ledger) -> list[Record]:
    """Return the refusal of each version that waits for a person's word, oldest first."""
    last = {
        record.version: record
        for record in ledger.distinct_records()
        if record.event in ("rejection", "promotion", "refusal", "deletion")
    }
    return [
        record
        for record in last.values()
        if record.event == "refusal" and record.evidence.get(WAITING)
    ]


def approve(
    model: "Model",
    version: str,
    reason: str,
    *,
    key: str | Path | None = None,
    data: str | Path | None = None,
) -> Promotion:
    """Say yes to a version that waits, and compare it once more by the rule it waits for.

    Args:
        key: PEM of the private key to sign with.
        data: Dataset for the comparison, if the predictions of the two are not stored.

    Raises:
        NotFound: It does not wait.
        InvalidInput: There is no reason, or no such key.
        NotPromoted: The rule does not hold any more; the champion stays.
    """
    refusal = _waits(model, version)
    _write(model, "approval", version, reason, key)
    dataset, live = data or refusal.evidence.get("data"), refusal.evidence.get("live")
    where = (
        {"data": dataset}
        if dataset or not live
        else {"live": live["recorded_in"], "labels": live["labels_in"]}
    )
    return model.promote(version, rule=str(refusal.evidence["rule"]), reason=reason, **where)


def reject(model: "Model", version: str, reason: str, *, key: str | Path | None = None) -> Record:
    """Say no to a version that waits; raises as approve does."""
    _waits(model, version)
    return _write(model, "rejection", version, reason, key)


def _waits(model: "Model", version: str) -> Record:
    refusals = {record.version: record for record in waiting(model.ledger)}
    if version not in refusals:
        waits = (
            f"those that do: {', '.join(refusals)}"
            if refusals
            else "a rule with approved lets a version wait"
        )
        raise NotFound(f"version {version} of {model.name} does not wait for approval", waits)
    return refusals[version]


def _write(model: "Model", event: str, version: str, reason: str, key: str | Path | None) -> Record:
    require(
        bool(reason.strip()),
        "a reason is given",
        "--reason 'seen on the shop floor'",
        reason=reason,
    )
    if public_key() and not key:
        raise InvalidInput(
            f"{PUBLIC_KEY} asks for signed approvals, but no key signs this one", "--key key.pem"
        )
    evidence: dict[str, Any] = {
        "reason": reason.strip(),
        "by": f"{user_name()}@{socket.gethostname()}",
    }
    if key:
        private, public = signer(Path(key))
        made = private(_statement(event, model.version(version), evidence))
        evidence |= {"key": public.fingerprint, "signature": base64.b64encode(made).decode()}
    record = Record.new(event, model.name, version, evidence=evidence)
    model.ledger.append(record)
    return record


def _statement(event: str, version: Version, evidence: dict[str, Any]) -> bytes:
    """Return the signed bytes: the event, its author and reason, and the files."""
    files = {name: file.sha256 for name, file in sorted(version.files.items())}
    said = {name: evidence[name] for name in ("by", "reason")}
    return json.dumps([event, version.name, version.version, files, said], sort_keys=True).encode()


def _check(word: Record, version: Version) -> str:
    """Return what to say of the signature of an approval.

    Raises:
        Untrusted: PODIUM_PUBLIC_KEY names a key, and it is not signed with that.
    """
    key = public_key()
    if key is None:
        return ""
    try:
        made = base64.b64decode(str(word.evidence.get("signature", "")), validate=True)
    except binascii.Error:
        made = b""
    statement = _statement(word.event, version, dict(word.evidence))
    key.require(made, statement, f"the approval of {version.title}")
    return f", signed with the key {key.fingerprint[:16]}"


def _word(version: Version) -> Record | None:
    records = Ledger(version.storage, version.name).distinct_records()
    own = (
        record
        for record in reversed(records)
        if record.version == version.version and record.event in _WORDS
    )
    return next(own, None)
