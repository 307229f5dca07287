"""Experiments made from a template: other name, counts, image, flags, workers, labels."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from podium.errors import Failed, InvalidInput, require
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.template import PLACEHOLDER, meta_key
from podium.manifests.experiment.trainer import (
    DATA,
    FLAGS,
    NAME,
    OUTPUT,
    connect_trainer,
    fill,
    flag_name,
    read_flags,
    set_flags,
    set_folds,
    set_places,
)
from podium.manifests.fields import items, mapping, present, unshared
from podium.manifests.job_editor import JobEditor, merge, set_env
from podium.manifests.kinds import or_list
from podium.manifests.options import (
    SweepOptions,
    Values,
    annotated,
    fix,
    prepare,
    read_settings,
    settings,
)
from podium.trainer.config import CHOICES, TAKEN_BY, TrainConfig
from podium.trainer.networks import recipe

OWN_NAME = "${trialSpec.Name}"
"""Reference of a trialParameter to the trial's own name."""


class Changes(SweepOptions, total=False):
    """Other changes that ``customize`` makes; a key that is absent or None changes nothing."""

    namespace: str | None

    image: str | None
    """Image of the primary container in every replica."""

    max_trials: int | None
    """spec.maxTrialCount; parallelTrialCount and maxFailedTrialCount are lowered to it if they are
    above."""

    parallel_trials: int | None

    max_failed_trials: int | None

    goal: float | None

    algorithm: str | None
    """spec.algorithm, or ``auto`` for podium's choice; settings that it does not know go."""

    seed: int | None
    """``random_state`` of the algorithm."""

    resume_policy: str | None

    workers: int | None
    """Pods of a PyTorchJob or TrainJob trial beside the first one."""

    resources: Mapping[str, Any] | None
    """``limits`` and ``requests`` of the primary container in every replica."""

    env: Sequence[Mapping[str, Any]] | None
    """Entries as in a pod spec, added to the primary container of every replica; equal names are
    replaced."""

    labels: Mapping[str, str] | None
    """Added to the Experiment's and to each trial's job."""

    owner: Mapping[str, Any] | None


def customize(
    experiment: Experiment,
    *,
    name: str | None = None,
    flags: Mapping[str, str | None] | None = None,
    output: str | None = None,
    annotations: Mapping[str, str] | None = None,
    **changes: Unpack[Changes],
) -> Experiment:
    """Return an Experiment with some things changed; what is None stays.

    Args:
        flags: Flags of the trainer by name (``--data``): replaced where the template has them, else
            added at the end; a flag whose value is None is removed. What a given flag searched over
            is searched no more. In a container whose command Katib hands to a shell, a value with
            blanks or other special characters is quoted.
        output: URL or directory of the trials' models, each below its trial's name: the trainer's
            ``--output``.
        annotations: Added to the Experiment's.
        **changes: Other changes, see Changes.

    Raises:
        InvalidInput: A value makes no sense here, or a field of the manifest is of another type
            than it must be.
    """
    if not experiment.template.workload.manifest:
        given_in_job = ("workers", "env", "image", "resources")
        in_job = {"flags": flags, **{setting: changes.get(setting) for setting in given_in_job}}
        for setting, value in in_job.items():
            if value:
                raise InvalidInput(
                    f"{setting} need a trialSpec, but this Experiment has none",
                    "write a trialSpec",
                )
    new_flags = dict(flags or {})
    if output:
        experiment, own = _own_name(experiment)
        new_flags["--output"] = f"{output}/{own}"
    edited = _with_job(experiment, new_flags, changes)
    if folds := changes.get("folds") or experiment.asked.get("folds"):
        edited = with_folds(edited, folds)

    def change(manifest: dict[str, Any]) -> None:
        owners = [dict(owner)] if (owner := changes.get("owner")) else None
        identity = present(name=name, namespace=changes.get("namespace"), ownerReferences=owners)
        merge(manifest, ("metadata",), identity)
        for field, values in (("annotations", annotations), ("labels", changes.get("labels"))):
            if values:
                merge(manifest, ("metadata", field), values)
        merge(manifest, ("spec",), present(resumePolicy=changes.get("resume_policy")))
        asked = read_settings(
            {name: value for name, value in changes.items() if name in settings()}
        )
        if folds:
            asked["folds"] = folds
        if asked:
            values = prepare(manifest["spec"], experiment.asked, asked)
            _annotate(manifest, values)
            if not manifest["metadata"]["annotations"]:
                del manifest["metadata"]["annotations"]
        _set_search(manifest["spec"], changes.get("goal"), changes.get("seed"))
        _set_counts(manifest["spec"], changes)
        if new_flags:
            _drop_unused(manifest)

    return edited.changed(change)


def _with_job(
    experiment: Experiment, flags: Mapping[str, str | None], changes: Changes
) -> Experiment:
    for flag in flags:
        if not flag.startswith("--"):
            raise InvalidInput(f"not a flag: {flag!r}", f"did you mean --{flag.lstrip('-')}?")

    def change_job(editor: JobEditor) -> None:
        if labels := changes.get("labels"):
            editor.label(labels)
        if (workers := changes.get("workers")) is not None:
            editor.set_workers(workers)

    def change_container(container: dict[str, Any], wrapped: bool) -> None:
        container |= unshared(
            present(image=changes.get("image"), resources=changes.get("resources"))
        )
        set_env(container, changes.get("env") or ())
        set_flags(container, set_places(container, flags), quoted=wrapped)

    return _with_primary_containers(experiment.changed_job(change_job), change_container)


def with_folds(experiment: Experiment, count: int) -> Experiment:
    return _with_primary_containers(
        experiment, lambda container, wrapped: set_folds(container, count, quoted=wrapped)
    )


def _own_name(experiment: Experiment) -> tuple[Experiment, str]:
    """Return an Experiment whose trials know their own name, and the placeholder of that name."""
    names = [name for name, reference in experiment.template.parameters if reference == OWN_NAME]
    if names:
        return experiment, f"${{trialParameters.{names[0]}}}"

    def declare(spec: Mapping[str, Any]) -> dict[str, Any]:
        template, own = spec["trialTemplate"], {"name": "ownName", "reference": OWN_NAME}
        parameters = [*(template.get("trialParameters") or []), own]
        return {**spec, "trialTemplate": {**template, "trialParameters": parameters}}

    manifest = {**experiment.manifest, "spec": declare(unshared(experiment.manifest["spec"]))}
    named = replace(experiment, manifest=manifest, defaulted=declare(experiment.defaulted))
    return named, "${trialParameters.ownName}"


def _with_primary_containers(
    experiment: Experiment, change: Callable[[dict[str, Any], bool], None]
) -> Experiment:
    """Return an Experiment in which a function has altered each replica's primary container.

    Args:
        change: Gets the container, and whether Katib hands its command to a shell.
    """
    wrapped = experiment.wrapped_roles()

    def change_each(editor: JobEditor) -> None:
        for role, container in editor.containers(experiment.template.primary_container):
            change(container, role in wrapped)

    return experiment.changed_job(change_each)


def _annotate(manifest: dict[str, Any], values: Values) -> None:
    metadata = manifest["metadata"] = dict(mapping(manifest.get("metadata")))
    metadata["annotations"] = annotated(metadata.get("annotations"), values)


def _set_counts(spec: dict[str, Any], changes: Changes) -> None:
    most = changes.get("max_trials")
    # The others are lowered to it.
    if most is not None:
        require(isinstance(most, int), "max_trials is a whole number", max_trials=most)
        require(most >= 1, "max_trials >= 1", max_trials=most)
    counts = present(
        maxTrialCount=most,
        parallelTrialCount=changes.get("parallel_trials"),
        maxFailedTrialCount=changes.get("max_failed_trials"),
    )
    spec |= counts
    if most is not None:
        for field in {"parallelTrialCount", "maxFailedTrialCount"} - counts.keys():
            if spec.get(field) is not None:
                spec[field] = min(spec[field], most)
        if most < 3:
            spec.setdefault("parallelTrialCount", most)  # Katib's default of 3 would be above it


def _set_search(spec: dict[str, Any], goal: float | None, seed: int | None) -> None:
    if goal is not None:
        merge(spec, ("objective",), {"goal": goal})
    if seed is not None:
        entries = mapping(spec.get("algorithm")).get("algorithmSettings") or []
        others = [setting for setting in entries if setting.get("name") != "random_state"]
        settings = [*others, {"name": "random_state", "value": str(seed)}]
        merge(spec, ("algorithm",), {"algorithmSettings": settings})


def _drop_unused(experiment: dict[str, Any]) -> None:
    """Remove trialParameters that the trials' job does not use, and their search parameters."""
    spec = experiment["spec"]
    template = spec.get("trialTemplate") or {}
    used = set(PLACEHOLDER.findall(json.dumps(template.get("trialSpec"), default=str)))
    before = template.get("trialParameters") or []
    gone = {parameter.get("reference") for parameter in before if parameter.get("name") not in used}
    template["trialParameters"] = [each for each in before if each.get("name") in used]
    spec["parameters"] = [
        each for each in spec.get("parameters") or [] if each.get("name") not in gone
    ]


_log = logging.getLogger(__name__)

_GPU = "nvidia.com/gpu"
_OURS = ("data", "output")
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
    asked, idle = fix(experiment.asked, fixed_names)
    _require_more(experiment, {**dict.fromkeys(idle), **fixed_names})
    overrides = {
        **{f"--{flag_name(name)}": None for name in idle},
        **{f"--{name}": value for name, value in flags.items()},
        **(FLAGS if builtin else {}),
    }

    def prepare(manifest: dict[str, Any]) -> None:
        spec = manifest["spec"] = manifest.get("spec") or {}
        # Nobody resumes the sweep of a run that is over, and until then Katib keeps its suggestion
        # pod (observed).
        spec["resumePolicy"] = "Never"
        template = spec["trialTemplate"] = spec.get("trialTemplate") or {}
        _drop(spec, "parameters", "name", {*fixed_names, *idle})
        _drop(template, "trialParameters", "reference", {*fixed_names, *idle})
        if fixed_names and asked:
            _annotate(manifest, {name: value for name, value in asked.items() if value != ()})

    adapted = customize(experiment.changed(prepare), name=name, flags=overrides, **changes)
    searched = [
        name for name, reference in adapted.template.parameters if meta_key(reference) is None
    ]

    def connect(container: dict[str, Any], wrapped: bool) -> None:
        container["image"] = image_for(str(container.get("image") or ""))
        connect_trainer(container, searched, quoted=wrapped)

    connected = _with_primary_containers(adapted, connect)
    return connected.changed_job(
        lambda editor: give_gpus(editor, connected.template.primary_container, gpus)
    )


def _without_use(experiment: Experiment, network: str) -> dict[str, str]:
    """Return the value of each flag that is searched, but that a network of podium's trainer does
    not take."""
    searched = {flag_name(parameter.name) for parameter in experiment.space} if network else set()
    unused = {
        name: f"{value:g}"
        for name, (value, takers) in TAKEN_BY.items()
        if name in searched and network not in takers
    }
    if unused:
        _log.info("not searched, since %s does not take it: %s", network, ", ".join(unused))
    return unused


def _require_more(experiment: Experiment, decided: Mapping[str, str | None]) -> None:
    """Refuse to search nothing: all parameters are decided, or count for other networks only."""
    if not experiment.space or any(each.name not in decided for each in experiment.space):
        return
    values = ", ".join(f"{name}={value}" for name, value in decided.items() if value)
    networks = [each.choices for each in experiment.space if flag_name(each.name) == "model"]
    hint = (
        f"network={or_list(networks[0])}" if networks else "experiment=FILE with other parameters"
    )
    raise InvalidInput(f"with {values} the Experiment searches nothing", hint)


def reporting_flag(experiment: Experiment) -> dict[str, str]:
    """Return the flag by which podium's trainer reports the objective, if it needs one."""
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
    named, own = _own_name(experiment)
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
            merge(body, ("resources", kind), {_GPU: str(gpus)})


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
            name: value for name, value in read_flags(container.words).items() if name not in _OURS
        }
    raise Failed(f"the trials of Experiment {experiment.name} have no primary container")
