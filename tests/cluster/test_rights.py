"""What deploy/ lets accounts do, as it stands in the files; tests/slow/test_cluster_teams.py asks a server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(DEPLOY.rglob("*.yaml")):
        for text in re.split(r"^---\n", file.read_text(), flags=re.MULTILINE):
            if re.search(r"^kind: (Cluster)?Role$", text, re.MULTILINE):
                role = yaml.safe_load(text)
                yield from ((role["metadata"]["name"], rule) for rule in role["rules"])


def test_no_account_may_change_pods() -> None:
    verbs = {verb for _, rule in rules() if "pods" in rule["resources"] for verb in rule["verbs"]}
    assert verbs <= {"get", "list", "watch"}


def test_secrets_and_config_maps_are_read_by_name() -> None:
    open_to_all = {
        (name, resource)
        for name, rule in rules()
        for resource in rule["resources"]
        if resource in ("secrets", "configmaps") and "resourceNames" not in rule
    }
    assert open_to_all == {("podium-engine", "configmaps")}, (
        "trial templates lie in ConfigMaps of any name"
    )


def test_whoever_writes_leases_is_held_to_their_names() -> None:
    unnamed = {
        name
        for name, rule in rules()
        if "leases" in rule["resources"] and "resourceNames" not in rule
    }
    assert unnamed == {"podium-steps"}
    policy = (DEPLOY / "policies/accounts.yaml").read_text()
    assert "podium-steps(-.+)?" in policy
    assert 'startsWith("podium-sweep-")' in policy
