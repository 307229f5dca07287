"""What Katib's pod webhook does to a trial's job, on this machine (katib: pkg/webhook/v1beta1/pod).

The primary container's command and args are joined with blanks, unquoted, and given to a shell whose output goes to a
file. That decides what a value with a blank or a ``$`` means, so it is repeated here to the letter. A command without
anything a shell would read runs as it is: the outcome is the same, and no shell stands between it and a signal.
"""

import copy
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from podium.cluster.base import Manifest
from podium.errors import require
from podium.local.environment import MOST_PROCESSES
from podium.local.jobs import LocalJobs
from podium.local.katib.population import trial_directory
from podium.local.processes import cores
from podium.manifests.experiment import render
from podium.manifests.experiment.build import primary_containers
from podium.manifests.experiment.rules import Findings
from podium.manifests.experiment.space import first_values, read_space

_SAFE = re.compile(r"(?:[\w@%+=:,./^{}-]|[ \t]|'[^']*')*")
_WORD = re.compile(r"[\w@%+:,./-]+", re.ASCII)
_SHELL_WORD = re.compile(
    r"if|then|else|elif|fi|for|while|until|do|done|case|esac|in|function|select|time|\.|:|alias|bg|break|cd|command|continue"
    r"|eval|exec|exit|export|fg|getopts|hash|jobs|local|read|readonly|return|set|shift|source|times|trap|type|ulimit|umask"
    r"|unalias|unset|wait"
)


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """A trial's job as it runs here."""

    job: dict[str, Any]
    """What to create."""

    metrics: Path | None
    """File or directory that holds the metrics; None: what the replica prints."""


def wrap(
    experiment: Mapping[str, Any], job: Mapping[str, Any], directory: Path, share: float, checkpoints: Path | None
) -> Wrapped:
    """Return a trial's job with the primary container wrapped.

    Args:
        experiment: With its defaults.
        job: Rendered, named after the trial.
        directory: The trial's own; files that the collector reads are put there.
        share: How many cores the job may use.
        checkpoints: The directory of population based training for this trial.
    """
    wrapped = copy.deepcopy(dict(job))
    name = wrapped["metadata"]["name"]
    labels = {"katib.kubeflow.org/experiment": experiment["metadata"]["name"], "katib.kubeflow.org/trial": name}
    _merge(wrapped["metadata"], "labels", labels)
    _merge(wrapped["metadata"], "annotations", {"podium.dev/cpu-share": f"{share:g}"})
    collecting = experiment["spec"]["metricsCollectorSpec"]
    kind = collecting["collector"]["kind"]
    metrics: Path | None = None
    local, printed = directory / "metrics", directory / "metrics.log"
    shutil.rmtree(local, ignore_errors=True)  # of a run that was stopped
    printed.unlink(missing_ok=True)
    trial = {
        "spec": {**experiment["spec"], "trialTemplate": {**experiment["spec"]["trialTemplate"], "trialSpec": wrapped}}
    }
    # The engine removes the job itself, but has to read it first.
    (wrapped["spec"].get("runPolicy") or wrapped["spec"]).pop("ttlSecondsAfterFinished", None)
    for pod in _pod_templates(wrapped):
        _merge(pod.setdefault("metadata", {}), "labels", labels)
    for container, reports in primary_containers(trial):
        container["env"] = [*(container.get("env") or []), {"name": "KATIB_TRIAL_NAME", "value": name}]
        if reports and checkpoints and (place := trial_directory(experiment)):
            _mount(wrapped, container, "suggestion-volume", place, checkpoints)
        if not reports or not container.get("command"):
            continue
        script, shell = _joined(container)
        argv = plain_argv(script) if shell is None else None
        if kind == "StdOut" and argv is None:
            metrics = printed
            script += f" 1>{shlex.quote(str(metrics))} 2>&1"
        elif kind != "StdOut":
            path = PurePosixPath(collecting["source"]["fileSystemPath"]["path"])
            folder = path.parent if kind == "File" else path
            metrics = local / path.name if kind == "File" else local
            _mount(wrapped, container, "metrics-volume", str(folder), local)
        container.pop("args", None)
        container["command"] = list(argv) if argv is not None else [*(shell or ("sh", "-c")), script]
    return Wrapped(job=wrapped, metrics=metrics)


def check_trials(cluster: LocalJobs, experiment: Manifest, directory: Path) -> Manifest:
    """Refuse what no trial could run as here, before anything is stored; return the job of a trial that could be.

    Raises:
        InvalidInput: The cluster would refuse the trials' jobs.
    """
    parallel = experiment["spec"]["parallelTrialCount"]
    law = f"parallelTrialCount <= {MOST_PROCESSES} on one machine"
    require(parallel <= MOST_PROCESSES, law, "set spec.parallelTrialCount", parallelTrialCount=parallel)
    space = read_space(experiment["spec"]["parameters"], Findings())
    values = {parameter.name: first_values(parameter)[0] for parameter in space}
    job = render(experiment, f"{experiment['metadata']['name']}-trial", values)
    checkpoints = directory / "checkpoints" if trial_directory(experiment) else None
    wrapped = wrap(experiment, job, directory, cores_of_a_trial(experiment["spec"]), checkpoints).job
    suspended = (wrapped["spec"].get("runPolicy") or wrapped["spec"]).get("suspend")
    require(not suspended, "a trial's job is not suspended", "remove suspend: nobody starts it here", suspend=suspended)
    cluster.plan(wrapped)
    return wrapped


def cores_of_a_trial(spec: Mapping[str, Any]) -> float:
    """Return the share of this machine's cores that each of an Experiment's parallel trials has."""
    return cores() / max(1, min(spec["parallelTrialCount"], spec.get("maxTrialCount") or MOST_PROCESSES))


def plain_argv(script: str) -> list[str] | None:
    """Return the words a shell would make of a command line if it would do nothing but split it; else None.

    Args:
        script: One line; quotes '…' are understood, everything else that means something to a shell is not.
    """
    if not _SAFE.fullmatch(script):
        return None
    words = shlex.split(script)
    if not words or not _WORD.fullmatch(words[0]) or _SHELL_WORD.fullmatch(words[0]):
        return None
    return words


def shell_line(container: Mapping[str, Any], redirect: str = "1>/var/log/katib/metrics.log 2>&1") -> list[str]:
    """Return the command that Katib makes of a container's command and args."""
    script, shell = _joined(container)
    return [*(shell or ("sh", "-c")), f"{script} {redirect}"]


def _joined(container: Mapping[str, Any]) -> tuple[str, tuple[str, str] | None]:
    words: Sequence[str] = [*(container.get("command") or []), *(container.get("args") or [])]
    if len(words) > 1 and words[0] in ("sh", "bash") and words[1] == "-c":
        return " ".join(words[2:]), (words[0], "-c")
    return " ".join(words), None


def _mount(job: Mapping[str, Any], container: dict[str, Any], name: str, folder: str, local: Path) -> None:
    local.mkdir(parents=True, exist_ok=True)
    container["volumeMounts"] = [
        *(container.get("volumeMounts") or []),
        {"name": name, "mountPath": folder},
    ]
    for pod in _pod_templates(job):
        if any(one is container for one in pod["spec"]["containers"]):
            volume = {"name": name, "hostPath": {"path": str(local), "type": "Directory"}}
            pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or []), volume]


def _pod_templates(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    spec = job["spec"]
    if job["kind"] == "Job":
        return [spec["template"]]
    return [replica["template"] for replica in spec["pytorchReplicaSpecs"].values()]


def _merge(holder: dict[str, Any], field: str, values: Mapping[str, str]) -> None:
    holder[field] = {**(holder.get(field) or {}), **values}
