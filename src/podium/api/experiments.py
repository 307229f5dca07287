"""Experiments from files, objects and SDK objects, made ready for the cluster that runs them."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, Unpack

from podium.cluster.base import Cluster
from podium.data.sources.source import SOURCES
from podium.display.notebook import say
from podium.errors import InvalidInput, NotFound
from podium.manifests.experiment import Changes, Experiment, customize, load
from podium.manifests.experiment.optimization_job import as_experiment
from podium.manifests.experiment.rules import check
from podium.manifests.experiment.source import with_template
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.placement import Pods, place
from podium.manifests.rules import PODIUM, RUNNERS
from podium.manifests.sdk import from_sdk
from podium.manifests.workload import Workload
from podium.storage import absolute
from podium.system.settings import Settings

R = TypeVar("R", Workload, Experiment)

_Say = Callable[[str], None]
"""Prints a line for people."""

_PLACEHOLDER = "s3://podium/"
"""Default URL below which bundled Experiments read and write."""


def read(source: Any, network: str = "", config_maps: Sequence[Path] = ()) -> Experiment:
    """Return the Experiment that a user means.

    Args:
        source: A file, the name of a bundled Experiment, YAML text, a manifest as a dict, an
            Experiment, or a ``V1beta1Experiment`` of Katib's SDK.
        network: The trainer's ``--model``; a bundled Experiment chooses its learning rates by it.
        config_maps: Files of ConfigMaps that may hold the trial template.

    Raises:
        InvalidInput: There is no such file or bundled Experiment, or it is something else than one
            Experiment.
    """
    if isinstance(source, Experiment):
        return source
    if isinstance(source, str | Path):
        manifest: Mapping[str, Any] = load(str(source), network, config_maps)
    elif isinstance(source, Mapping):
        manifest = with_template(as_experiment(source), [], "the given manifest")
    else:
        manifest = from_sdk(source)
    if (kind := manifest.get("kind")) in JOB_KINDS:
        named = source if isinstance(source, str | Path) and os.path.isfile(source) else None
        hint = f"podium job run {named or 'FILE'}"
        raise InvalidInput(
            f"{named or 'the manifest'} must hold an Experiment, but holds a {kind}", hint
        )
    return Experiment.parse(manifest)


def changed(
    source: Any,
    *,
    name: str | None = None,
    data: str | Path | None = None,
    output: str | Path | None = None,
    flags: Mapping[str, object] | None = None,
    config_maps: Sequence[Path] = (),
    queue: str = "",
    queue_priority: str = "",
    **changes: Unpack[Changes],
) -> Experiment:
    """Read an Experiment and change it.

    Args:
        source: The argument of read.
        data: Directory or URI of the dataset: the trainer's ``--data``.
        output: URL or directory of the trials' models, each below its trial's name.
        flags: Flags of the trials' program and their values, ``{"epochs": 2}``.
        config_maps: Files of ConfigMaps that may hold the trial template.
        queue: Kueue's local queue of each trial.
        queue_priority: Kueue's WorkloadPriorityClass, with a queue.
        **changes: Arguments of customize.

    Raises:
        InvalidInput: There is no such file or bundled Experiment, or a change makes no sense for
            it.
    """
    arguments: dict[str, str | None] = {
        f"--{flag.lstrip('-')}": str(value) for flag, value in (flags or {}).items()
    }
    experiment = read(source, arguments.get("--model") or "", config_maps)
    if data:
        arguments["--data"] = absolute(data)
    if output and not experiment.template.parameters and not experiment.template.workload.manifest:
        raise InvalidInput("an output needs a spec.trialTemplate, but there is none", "write one")
    root = absolute(output) if output else None
    customized = customize(experiment, name=name, flags=arguments, output=root, **changes)
    return place(customized, Pods(queue=queue, queue_priority=queue_priority))


def ready(experiment: Experiment, cluster: Cluster, data: object, output: object) -> Experiment:
    """Return an Experiment as the cluster can run it.

    On Kubernetes its pods get the access to the object store; on this machine podium's own trainer
    reads and writes below PODIUM_HOME where the user named no place.

    Args:
        data: The user's argument.
        output: The user's argument.

    Raises:
        BrokenRules: Katib would refuse it or never end it.
        InvalidInput: There is no dataset where it would be.
    """
    if not cluster.traits.shares_files:
        runners = (
            RUNNERS if cluster.outlives_client(experiment.kind) else (PODIUM,)
        )  # which then has the loop
        return with_store(check(experiment, runners), cluster.url, say)
    if data:
        check_here(data)
    return _at_home(experiment, Settings.from_environment().home, data, output)


def check_here(data: object) -> None:
    """Refuse a missing path of this machine; a URI is checked when it is read.

    Raises:
        InvalidInput: Nothing is there.
    """
    text = str(data)
    if "://" not in text and not os.path.exists(text):
        source = text if text.partition(":")[0] in SOURCES else "SOURCE"
        hint = (
            f"podium.prepare_data({source!r}) makes a dataset, in the shell podium data prepare "
            f"{shlex.quote(source)}"
        )
        raise InvalidInput(f"there are no data at {Path(text).absolute()}", hint)


def _at_home(experiment: Experiment, home: Path, data: object, output: object) -> Experiment:
    """Point podium's own trainer at this machine's directories instead of S3 defaults, where the
    user named none."""
    if not experiment.uses_builtin_trainer:
        return experiment
    words = [
        word
        for _, container in experiment.template.primary_containers()
        for word in container.words
    ]
    flags: dict[str, str] = {}
    if not data and any(word.startswith(f"--data={_PLACEHOLDER}") for word in words):
        flags["--data"] = str(home / "data" / "mnist")
        if not Path(flags["--data"], "dataset.json").exists():
            raise InvalidInput(f"no dataset at {flags['--data']}", "podium data prepare")
    if not output and any(word.startswith(f"--output={_PLACEHOLDER}") for word in words):
        return customize(experiment, flags=flags, output=str(home / "trials"))
    return customize(experiment, flags=flags) if flags else experiment


def with_store(resource: R, url: str, say: _Say) -> R:
    """Return a job or Experiment whose pods reach the object store of the cluster they are launched
    on.

    Args:
        resource: Stays as it is; unchanged where its commands name no s3:// or minio:// URL.
        url: The cluster's; its namespace's ConfigMap names address and Secret.
        say: Gets a notice where there is no ConfigMap.

    Raises:
        PodiumError: The ConfigMap cannot be read.
    """
    from podium.cluster.kubernetes.store_access import Access, grant_access

    if not resource.opens_store:
        return resource
    access = Access.find(url)
    if access is None:
        say(
            "notice: the namespace has no ConfigMap podium-storage, so the pods use the credentials of the manifest\n"
            "  hint: kubectl apply -k deploy makes it"
        )
    return grant_access(resource, access)


def free_name(cluster: Cluster, kind: str, name: str) -> str:
    """Return the name, with a number behind it if an object of the cluster has it."""
    free, count = name, 1
    with suppress(NotFound):
        while cluster.get(kind, free):
            count += 1
            free = f"{name[: 40 - len(str(count)) - 1]}-{count}"
    return free
