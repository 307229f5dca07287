"""Making somebody's Experiment part of a run, and reading back what its best trial was told."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from podium.cluster.base import Manifest
from podium.errors import Failed
from podium.manifests.experiment import check_shape, customise, render
from podium.manifests.experiment.build import own_name, primary_containers

GPU = "nvidia.com/gpu"
OURS = ("data", "output")
"""Flags the run decides, never the Experiment."""


def decided(*, epochs: int, network: str, seed: int, gpus: int) -> dict[str, Any]:
    """Return the trainer's flags that a run decides: 0 and empty text leave one to whoever else has a say."""
    flags = {"epochs": epochs, "model": network, "seed": seed, "backend": "nccl" if gpus else ""}
    return {name: value for name, value in flags.items() if value}


def adapt(
    template: Manifest, *, data: str, root: str, fixed: Mapping[str, Any], gpus: int = 0, **changes: Any
) -> Manifest:
    """Let an Experiment's trials read the run's data, and let each write its model under its own name.

    Args:
        template: The Experiment.
        data: URI of the dataset artifact.
        root: URL below which each trial writes to a directory of its own.
        fixed: Flags without dashes that the run decides; what the Experiment searches under such a name is no longer
            searched. Empty text and 0 leave a flag alone.
        gpus: Of every replica, requests and limits alike; 0 leaves them to the Experiment.
        **changes: As podium.manifests.experiment.customise takes them.

    Raises:
        InvalidInput: A change makes no sense for this Experiment, or it is none.
    """
    check_shape(template)
    changed = deepcopy(template)
    spec = changed.setdefault("spec", {})
    # Nobody goes on with the sweep of a run that is over, and until then Katib keeps its suggestion pod (observed).
    spec["resumePolicy"] = "Never"
    trial = spec.setdefault("trialTemplate", {})
    flags = {"data": data, **{name: str(value) for name, value in fixed.items() if value}}
    for searched in [one.get("name", "") for one in spec.get("parameters") or []]:
        if _flag(searched) in flags:
            spec["parameters"] = [one for one in spec["parameters"] if one.get("name") != searched]
            parameters = trial.get("trialParameters") or []
            trial["trialParameters"] = [one for one in parameters if one.get("reference") != searched]
    flags["output"] = f"{root}/${{trialParameters.{own_name(trial)}}}"
    adapted: Manifest = customise(changed, flags={f"--{name}": value for name, value in flags.items()}, **changes)
    for container, _ in primary_containers(adapted) if gpus else ():
        for kind in ("requests", "limits"):
            container.setdefault("resources", {}).setdefault(kind, {})[GPU] = str(gpus)
    return adapted


def flags_of(experiment: Manifest, trial: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return every flag a trial was given but for data and output: what it takes to train the same way again.

    Args:
        experiment: The adapted Experiment.
        trial: Name of the trial.
        parameters: Its search parameters.

    Returns:
        Values by flag, without dashes; True for a flag without a value.
    """
    job = render(experiment, trial, parameters)
    spec = experiment["spec"]
    filled = {**experiment, "spec": {**spec, "trialTemplate": {**spec["trialTemplate"], "trialSpec": job}}}
    for container, _ in primary_containers(filled):
        flags = read_flags([*(container.get("command") or []), *(container.get("args") or [])])
        return {name: value for name, value in flags.items() if name not in OURS}
    raise Failed(f"the trials of Experiment {experiment['metadata']['name']} have no primary container")


def read_flags(words: Iterable[str]) -> dict[str, Any]:
    """Read ``--name=value``, ``--name value`` and ``--name`` from a command line; other words are passed over."""
    flags: dict[str, Any] = {}
    waiting: str | None = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            waiting = None if equals else _flag(name)
            flags[_flag(name)] = value if equals else True
        elif waiting is not None:
            flags[waiting], waiting = word, None
    return flags


def _flag(name: str) -> str:
    return name.replace("_", "-")
