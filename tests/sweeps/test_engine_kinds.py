"""The kinds that deploy/engine installs are in step with what podium reads, and the engine may do what it does."""

from pathlib import Path
from typing import Any

import yaml

from podium.manifests.experiment.schema import EXPERIMENT
from podium.search.algorithms import ALGORITHMS

DEPLOY = Path(__file__).parents[2] / "deploy/engine"


def schema_of(file: str) -> Any:
    kind = yaml.safe_load((DEPLOY / file).read_text())
    return kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def fields(schema: Any) -> Any:
    """The names of fields, as manifests/experiment/schema.py nests them."""
    if "properties" in schema:
        return {name: fields(inner) for name, inner in schema["properties"].items()}
    return [fields(schema["items"])] if schema.get("type") == "array" else None


def known(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: known(inner) for name, inner in schema.items()}
    return [known(schema[0])] if isinstance(schema, list) else None


def test_the_kind_has_every_field_that_podium_reads() -> None:
    assert fields(schema_of("experiments.yaml")["spec"]) == known(EXPERIMENT["spec"])


def test_the_kind_knows_every_algorithm() -> None:
    algorithm = schema_of("experiments.yaml")["spec"]["properties"]["algorithm"]
    assert set(algorithm["properties"]["algorithmName"]["enum"]) == set(ALGORITHMS)


def test_status_is_a_subresource_of_both_kinds() -> None:
    for file in ("experiments.yaml", "trials.yaml"):
        version = yaml.safe_load((DEPLOY / file).read_text())["spec"]["versions"][0]
        assert version["subresources"] == {"status": {}}


def test_the_engine_has_no_right_to_secrets() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "namespaced/engine.yaml").read_text()))
    rules = next(document["rules"] for document in documents if document["kind"] == "Role")
    granted = {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}
    assert "secrets" not in granted
    assert granted["trials/status"] == ["get", "patch"]
    assert next(rule for rule in rules if "leases" in rule["resources"])["resourceNames"] == [
        "podium-engine"
    ]
    pod = next(document for document in documents if document["kind"] == "Deployment")["spec"][
        "template"
    ]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
