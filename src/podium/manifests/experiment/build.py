"""Experiments made from a template: other name, counts, image, flags, workers, labels."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podium.errors import require
from podium.manifests.draft import Draft, set_env
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.template import PLACEHOLDER
from podium.manifests.experiment.trainer import set_flags

OWN_NAME = "${trialSpec.Name}"
"""Reference of a trialParameter to the trial's own name."""


def customize(
    experiment: Experiment,
    *,
    name: str | None = None,
    namespace: str | None = None,
    image: str | None = None,
    flags: Mapping[str, str | None] | None = None,
    max_trials: int | None = None,
    parallel_trials: int | None = None,
    max_failed_trials: int | None = None,
    goal: float | None = None,
    seed: int | None = None,
    resume_policy: str | None = None,
    workers: int | None = None,
    resources: Mapping[str, Any] | None = None,
    env: Sequence[Mapping[str, Any]] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return an Experiment with some things changed; what is None stays.

    Args:
        experiment: Stays as it is.
        name: metadata.name.
        namespace: metadata.namespace.
        image: Of the primary container in every replica.
        flags: Flags of the trainer by name (``--data``): replaced where the template has them, else added at the end;
            a flag whose value is None is removed. What a given flag searched over is searched no more. In a container
            whose command Katib hands to a shell, a value with blanks or other special characters is quoted.
        max_trials: spec.maxTrialCount; parallelTrialCount and maxFailedTrialCount are lowered to it if they are above.
        parallel_trials: spec.parallelTrialCount.
        max_failed_trials: spec.maxFailedTrialCount.
        goal: spec.objective.goal.
        seed: ``random_state`` of the algorithm.
        resume_policy: spec.resumePolicy.
        workers: Pods of a PyTorchJob or TrainJob trial beside the first one.
        resources: ``limits`` and ``requests`` of the primary container in every replica.
        env: Entries as in a pod spec, added to the primary container of every replica; equal names are replaced.
        labels: Added to the Experiment's and to each trial's job.
        annotations: Added to the Experiment's.
        owner: An ownerReference.

    Raises:
        InvalidInput: A value makes no sense here, or a field of the manifest is of another type than it must be.
    """
    changed = Draft.of(experiment.manifest).manifest
    spec = _part(changed, "spec")
    _set_metadata(changed, name, namespace, annotations, owner)
    _set_counts(spec, max_trials, parallel_trials, max_failed_trials)
    _set_search(spec, goal, seed)
    if resume_policy is not None:
        spec["resumePolicy"] = resume_policy
    for holder in (changed, _trial(changed)) if labels else ():
        _add(_part(holder, "metadata"), "labels", labels)
    if workers is not None:
        change_trial(changed, lambda draft: draft.set_workers(workers))
    _set_containers(changed, image, resources, env or ())
    _set_all_flags(changed, flags or {})
    return Experiment.parse(changed)


def own_name(experiment: Experiment) -> tuple[Experiment, str]:
    """Return an Experiment whose trials know their own name, and the placeholder that stands for it."""

    def declare(manifest: dict[str, Any]) -> None:
        declare_own_name(manifest["spec"]["trialTemplate"])

    changed = experiment.changed(declare)
    name = next(name for name, reference in changed.template.parameters if reference == OWN_NAME)
    return changed, f"${{trialParameters.{name}}}"


def declare_own_name(template: dict[str, Any]) -> str:
    """Return the trialParameter that stands for the trial's own name; the template has one afterwards."""
    declared = template["trialParameters"] = template.get("trialParameters") or []
    for parameter in declared:
        if parameter.get("reference") == OWN_NAME:
            return str(parameter["name"])
    declared.append({"name": "ownName", "reference": OWN_NAME})
    return "ownName"


def change_trial(experiment: dict[str, Any], change: Callable[[Draft], None]) -> None:
    """Let a function alter the job of an Experiment's trials; nothing is put where there is none."""
    trial = _trial(experiment)
    draft = Draft.of(trial)
    change(draft)
    if trial:
        experiment["spec"]["trialTemplate"]["trialSpec"] = draft.manifest


def change_primary_containers(experiment: dict[str, Any], change: Callable[[dict[str, Any], bool], None]) -> None:
    """Let a function alter each replica's primary container.

    Args:
        experiment: A manifest; is altered.
        change: Gets the container, and whether Katib hands its command to a shell.
    """
    parsed = Experiment.parse(experiment)
    wrapped = {replica.role for replica, _ in parsed.wrapped_containers()}

    def change_each(draft: Draft) -> None:
        for role, container in draft.containers(parsed.template.primary_container):
            change(container, role in wrapped)

    change_trial(experiment, change_each)


def _part(holder: dict[str, Any], field: str) -> dict[str, Any]:
    """Return an object inside another; one that is missing or null is put there."""
    holder[field] = part = holder.get(field) or {}
    return part


def _add(holder: dict[str, Any], field: str, values: Mapping[str, str] | None) -> None:
    if values:
        holder[field] = {**(holder.get(field) or {}), **values}


def _trial(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job of a trial, which may be missing."""
    trial: dict[str, Any] = ((experiment.get("spec") or {}).get("trialTemplate") or {}).get("trialSpec") or {}
    return trial


def _set_metadata(
    experiment: dict[str, Any],
    name: str | None,
    namespace: str | None,
    annotations: Mapping[str, str] | None,
    owner: Mapping[str, Any] | None,
) -> None:
    metadata = _part(experiment, "metadata")
    given = {"name": name, "namespace": namespace, "ownerReferences": [dict(owner)] if owner else None}
    metadata.update({field: value for field, value in given.items() if value is not None})
    _add(metadata, "annotations", annotations)


def _set_search(spec: dict[str, Any], goal: float | None, seed: int | None) -> None:
    if goal is not None:
        _part(spec, "objective")["goal"] = goal
    if seed is not None:
        _set_setting(_part(spec, "algorithm"), "random_state", str(seed))


def _set_containers(
    experiment: dict[str, Any], image: str | None, resources: Mapping[str, Any] | None, env: Sequence[Mapping[str, Any]]
) -> None:
    def change(container: dict[str, Any], _: bool) -> None:
        if image is not None:
            container["image"] = image
        if resources is not None:
            container["resources"] = copy.deepcopy(dict(resources))
        set_env(container, [dict(entry) for entry in env])

    change_primary_containers(experiment, change)


def _set_all_flags(experiment: dict[str, Any], flags: Mapping[str, str | None]) -> None:
    for flag in flags:
        require(flag.startswith("--"), "a flag begins with --", flag=flag)
    change_primary_containers(experiment, lambda container, wrapped: set_flags(container, flags, quoted=wrapped))
    if flags:
        _drop_unused(experiment["spec"], experiment["spec"].get("trialTemplate") or {})


def _set_counts(spec: dict[str, Any], most: int | None, parallel: int | None, failed: int | None) -> None:
    require(most is None or most >= 1, "max_trials >= 1", max_trials=most)  # the others are lowered to it
    given = {"maxTrialCount": most, "parallelTrialCount": parallel, "maxFailedTrialCount": failed}
    spec.update({field: value for field, value in given.items() if value is not None})
    if most is not None:
        for field in ("parallelTrialCount", "maxFailedTrialCount"):
            if given[field] is None and spec.get(field) is not None:
                spec[field] = min(spec[field], most)
        if most < 3:
            spec.setdefault("parallelTrialCount", most)  # Katib's default of 3 would be above it


def _set_setting(algorithm: dict[str, Any], name: str, value: str) -> None:
    others = [setting for setting in algorithm.get("algorithmSettings") or [] if setting.get("name") != name]
    algorithm["algorithmSettings"] = [*others, {"name": name, "value": value}]


def _drop_unused(spec: dict[str, Any], template: dict[str, Any]) -> None:
    used = set(PLACEHOLDER.findall(json.dumps(template.get("trialSpec"), default=str)))
    before = template.get("trialParameters") or []
    gone = {parameter.get("reference") for parameter in before if parameter.get("name") not in used}
    template["trialParameters"] = [parameter for parameter in before if parameter.get("name") in used]
    spec["parameters"] = [parameter for parameter in spec.get("parameters") or [] if parameter.get("name") not in gone]
