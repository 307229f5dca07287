"""Admission says what a real Katib webhook said."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.manifests.experiment.webhook_rules import admit
from podium.manifests.rules import BrokenRules

GOLDEN = yaml.safe_load((Path(__file__).parents[1] / "golden/katib/admission.yaml").read_text())
CASES = {case["case"]: case for case in GOLDEN["cases"]}


def changed(case: dict[str, Any]) -> dict[str, Any]:
    """The base Experiment with the case's one change."""
    manifest = copy.deepcopy(GOLDEN["base"])
    for path in case.get("remove", []):
        holder, last = walk(manifest, path)
        del holder[last]
    for path, value in case.get("set", {}).items():
        holder, last = walk(manifest, path)
        holder[last] = value
    return manifest


def walk(manifest: Any, path: str) -> tuple[Any, Any]:
    *parents, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in parents:
        manifest = manifest[step]
    return manifest, last


def test_the_golden_file_holds_all_answers() -> None:
    assert len(CASES) == 102
    assert sum(case["accepted"] for case in CASES.values()) == 45


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["accepted"]])
def test_what_katib_accepts_is_admitted(name: str) -> None:
    admitted = admit(changed(CASES[name]))
    for field, value in CASES[name].get("defaulted", {}).items():
        given = admitted.spec.get(field)
        if field == "trialTemplate":
            given = {inner: given[inner] for inner in value}
        assert given == value, field


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case["accepted"]])
def test_what_katib_refuses_is_refused_at_the_same_field(name: str) -> None:
    manifest = changed(CASES[name])
    with pytest.raises(BrokenRules) as caught:
        admit(manifest)
    assert "but got" in caught.value.message
    found = [finding.where for finding in caught.value.findings]
    for field in CASES[name]["refused_at"]:
        assert any(at.startswith(field) or field.startswith(at) for at in found), (field, found)


def test_admission_leaves_the_given_manifest_alone() -> None:
    manifest = changed(CASES["without parallelTrialCount"])
    before = copy.deepcopy(manifest)
    assert admit(manifest).spec["parallelTrialCount"] == 3
    assert manifest == before
