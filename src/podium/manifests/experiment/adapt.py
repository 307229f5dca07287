"""Adapt an Experiment to a run: its data, its trials' outputs, and other settings of the run."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from podium.errors import Failed
from podium.manifests.experiment.build import Changes, customize, own_name, with_primary_containers
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.template import meta_key
from podium.manifests.experiment.trainer import (
    DATA,
    FLAGS,
    NAME,
    OUTPUT,
    connect_trainer,
    fill,
    flag_name,
    read_flags,
)
from podium.manifests.fields import items, mapping
from podium.manifests.job_editor import JobEditor, merge
from podium.manifests.labels import SWEEP
from podium.manifests.options import annotation, fix

log = logging.getLogger(__name__)

GPU = "nvidia.com/gpu"
OURS = ("data", "output")
"""Flags the run decides, never the Experiment."""


def decided(*, epochs: int, network: str, weights: str, seed: int, gpus: int) -> dict[str, Any]:
    """Return the flags of podium's trainer that a run sets: 0 and empty text leave one unset."""
    flags = {
        "epochs": epochs,
        "model": network,
        "weights": weights,
        "seed": seed,
        "backend": "nccl" if gpus else "",
    }
    return {name: value for name, value in flags.items() if value}


def usual_epochs(network: str) -> int:
    """Return how many epochs a network of podium's trainer takes where nobody says; empty for its
    default network."""
    from podium.trainer.config import TrainConfig
    from podium.trainer.networks import recipe

    return int(recipe(network or TrainConfig.model).get("epochs", TrainConfig.epochs))


def tuned_for_numbers(experiment: Experiment) -> Experiment:
    """Return an Experiment of podium's trainer for a target of numbers, which have an error and no
    accuracy."""
    if experiment.objective.metric != "accuracy":
        return experiment
    best = {"rmse": "min", "loss": "min", "r2": "max"}
    if "folds" in experiment.asked:
        best["rmse_se"] = "latest"
    objective = {
        "type": "minimize",
        "objectiveMetricName": "rmse",
        "additionalMetricNames": [name for name in best if name != "rmse"],
        "metricStrategies": [{"name": name, "value": value} for name, value in best.items()],
    }
    return experiment.changed(lambda manifest: manifest["spec"].update(objective=objective))


def adapt(
    experiment: Experiment,
    *,
    name: str,
    fixed: Mapping[str, Any],
    image_for: Callable[[str], str],
    gpus: int = 0,
    **changes: Unpack[Changes],
) -> Experiment:
    """Make an Experiment part of a run, with placeholders for data and output that ``locate``
    replaces.

    Args:
        fixed: Flags of podium's trainer, without dashes, that the run decides; what the Experiment
            searches under such a name is no longer searched. Empty text and 0 leave a flag alone.
            Another trainer gets none of them.
        image_for: Returns the image that takes the place of one in the Experiment.
        gpus: GPUs of every replica, requests and limits alike; 0 leaves them to the Experiment.
        **changes: Arguments of customize.

    Raises:
        InvalidInput: A change makes no sense for this Experiment.
    """
    builtin = experiment.uses_builtin_trainer
    flags = {name: str(value) for name, value in fixed.items() if value} if builtin else {}
    flags |= _without_use(experiment, flags.get("model", ""))
    if builtin:
        flags |= reporting_flag(experiment)
    parameters = map(mapping, items(experiment.spec.get("parameters")))
    names = {str(parameter.get("name")) for parameter in parameters}
    fixed_names = {name: flags[flag_name(name)] for name in names if flag_name(name) in flags}
    settings, idle = fix(experiment.asked, fixed_names)
    given = {
        **{f"--{flag_name(name)}": None for name in idle},
        **{f"--{name}": value for name, value in flags.items()},
        **(FLAGS if builtin else {}),
    }

    def prepare(manifest: dict[str, Any]) -> None:
        spec = manifest["spec"] = manifest.get("spec") or {}
        # Nobody resumes the sweep of a run that is over, and until then Katib keeps its suggestion pod (observed).
        spec["resumePolicy"] = "Never"
        template = spec["trialTemplate"] = spec.get("trialTemplate") or {}
        _drop(spec, "parameters", "name", {*fixed_names, *idle})
        _drop(template, "trialParameters", "reference", {*fixed_names, *idle})
        if fixed_names and settings:
            kept = {name: value for name, value in settings.items() if value != ()}
            metadata = manifest["metadata"] = dict(mapping(manifest.get("metadata")))
            others = {**mapping(metadata.get("annotations"))}
            others.pop(SWEEP, None)
            metadata["annotations"] = {**others, **annotation(kept)}

    adapted = customize(experiment.changed(prepare), name=name, flags=given, **changes)
    searched = [
        name for name, reference in adapted.template.parameters if meta_key(reference) is None
    ]

    def connect(container: dict[str, Any], wrapped: bool) -> None:
        container["image"] = image_for(str(container.get("image") or ""))
        connect_trainer(container, searched, quoted=wrapped)

    connected = with_primary_containers(adapted, connect)
    return connected.changed_job(
        lambda editor: give_gpus(editor, connected.template.primary_container, gpus)
    )


def _without_use(experiment: Experiment, network: str) -> dict[str, str]:
    """Return the value of each flag that is searched, but that a network of podium's trainer does
    not take."""
    from podium.trainer.config import TAKEN_BY

    searched = {flag_name(parameter.name) for parameter in experiment.space} if network else set()
    unused = {
        name: f"{value:g}"
        for name, (value, takers) in TAKEN_BY.items()
        if name in searched and network not in takers
    }
    if unused:
        log.info("not searched, since %s does not take it: %s", network, ", ".join(unused))
    return unused


def reporting_flag(experiment: Experiment) -> dict[str, str]:
    """Return the flag by which podium's trainer reports the objective, if it needs one."""
    from podium.trainer.config import CHOICES, TrainConfig

    metric = experiment.objective.metric
    is_asked = metric in CHOICES["metric"] and metric != TrainConfig.metric
    return {"metric": metric} if is_asked else {}


def with_pods_retained(experiment: Experiment) -> Experiment:
    return experiment.changed(
        lambda manifest: manifest["spec"]["trialTemplate"].update(retain=True)
    )


def locate(experiment: Experiment, *, data: str, root: str) -> Experiment:
    """Set the data of an adapted Experiment's trials, and a model path below each trial's name.

    Args:
        data: URI or path of the dataset artifact.
        root: URI or path below which each trial writes to a directory of its own.
    """
    named, own = own_name(experiment)
    wrapped = named.wrapped_roles()
    values = {DATA: data, OUTPUT: f"{root}/{own}", NAME: own}
    return named.changed_job(lambda editor: fill(editor, values, wrapped=wrapped))


def _drop(holder: dict[str, Any], field: str, key: str, names: set[str]) -> None:
    if names:
        holder[field] = [
            item for item in items(holder.get(field)) if mapping(item).get(key) not in names
        ]


def give_gpus(editor: JobEditor, container: str, gpus: int) -> None:
    """Let every container of a name have GPUs, requests and limits alike; 0 changes nothing."""
    for _, body in editor.containers(container) if gpus else ():
        for kind in ("requests", "limits"):
            merge(body, ("resources", kind), {GPU: str(gpus)})


def flags_of(experiment: Experiment, trial: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return every flag a trial was given but for data and output: what it takes to train the same
    way again.

    Returns:
        Values by flag, without dashes; True for a flag without a value.
    """
    for _, container in experiment.template.primary_containers(
        experiment.render(trial, parameters)
    ):
        return {
            name: value for name, value in read_flags(container.words).items() if name not in OURS
        }
    raise Failed(f"the trials of Experiment {experiment.name} have no primary container")
