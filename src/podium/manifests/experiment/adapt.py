"""Adapt an Experiment to a run, and read back the flags of its best trial."""

from collections.abc import Iterable, Mapping
from typing import Any

from podium.errors import Failed
from podium.manifests.experiment.build import customize, declare_own_name
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.resource import items, mapping
from podium.manifests.workload import Draft, merge

GPU = "nvidia.com/gpu"
OURS = ("data", "output")
"""Flags the run decides, never the Experiment."""


def decided(*, epochs: int, network: str, seed: int, gpus: int) -> dict[str, Any]:
    """Return the trainer's flags that a run decides: 0 and empty text leave one to whoever else has a say."""
    flags = {"epochs": epochs, "model": network, "seed": seed, "backend": "nccl" if gpus else ""}
    return {name: value for name, value in flags.items() if value}


def adapt(
    experiment: Experiment, *, data: str, root: str, fixed: Mapping[str, Any], gpus: int = 0, **changes: Any
) -> Experiment:
    """Let an Experiment's trials read the run's data, and let each write its model under its own name.

    Args:
        experiment: Stays as it is.
        data: URI of the dataset artifact.
        root: URL below which each trial writes to a directory of its own.
        fixed: Flags without dashes that the run decides; what the Experiment searches under such a name is no longer
            searched. Empty text and 0 leave a flag alone.
        gpus: Of every replica, requests and limits alike; 0 leaves them to the Experiment.
        **changes: As customize takes them.

    Raises:
        InvalidInput: A change makes no sense for this Experiment.
    """
    flags = {"data": data, **{name: str(value) for name, value in fixed.items() if value}}

    def prepare(manifest: dict[str, Any]) -> None:
        spec = manifest["spec"] = manifest.get("spec") or {}
        # Nobody resumes the sweep of a run that is over, and until then Katib keeps its suggestion pod (observed).
        spec["resumePolicy"] = "Never"
        template = spec["trialTemplate"] = spec.get("trialTemplate") or {}
        fixed_names = {
            parameter["name"]
            for parameter in map(mapping, items(spec.get("parameters")))
            if _flag(parameter["name"]) in flags
        }
        _drop(spec, "parameters", "name", fixed_names)
        _drop(template, "trialParameters", "reference", fixed_names)
        flags["output"] = f"{root}/${{trialParameters.{declare_own_name(template)}}}"

    adapted = experiment.changed(prepare)
    adapted = customize(adapted, flags={f"--{name}": value for name, value in flags.items()}, **changes)
    return _with_gpus(adapted, gpus) if gpus else adapted


def _drop(holder: dict[str, Any], field: str, key: str, names: set[str]) -> None:
    if names:
        holder[field] = [item for item in items(holder.get(field)) if mapping(item).get(key) not in names]


def _with_gpus(experiment: Experiment, gpus: int) -> Experiment:
    name = experiment.template.primary_container

    def change(draft: Draft) -> None:
        for _, container in draft.containers(name):
            for kind in ("requests", "limits"):
                merge(container, ("resources", kind), {GPU: str(gpus)})

    return experiment.changed_job(change)


def flags_of(experiment: Experiment, trial: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return every flag a trial was given but for data and output: what it takes to train the same way again.

    Args:
        experiment: As adapted.
        trial: Name of the trial.
        parameters: Its search parameters.

    Returns:
        Values by flag, without dashes; True for a flag without a value.
    """
    rendered = experiment.with_workload(experiment.render(trial, parameters))
    for _, container in rendered.template.primary_containers():
        return {name: value for name, value in read_flags(container.words).items() if name not in OURS}
    raise Failed(f"the trials of Experiment {experiment.name} have no primary container")


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
