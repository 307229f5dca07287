"""Rules about the pod that Katib collects from: whether the collector runs there, sees the output
and ends."""

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice

from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.fields import text
from podium.manifests.labels import ISTIO_INJECT, REPLICATED_JOB
from podium.manifests.rules import PODIUM, Rules, Violation
from podium.manifests.trainjob import LAUNCHER
from podium.manifests.workload import Container, Replica, Workload
from podium.search.space import settled

TRIAL_RULES, TRAINER_RULES = Rules[Experiment](), Rules[Experiment]()
rule = TRIAL_RULES.rule

_KEPT = re.compile(r"(--[\w-]*(?:output|model|save|checkpoint|export)[\w-]*)[= ]['\"]?([^\s'\"]+)")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


@rule(
    "fail",
    "Katib adds its collector to pods that have all of primaryPodLabels, and nowhere else.",
    where="spec.trialTemplate.primaryPodLabels",
)
def _no_pod_is_primary(experiment: Experiment) -> Iterator[Violation]:
    template, replicas = experiment.template, experiment.template.workload.replicas
    wanted = dict(template.primary_pod_labels)
    if wanted and replicas and not any(map(template.is_primary, replicas)):
        hint = "leave primaryPodLabels out, or give the pods these labels"
        if template.workload.uses_mpi:
            hint = f"name the launcher: primaryPodLabels: {{{REPLICATED_JOB}: {LAUNCHER}}}"
        yield Violation(f"no pod has the labels {wanted}", hint=hint)


@rule(
    "warn",
    "Each pod with a collector reports for the trial; values of several pods become one series.",
    where="spec.trialTemplate.primaryPodLabels",
    hint="set primaryPodLabels so that one pod has them",
)
def _several_pods_report(experiment: Experiment) -> Iterator[Violation]:
    template, job = experiment.template, experiment.template.workload
    count = sum(job.parallelism for _ in filter(template.is_primary, job.replicas))
    if job.has_roles:
        count = len(template.primary_pods(job))
    if count > 1:
        yield Violation(f"{count} pods report metrics")


@rule(
    "note",
    "Where Istio injects its proxy, the proxy never ends and keeps the trial's pod alive (katib#2527).",
    hint=f'set the pod label {ISTIO_INJECT}: "false"',
)
def _istio_not_switched_off(experiment: Experiment) -> Iterator[Violation]:
    for replica in experiment.template.workload.replicas:
        if ISTIO_INJECT not in {*replica.pod.labels, *replica.pod.annotations}:
            yield Violation(f"no label {ISTIO_INJECT}", f"{replica.pod.path}.metadata.labels")
            return


@rule(
    "warn",
    "The collector waits for every process of the pod; a second container that does not end holds the trial.",
    hint="make it an init container, or set waitAllProcesses: false in katib-config",
)
def _other_containers_hold_the_trial(experiment: Experiment) -> Iterator[Violation]:
    template = experiment.template
    for pod in (each.pod for each in template.workload.replicas if template.is_primary(each)):
        if len(pod.containers) > 1:
            names = ", ".join(container.name for container in pod.containers)
            yield Violation(f"the pod has containers {names}", f"{pod.path}.spec.containers")


def sample_trial(
    experiment: Experiment, name: str, overrides: Mapping[str, str] | None = None
) -> Workload | None:
    """Return a trial's job with the first value of each parameter; None if other rules say why
    there is none.

    Args:
        overrides: Other values; what does not count beside them has its fixed one.
    """
    values = {
        each.name: text(next(iter(each.choices), each.feasible.get("min")))
        for each in experiment.written_space
    }
    if overrides and {parameter.name for parameter in experiment.space} == set(values):
        values = settled(experiment.space, {**values, **overrides})
    try:
        return experiment.render(name, values)
    except InvalidInput:
        return None


@TRAINER_RULES.rule(  # another image may have another trainer
    "fail",
    "podium's trainer ends with exit code 2 before it reads any data, in every trial.",
    runner=PODIUM,
    refuses=True,
)
def _trainer_refuses(experiment: Experiment) -> Iterator[Violation]:
    asked = {premise.name for parameter in experiment.space for premise in parameter.when}
    branches = (
        {each.name: value}
        for each in experiment.space
        if each.name in asked
        for value in each.samples()
    )
    # Where a parameter does not count, its flag is there all the same.
    refused = (_refused(experiment, branch) for branch in ({}, *branches))
    yield from islice(filter(None, refused), 1)


def _refused(experiment: Experiment, values: Mapping[str, str]) -> Violation | None:
    if (job := sample_trial(experiment, "trial", values)) is None:
        return None
    wrapped = [container.path for _, container in experiment.wrapped_containers()]
    templates = experiment.template.workload.containers()
    for (_, written), (_, filled) in zip(templates, job.containers(), strict=True):
        words, line, in_shell = filled.words, " ".join(filled.words), written.path in wrapped
        has_variable = ("$" if in_shell else "$(") in line  # whose value is not known
        if has_variable or not filled.uses_builtin_trainer:
            continue
        from podium.trainer.config import parse

        try:
            flags = shlex.split(line) if in_shell else list(words)
            parse(flags[flags.index("podium.trainer") + 1 :])
        except ValueError:
            continue  # the rules about shells say why
        except InvalidInput as error:
            where = "".join(f", in trials with {name}={value}" for name, value in values.items())
            problem = f"podium's trainer refuses its flags{where}: {error.message}"
            hint = error.hint or "see python -m podium.trainer --help"
            return Violation(problem, f"{written.path}.args", hint)
    return None


@rule(
    "warn",
    "Early stopping reads the output as it grows; Python keeps it back in blocks when stdout is not a terminal.",
    hint="run python -u, set PYTHONUNBUFFERED=1, or print with flush=True",
)
def _buffered_while_stopping_early(experiment: Experiment) -> Iterator[Violation]:
    if not experiment.early_stopping or experiment.collector.kind != "StdOut":
        return
    by_operator = experiment.template.workload.operator_variables
    for _, container in experiment.wrapped_containers():
        python = container.words and _PYTHON.fullmatch(container.words[0])
        unbuffered = "PYTHONUNBUFFERED" in {*container.env, *by_operator}
        if python and "-u" not in container.words and not unbuffered:
            yield Violation("the output may come late", f"{container.path}.command")


@rule(
    "warn",
    "A File collector reads the file only; the program must write it, stdout stays in the container's log.",
    hint="pass the path to the program, or make sure that it writes there by itself",
)
def _nobody_writes_the_file(experiment: Experiment) -> Iterator[Violation]:
    path = experiment.collector.path
    if experiment.collector.kind not in ("File", "TensorFlowEvent") or not path:
        return
    named = path.rstrip("/").rpartition("/")[0] or path.rstrip("/")
    for _, container in experiment.wrapped_containers():
        values = (variable.value for variable in container.variables)
        if not any(named in text for text in (*container.words, *values)):
            yield Violation(f"{path} is not named by the command", container.path)


@rule(
    "note",
    "Each trial's job is deleted when it has ended, and with it everything not stored elsewhere.",
)
def _trials_share_a_path(experiment: Experiment) -> Iterator[Violation]:
    if any("trialSpec.Name" in reference for _, reference in experiment.template.parameters):
        return
    folder = str(experiment.algorithm.settings.get("suggestion_trial_dir") or "\0").rstrip("/")
    for replica, container in experiment.wrapped_containers():
        for flag, value in _KEPT.findall(" ".join(container.words)):
            if "$" in value or "KATIB_TRIAL_NAME" in value or value.startswith(folder):
                continue
            hint = "add a trialParameter with reference ${trialSpec.Name} and put it into the path"
            if "://" in value or _is_shared(value, replica, container):
                problem = (
                    f"`{flag}` is {value} for every trial: the last one overwrites the best one"
                )
                yield Violation(problem, container.path, hint, level="warn")
            elif "/" in value and not experiment.template.retain:
                problem = f"what `{flag}` writes to {value} is gone with the trial's pod"
                yield Violation(
                    problem, container.path, f"write to a store such as s3://, and {hint}"
                )


def _is_shared(path: str, replica: Replica, container: Container) -> bool:
    lasting = {
        volume.name
        for volume in replica.pod.volumes
        if {"persistentVolumeClaim", "hostPath"} & {*volume.sources}
    }
    return any(
        f"{path}/".startswith(f"{mount.path}/")
        for mount in container.mounts
        if mount.volume in lasting
    )
