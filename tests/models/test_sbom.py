"""What a version is made of, read by CycloneDX's own validator."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.models import Model, open_registry
from podium.models.sbom import bill_of_materials

FULL = {
    "run_id": "20261125-1", "code_version": "abc", "image": "podium-trainer@sha256:12",
    "metric": {"name": "accuracy", "maximize": True}, "metrics": {"accuracy": 0.9, "loss": None},
    "hyperparameters": {"lr": "0.1"}, "environment": {"torch": "2.15.0+cu132", "python": "3.11.7", "podium": "0.1.0", "threads": 1},
    "dataset": {"name": "mnist", "kind": "classification", "digest": "d" * 64, "test_digest": "t"},
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """`full`, of which all is known, and `bare`, that somebody brought along."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    model = open_registry(tmp_path / "store").model("mnist")
    model.upload({"model.onnx": b"graph"}, FULL)
    model.upload({"model.onnx": b"other"}, {"run_id": "bare", "dataset": {"digest": "of my own"}})
    return model


@pytest.mark.parametrize("version", ["20261125-1", "bare"])
@pytest.mark.whole
def test_the_standards_validator_takes_it(model: Model, version: str) -> None:
    document = json.dumps(bill_of_materials(model.version(version)))
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # two seconds of CPU

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None


def test_it_names_files_data_packages_and_figures(
    model: Model, typed: Callable[..., tuple[int, str, str]]
) -> None:
    bom = json.loads(typed("models", "sbom", "mnist", "20261125-1")[1])
    parts = {part["bom-ref"]: part for part in bom["components"]}
    assert (
        parts["file:model.onnx"]["hashes"][0]["content"]
        == model.version("20261125-1").files["model.onnx"].sha256
    )
    assert parts["data:training"]["hashes"] == [{"alg": "SHA-256", "content": "d" * 64}]
    assert parts["package:torch"]["purl"] == "pkg:pypi/torch@2.15.0%2Bcu132"
    assert parts["image:training"]["name"] == FULL["image"]
    assert bom["dependencies"][0]["dependsOn"] == list(parts)
    card = bom["metadata"]["component"]["modelCard"]
    assert card["quantitativeAnalysis"]["performanceMetrics"] == [
        {"type": "accuracy", "value": "0.9"}
    ]
    assert {"name": "podium:hyperparameter:lr", "value": "0.1"} in card["properties"]


def test_an_id_used_again_gives_another_serial_number(model: Model) -> None:
    def serial_number() -> str:
        return str(bill_of_materials(model.version("bare"))["serialNumber"])

    before = serial_number()
    assert serial_number() == before
    model.delete("bare")
    model.upload({"model.onnx": b"third"}, {"run_id": "bare"})
    assert serial_number() != before


def test_data_without_a_sha256_are_left_out(model: Model) -> None:
    bom = bill_of_materials(model.version("bare"))
    assert [part["bom-ref"] for part in bom["components"]] == ["file:model.onnx"]
    assert bom == bill_of_materials(model.version("bare"))
