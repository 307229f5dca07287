"""Experiments made from a template: other name, counts, image, flags, workers, labels."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from podium.errors import InvalidInput, require
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.template import PLACEHOLDER
from podium.manifests.experiment.trainer import set_flags, set_folds
from podium.manifests.fields import mapping, present, unshared
from podium.manifests.job_editor import JobEditor, merge, set_env
from podium.manifests.labels import SWEEP
from podium.manifests.options import (
    SweepOptions,
    Values,
    annotation,
    prepare,
    read_settings,
    settings,
)

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
    given = dict(flags or {})
    if output:
        experiment, own = own_name(experiment)
        given["--output"] = f"{output}/{own}"
    edited = _with_job(experiment, given, changes)
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
            _ask(manifest, prepare(manifest["spec"], experiment.asked, asked))
        _set_search(manifest["spec"], changes.get("goal"), changes.get("seed"))
        _set_counts(manifest["spec"], changes)
        if given:
            _drop_unused(manifest)

    return edited.changed(change)


def _ask(manifest: dict[str, Any], values: Values) -> None:
    annotations = mapping(manifest["metadata"].get("annotations"))
    kept = {name: text for name, text in annotations.items() if name != SWEEP}
    if written := {**kept, **annotation(values)}:
        manifest["metadata"]["annotations"] = written
    else:
        manifest["metadata"].pop("annotations", None)


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
        set_flags(container, flags, quoted=wrapped)

    return with_primary_containers(experiment.changed_job(change_job), change_container)


def with_folds(experiment: Experiment, count: int) -> Experiment:
    return with_primary_containers(
        experiment, lambda container, wrapped: set_folds(container, count, quoted=wrapped)
    )


def own_name(experiment: Experiment) -> tuple[Experiment, str]:
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


def with_primary_containers(
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


def _set_counts(spec: dict[str, Any], changes: Changes) -> None:
    most, parallel = changes.get("max_trials"), changes.get("parallel_trials")
    require(
        most is None or most >= 1, "max_trials >= 1", max_trials=most
    )  # the others are lowered to it
    given = present(
        maxTrialCount=most,
        parallelTrialCount=parallel,
        maxFailedTrialCount=changes.get("max_failed_trials"),
    )
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
    others = [
        setting
        for setting in algorithm.get("algorithmSettings") or []
        if setting.get("name") != name
    ]
    algorithm["algorithmSettings"] = [*others, {"name": name, "value": value}]


def _drop_unused(experiment: dict[str, Any]) -> None:
    spec = experiment["spec"]
    template = spec.get("trialTemplate") or {}
    used = set(PLACEHOLDER.findall(json.dumps(template.get("trialSpec"), default=str)))
    before = template.get("trialParameters") or []
    gone = {parameter.get("reference") for parameter in before if parameter.get("name") not in used}
    template["trialParameters"] = [
        parameter for parameter in before if parameter.get("name") in used
    ]
    spec["parameters"] = [
        parameter for parameter in spec.get("parameters") or [] if parameter.get("name") not in gone
    ]
