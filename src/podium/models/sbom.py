"""Bill of materials of a version, as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json): files,
data, packages, figures.

It says what the registry knows. Packages are those that the training recorded, not all that were
installed; licenses of data and weights, and known vulnerabilities, are in no registry.
"""

import json
import re
import uuid
from typing import Any

from podium import __version__
from podium.models.version import Version
from podium.system.machine import PACKAGES

_MODEL, _DATA, _IMAGE = "model", "data:training", "image:training"


def bill_of_materials(version: Version) -> dict[str, Any]:
    """Return the document; the same version gives the same one."""
    facts = version.facts
    parts = [*_files(version), *_data(version), *_packages(version), *_image(version)]
    origin = {"run": facts.run_id, "code": facts.code_version, "trained from": facts.origin.uri}
    model = {
        "type": "machine-learning-model",
        "bom-ref": _MODEL,
        "name": version.name,
        "version": version.version,
        "modelCard": _card(version),
        "properties": [
            {"name": f"podium:{name}", "value": str(value)}
            for name, value in origin.items()
            if value
        ],
    }
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": f"{version.created:%Y-%m-%dT%H:%M:%SZ}",
            "tools": {
                "components": [{"type": "application", "name": "podium", "version": __version__}]
            },
            "component": model,
        },
        "components": parts,
        "dependencies": [{"ref": _MODEL, "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    # Of the content: an id may be used again, once its version was deleted.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom, sort_keys=True))
    return {**bom, "serialNumber": f"urn:uuid:{number}"}


def _card(version: Version) -> dict[str, Any]:
    facts = version.facts
    parameters: dict[str, Any] = {"task": facts.dataset.kind} if facts.dataset.kind else {}
    if _digest(version):
        parameters["datasets"] = [{"ref": _DATA}]
    figures = [
        {"type": name, "value": str(value)}
        for name, value in facts.metrics.items()
        if value is not None
    ]
    chosen = [
        {"name": f"podium:hyperparameter:{name}", "value": str(value)}
        for name, value in facts.hyperparameters.items()
    ]
    card = {
        "modelParameters": parameters,
        "quantitativeAnalysis": {"performanceMetrics": figures} if figures else {},
        "properties": chosen,
    }
    return {name: value for name, value in card.items() if value}


def _files(version: Version) -> list[dict[str, Any]]:
    return [
        {
            "type": "file",
            "bom-ref": f"file:{name}",
            "name": name,
            "hashes": [_sha256(record.sha256)],
            "properties": [{"name": "podium:bytes", "value": str(record.size)}],
        }
        for name, record in sorted(version.files.items())
    ]


def _data(version: Version) -> list[dict[str, Any]]:
    dataset = version.facts.dataset
    if not (digest := _digest(version)):
        return []
    test = (
        [{"name": "podium:test part", "value": dataset.test_digest}] if dataset.test_digest else []
    )
    name = dataset.name or "training data"
    return [
        {
            "type": "data",
            "bom-ref": _DATA,
            "name": name,
            "hashes": [_sha256(digest)],
            "properties": test,
            "data": [{"type": "dataset", "name": name}],
        }
    ]


def _packages(version: Version) -> list[dict[str, Any]]:
    environment = version.facts.environment
    return [
        {
            "type": "library",
            "bom-ref": f"package:{name}",
            "name": name,
            "version": str(environment[name]),
            "purl": f"{purl}@{environment[name]}".replace("+", "%2B"),
        }
        for name, purl in PACKAGES.items()
        if name in environment
    ]


def _image(version: Version) -> list[dict[str, Any]]:
    name = version.facts.image
    return [{"type": "container", "bom-ref": _IMAGE, "name": name}] if name else []


def _digest(version: Version) -> str:
    """Return the sha256 of the data; empty where the digest of an upload is of another kind."""
    digest = version.facts.dataset.digest or ""
    return digest if re.fullmatch(r"[0-9a-f]{64}", digest) else ""


def _sha256(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}
