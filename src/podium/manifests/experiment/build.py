"""Experiments made from a template: other name, counts, image, flags, workers, labels."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podium.errors import InvalidInput, require
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.template import PLACEHOLDER
from podium.manifests.experiment.trainer import set_flags
from podium.manifests.fields import present, unshared
from podium.manifests.job_editor import JobEditor, merge, set_env

OWN_NAME = "${trialSpec.Name}"
"""Reference of a trialParameter to the trial's own name."""


def customize(
    experiment: Experiment,
    *,
    name: str | None = None,
    namespace: str | None = None,
    image: str | None = None,
    flags: Mapping[str, str | None] | None = None,
    output: str | None = None,
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
        name: metadata.name.
        namespace: metadata.namespace.
        image: Image of the primary container in every replica.
        flags: Flags of the trainer by name (``--data``): replaced where the template has them, else added at the end;
            a flag whose value is None is removed. What a given flag searched over is searched no more. In a container
            whose command Katib hands to a shell, a value with blanks or other special characters is quoted.
        output: Where each trial leaves its model, below its own name: the trainer's ``--output``.
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

    Raises:
        InvalidInput: A value makes no sense here, or a field of the manifest is of another type than it must be.
    """

    def change(manifest: dict[str, Any]) -> None:
        owners = [dict(owner)] if owner else None
        merge(manifest, ("metadata",), present(name=name, namespace=namespace, ownerReferences=owners))
        for field, values in (("annotations", annotations), ("labels", labels)):
            if values:
                merge(manifest, ("metadata", field), values)
        merge(manifest, ("spec",), present(resumePolicy=resume_policy))
        _set_search(manifest["spec"], goal, seed)
        _set_counts(manifest["spec"], max_trials, parallel_trials, max_failed_trials)
        if given:
            _drop_unused(manifest)

    def change_job(editor: JobEditor) -> None:
        if labels:
            editor.label(labels)
        if workers is not None:
            editor.set_workers(workers)

    if not experiment.template.workload.manifest:
        in_job: dict[str, Any] = {"workers": workers, "flags": flags, "env": env, "image": image}
        for setting, value in {**in_job, "resources": resources}.items():
            if value:
                raise InvalidInput(f"{setting} go with a trialSpec, but this Experiment has none", "write a trialSpec")
    given = dict(flags or {})
    if output:
        experiment, own = own_name(experiment)
        given["--output"] = f"{output}/{own}"
    edited = experiment.changed_job(change_job)
    return _with_containers(edited, given, env or (), present(image=image, resources=resources)).changed(change)


def _with_containers(
    experiment: Experiment,
    flags: Mapping[str, str | None],
    env: Sequence[Mapping[str, Any]],
    fields: Mapping[str, Any],
) -> Experiment:
    for flag in flags:
        if not flag.startswith("--"):
            raise InvalidInput(f"not a flag: {flag!r}", f"did you mean --{flag.lstrip('-')}?")

    def change(container: dict[str, Any], wrapped: bool) -> None:
        container |= unshared(fields)
        set_env(container, env)
        set_flags(container, flags, quoted=wrapped)

    return with_primary_containers(experiment, change)


def own_name(experiment: Experiment) -> tuple[Experiment, str]:
    """Return an Experiment whose trials know their own name, and the placeholder that stands for it."""
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


def with_primary_containers(experiment: Experiment, change: Callable[[dict[str, Any], bool], None]) -> Experiment:
    """Return an Experiment in which a function has altered each replica's primary container.

    Args:
        change: Gets the container, and whether Katib hands its command to a shell.
    """
    wrapped = experiment.wrapped_roles()

    def change_each(editor: JobEditor) -> None:
        for role, container in editor.containers(experiment.template.primary_container):
            change(container, role in wrapped)

    return experiment.changed_job(change_each)


def _set_counts(spec: dict[str, Any], most: int | None, parallel: int | None, failed: int | None) -> None:
    require(most is None or most >= 1, "max_trials >= 1", max_trials=most)  # the others are lowered to it
    given = present(maxTrialCount=most, parallelTrialCount=parallel, maxFailedTrialCount=failed)
    spec |= given
    if most is not None:
        for field in ("parallelTrialCount", "maxFailedTrialCount"):
            if field not in given and spec.get(field) is not None:
                spec[field] = min(spec[field], most)
        if most < 3:
            spec.setdefault("parallelTrialCount", most)  # Katib's default of 3 would be above it


def _set_search(spec: dict[str, Any], goal: float | None, seed: int | None) -> None:
    if goal is not None:
        merge(spec, ("objective",), {"goal": goal})
    if seed is not None:
        merge(spec, ("algorithm",), {})
        _set_setting(spec["algorithm"], "random_state", str(seed))


def _set_setting(algorithm: dict[str, Any], name: str, value: str) -> None:
    others = [setting for setting in algorithm.get("algorithmSettings") or [] if setting.get("name") != name]
    algorithm["algorithmSettings"] = [*others, {"name": name, "value": value}]


def _drop_unused(experiment: dict[str, Any]) -> None:
    """Remove trialParameters that the trials' job does not use, and the search parameters that they stand for."""
    spec = experiment["spec"]
    template = spec.get("trialTemplate") or {}
    used = set(PLACEHOLDER.findall(json.dumps(template.get("trialSpec"), default=str)))
    before = template.get("trialParameters") or []
    gone = {parameter.get("reference") for parameter in before if parameter.get("name") not in used}
    template["trialParameters"] = [parameter for parameter in before if parameter.get("name") in used]
    spec["parameters"] = [parameter for parameter in spec.get("parameters") or [] if parameter.get("name") not in gone]
