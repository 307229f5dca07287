"""Experiments that a real Katib ran (tests/golden/katib), written out, and mutations of manifests."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

GOLDEN = Path(__file__).parent / "golden/katib"
CASES = {
    case["case"]: case
    for case in yaml.load_all((GOLDEN / "experiments.yaml").read_text(), yaml.CSafeLoader)
}


def experiment_of(case: dict[str, Any], programs: str = "/opt/programs") -> dict[str, Any]:
    """Write a case as the Experiment it was; ``programs`` is the directory of what its trials run."""
    text = json.dumps(case).replace("${programs}", programs)
    given = json.loads(text)
    container = {"name": "training", "image": "python", "command": given["command"]}
    if given.get("args"):
        container["args"] = given["args"]
    kind = given.get("kind", "Job")
    if kind == "Job":
        pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        job = {"apiVersion": "batch/v1", "kind": kind}
        job["spec"] = {"backoffLimit": given.get("backoffLimit", 0), "template": pod}
    else:
        pod = {"spec": {"containers": [{**container, "name": "pytorch"}]}}
        replica = {"replicas": 1, "restartPolicy": "Never", "template": pod}
        job = {"apiVersion": "kubeflow.org/v1", "kind": kind}
        job["spec"] = {"pytorchReplicaSpecs": {"Master": replica, "Worker": copy.deepcopy(replica)}}
    spec = given["spec"]
    used = [
        parameter["name"]
        for parameter in spec["parameters"]
        if f"trialParameters.{parameter['name']}}}" in text
    ]
    spec["trialTemplate"] = {
        "primaryContainerName": "training" if kind == "Job" else "pytorch",
        "retain": bool(given.get("retain")),
        "trialParameters": [{"name": name, "reference": name} for name in used],
        "trialSpec": job,
    }
    metadata = {"name": given["case"]}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": metadata,
        "spec": spec,
    }


NASTY: list[Any] = [
    None, "", 0, -1, 1, 2, 1.5, True, False, [], {}, [[]], {"a": {}}, [None], "x", "a b", "0", "-1", "1e-320", "1e308",
    "1e-300", "1e300", "9007199254740993", "nan", "inf", "0x10", "1_0", "'", '"', "\\", "\n", "\x00", "\ud800", "$(rm -f x)", "; exit 3", "#", "ünï", "a" * 300, 10**6, 2**31,
    10**400, 1e308, "${trialParameters.nope}", "${trialParameters.", "${trialSpec.Name}", "${trialSpec.Labels[a]}",
    "grid", "hyperband", "cmaes", "bayesianoptimization", "logUniform", "int", "categorical", "File", "JSON", "Worker",
]  # fmt: skip
"""What people and programs put where something else belongs."""


def bases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield our own Experiments, the one of the admission cases and all that Katib ran."""
    from podium.manifests.experiment import bundled, load

    for name in bundled():
        yield name, load(name)
    yield "admission", yaml.safe_load((GOLDEN / "admission.yaml").read_text())["base"]
    for name, case in CASES.items():
        yield name, experiment_of(case)


def trivial(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return an Experiment whose trials only print its metrics and their arguments."""
    made = copy.deepcopy(manifest)
    spec = made["spec"]
    metrics = [
        spec["objective"]["objectiveMetricName"],
        *(spec["objective"].get("additionalMetricNames") or []),
    ]
    job = spec["trialTemplate"]["trialSpec"]["spec"]
    if "trainer" in job:
        containers = [job["trainer"]]
    else:
        replicas = (job.get("pytorchReplicaSpecs") or {"": job}).values()
        containers = [replica["template"]["spec"]["containers"][0] for replica in replicas]
    for container in containers:
        words = [*container["command"], *container.get("args", [])]
        container["command"] = ["echo", *(f"{name}=0.5" for name in metrics)]
        container["args"] = [word for word in words if "trialParameters" in word]
    return made


def mutate(manifest: dict[str, Any], draw: random.Random) -> tuple[dict[str, Any], list[str]]:
    """Return a manifest with one to three things wrong with it, perhaps, and what was done.

    Args:
        manifest: Stays as it is.
        draw: Decides what and where.
    """
    mutated = copy.deepcopy(manifest)
    done = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = list(_places(mutated))
        if not places:
            break
        path, holder, key = draw.choice(places)
        how = draw.choice(
            (_drop, _replace, _replace, _replace, _rename, _repeat, _swap, _wrap, _retype, _edit)
        )
        done.append(f"{how.__name__[1:]} {'.'.join(map(str, path))}")
        how(holder, key, draw)
    return mutated, done


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key), value, key
        yield from _places(inner, (*path, key))


def _drop(holder: Any, key: Any, draw: random.Random) -> None:
    del holder[key]


def _replace(holder: Any, key: Any, draw: random.Random) -> None:
    holder[key] = copy.deepcopy(draw.choice(NASTY))


def _rename(holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder, dict):
        holder[draw.choice((key.upper(), key[:-1], f"{key}s", "x"))] = holder.pop(key)


def _repeat(holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))


def _swap(holder: Any, key: Any, draw: random.Random) -> None:
    other = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


def _wrap(holder: Any, key: Any, draw: random.Random) -> None:
    holder[key] = draw.choice(([holder[key]], {"value": holder[key]}))


def _retype(holder: Any, key: Any, draw: random.Random) -> None:
    value = holder[key]
    if isinstance(value, str):
        holder[key] = yaml.safe_load(value) if value.replace(".", "").isdigit() else list(value[:5])
    else:
        holder[key] = str(value)


def _edit(holder: Any, key: Any, draw: random.Random) -> None:
    value = holder[key]
    if isinstance(value, str):
        place = draw.randrange(len(value) + 1)
        holder[key] = draw.choice(
            (value[:place], value[place:], value[:place] + draw.choice("}{$\"' \\") + value[place:])
        )
    elif isinstance(value, int | float):
        holder[key] = draw.choice((-value, value * 1000, value + 0.5))
