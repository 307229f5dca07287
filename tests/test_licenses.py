"""`make sbom`: what runs beside podium, and whether its licenses are among those that pyproject.toml permits."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from test_structure import ROOT

RUNTIME = ROOT / "scripts/sbom/runtime"
PINS = [ROOT / "requirements" / f"{part}.txt" for part in ("trainer", "steps", "serve")]


def component(name: str, *licenses: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"{name}-ref",
        "name": name,
        "version": "1",
        "licenses": list(licenses),
    }


def named(*names: str) -> list[dict[str, Any]]:
    return [{"license": {"name": name}} for name in names]


def runtime(
    folder: Path, components: list[dict[str, Any]], pins: list[Path]
) -> subprocess.CompletedProcess[str]:
    """Reduce the bill of an environment to the pins; the result is in `folder/out.json`."""
    refs = [part["bom-ref"] for part in components]
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "root", "name": "podium-ml"}},
        "components": components,
        "dependencies": [{"ref": "root", "dependsOn": refs}, *({"ref": ref, "dependsOn": refs[:1]} for ref in refs)],
    }  # fmt: skip
    (folder / "environment.json").write_text(json.dumps(bill))
    words = [sys.executable, RUNTIME, folder / "environment.json", folder / "out.json", *pins]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.fixture
def pins(tmp_path: Path) -> list[Path]:
    (tmp_path / "pins.txt").write_text(
        "not-there==1 \\\n    --hash=sha256:00\nPy_YAML==1 ; sys_platform == 'x' \\\n    --hash=sha256:00\n"
    )
    return [tmp_path / "pins.txt"]


def test_the_bill_has_pins_alone_with_their_spdx_ids(tmp_path: Path, pins: list[Path]) -> None:
    parts = [
        component("pytest", *named("MIT")), component("not-there", {"expression": "BSD-3-Clause AND MIT"}),
        component("py-yaml", *named("Copyright\n(c)", "License :: OSI Approved :: Apache Software License", "License :: OSI Approved :: MIT License")),
    ]  # fmt: skip
    done = runtime(tmp_path, parts, pins)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.json").read_text()
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # two seconds of CPU

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert {part["name"]: part["licenses"] for part in bill["components"]} == {
        "not-there": [{"expression": "BSD-3-Clause AND MIT"}],
        "py-yaml": [{"expression": "Apache-2.0 AND MIT"}],
    }
    assert bill["dependencies"] == [
        {"ref": "root", "dependsOn": ["not-there-ref", "py-yaml-ref"]}, {"ref": "not-there-ref", "dependsOn": []},
        {"ref": "py-yaml-ref", "dependsOn": []},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("licenses", "said"),
    [([{"license": {"id": "GPL-3.0-only"}}], "GPL-3.0-only is not permitted"),
     ([{"expression": "MIT AND AGPL-3.0-only"}], "MIT AND AGPL-3.0-only is not permitted"),
     (named("Mine"), "Mine is not permitted"), ([], "its metadata names no license")],
)  # fmt: skip
def test_a_license_that_is_not_permitted_ends_it(
    tmp_path: Path, pins: list[Path], licenses: Any, said: str
) -> None:
    done = runtime(tmp_path, [component("not-there", *licenses)], pins)
    assert done.returncode == 1
    assert f"error: not-there 1: {said}" in done.stderr
    assert "hint: " in done.stderr
    assert not (tmp_path / "out.json").exists()


def test_packages_that_are_not_pinned_may_have_any_license(
    tmp_path: Path, pins: list[Path]
) -> None:
    assert (
        runtime(
            tmp_path, [component("other", {"license": {"id": "GPL-3.0-only"}})], pins
        ).returncode
        == 0
    )


def test_licenses_of_all_runtime_packages_are_permitted(tmp_path: Path) -> None:
    parts = {}
    for package in distributions():
        said = [package.metadata.get("License-Expression"), package.metadata.get("License"),
                *(item for item in package.metadata.get_all("Classifier") or [] if item.startswith("License ::"))]  # fmt: skip
        name = package.metadata["Name"]
        parts[name] = component(name, *named(*(text for text in said if text)))
    done = runtime(tmp_path, list(parts.values()), PINS)
    assert done.returncode == 0, done.stderr
    assert len(json.loads((tmp_path / "out.json").read_text())["components"]) > 60


def test_the_project_names_its_own_license() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
