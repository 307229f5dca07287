"""Translation of a pod template to processes on this machine: each field is honored, named in a
notice or refused, never dropped."""

import os
from dataclasses import dataclass
from pathlib import Path

from podium.cluster.local.images import Image, Images, find_image
from podium.cluster.local.imports import check_imports
from podium.cluster.local.podfields import (
    HONORED_CONTAINER,
    HONORED_POD,
    NO_MEANING_CONTAINER,
    NO_MEANING_POD,
)
from podium.cluster.local.scripts import script_of
from podium.errors import InvalidInput
from podium.manifests.workload import Container, Mount, Pod, Variable, Volume

MAX_GRACE = 30
"""Seconds at most between SIGTERM and SIGKILL, whatever terminationGracePeriodSeconds says."""


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """One container as it will run here."""

    name: str
    """Its name in the template."""

    path: str
    """Path in the manifest, for messages."""

    image: Image
    """Its local environment."""

    argv: tuple[str, ...]
    """Command and args, $(VAR) not yet expanded."""

    env: tuple[Variable, ...]
    """$(VAR) not yet expanded."""

    working_dir: Path | None
    """The working directory on this machine; None for a directory of the pod's own."""

    mounts: tuple[tuple[str, str, Path | None], ...]
    """Mount path, name and sub path of a volume, and where a hostPath lies; None is an emptyDir."""


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """A pod template as it will run here."""

    init: tuple[ContainerPlan, ...]
    """Run one after the other before main."""

    main: ContainerPlan
    """The one container."""

    grace: float
    """Seconds between SIGTERM and SIGKILL."""

    ignored: tuple[str, ...]
    """Fields that mean nothing on this machine."""


def plan_pod(pod: Pod, images: Images) -> PodPlan:
    """Return how the pods of a template run here.

    Raises:
        InvalidInput: A field would change the result and cannot be honored here.
    """
    path = f"{pod.path}.spec"
    ignored = _sort_fields(pod.fields, HONORED_POD, NO_MEANING_POD, path)
    if len(pod.containers) > 1:
        names = ", ".join(container.name for container in pod.containers[1:])
        raise _refuse(
            f"{path}.containers[1]",
            f"one container a pod, but there is also {names}",
            "remove the sidecar",
        )
    volumes = {
        volume.name: _volume_path(volume, f"{path}.volumes[{number}]")
        for number, volume in enumerate(pod.volumes)
    }
    init = tuple(_plan(container, volumes, images, ignored) for container in pod.init_containers)
    main = _plan(pod.containers[0], volumes, images, ignored)
    _check_program(main)
    return PodPlan(
        init=init,
        main=main,
        grace=MAX_GRACE if pod.grace_seconds is None else min(pod.grace_seconds, MAX_GRACE),
        ignored=tuple(dict.fromkeys(ignored)),
    )


def _plan(
    container: Container, volumes: dict[str, Path | None], images: Images, ignored: list[str]
) -> ContainerPlan:
    path = container.path
    fields = _sort_fields(container.fields, HONORED_CONTAINER, NO_MEANING_CONTAINER, path)
    ignored += [f"containers.{field}" for field in fields]
    image = find_image(container.image, images)
    if not container.command:
        hint = f"there is no image here to ask; give its ENTRYPOINT: --entrypoint {container.image}='COMMAND'"
        raise _refuse(
            f"{path}.command", f"a command, or the entrypoint of image {container.image}", hint
        )
    for number, variable in enumerate(container.variables):
        if variable.source:
            _check_source(variable, f"{path}.env[{number}].valueFrom")
    mounts = enumerate(container.mounts)
    return ContainerPlan(
        name=container.name,
        path=path,
        image=image,
        argv=container.words,
        env=container.variables,
        working_dir=_working_dir(container.working_dir, f"{path}.workingDir", image),
        mounts=tuple(
            _plan_mount(mount, f"{path}.volumeMounts[{at}]", volumes, container)
            for at, mount in mounts
        ),
    )


def _sort_fields(
    fields: frozenset[str], honored: set[str], no_meaning: set[str], path: str
) -> list[str]:
    for name in sorted(fields - honored - no_meaning):
        hint = "remove it, or run the job on a cluster"
        raise _refuse(f"{path}.{name}", f"a field that this machine can honor, not {name}", hint)
    return sorted(fields & no_meaning)


def _volume_path(volume: Volume, path: str) -> Path | None:
    """Return the directory of a hostPath; None for an emptyDir."""
    if "emptyDir" in volume.sources:
        return None
    if volume.host_path:
        host = Path(volume.host_path)
        if not host.exists():
            raise _refuse(
                f"{path}.hostPath.path",
                f"a path that exists, not {host}",
                "create it, or correct the path",
            )
        return host
    rule = f"a volume that is an emptyDir or a hostPath, not {', '.join(volume.sources) or 'no source'}"
    raise _refuse(path, rule, "pass data by URI, credentials by environment")


def _plan_mount(
    mount: Mount, path: str, volumes: dict[str, Path | None], container: Container
) -> tuple[str, str, Path | None]:
    where = mount.path
    if mount.volume not in volumes:
        raise _refuse(f"{path}.name", f"the name of a volume, not {mount.volume!r}", None)
    if mount.fields & {"subPathExpr", "mountPropagation"}:
        raise _refuse(path, "a mount without subPathExpr and mountPropagation", None)
    host = volumes[mount.volume]
    host = host and host / mount.sub_path
    # Nothing can be mounted without root: a path is honored by writing the local one where the manifest names it.
    words = [
        *container.words,
        container.working_dir,
        *(variable.value for variable in container.variables),
    ]
    same = (host is not None and str(host) == where) or (
        host is None and where in ("/dev/shm", "/tmp")
    )
    if not same and not any(where in word for word in words):
        hint = f"pass {where} to the program as an argument: nothing can be mounted here, but arguments are translated"
        raise _refuse(
            f"{path}.mountPath", f"a path that command, args or env name, not {where}", hint
        )
    key = f"{mount.volume}/{mount.sub_path}" if mount.sub_path else mount.volume
    return where, key, Path(where) if same else host


def _working_dir(path_in_image: str, path: str, image: Image) -> Path | None:
    if not path_in_image or (image.root and path_in_image == "/"):
        return None
    here = Path(image.resolve(path_in_image))
    if not (here.is_absolute() and here.is_dir()):
        hint = f"map the image to a directory that has it: --image-dir {image.name}=DIR"
        raise _refuse(path, f"a directory of the local environment, not {path_in_image}", hint)
    return here


def _check_source(variable: Variable, path: str) -> None:
    kind, reference = next(iter(variable.source.items()))
    if kind not in ("fieldRef", "secretKeyRef", "configMapKeyRef") or not isinstance(
        reference, dict
    ):
        raise _refuse(
            path,
            f"a fieldRef, secretKeyRef or configMapKeyRef, not {kind}",
            "give the value itself",
        )


def _check_program(plan: ContainerPlan) -> None:
    """Refuse what would only fail with "not found": the program, or the script given to Python or
    torchrun.

    torchrun would wait for its other replicas first and be restarted after each failure, forever
    without a limit.
    """
    program, script = plan.argv[0], script_of(plan.argv)
    here, path = plan.working_dir or plan.image.workdir, f"{plan.path}.command"
    hint = f"start podium where it lies, or map the image to a directory that has it: --image-dir {plan.image.name}=DIR"
    if _may_appear(program, plan):
        exists = True
    elif "/" in program and not program.startswith("/"):
        exists = (here / program).exists()
    else:
        exists = plan.image.find_program(program, os.environ.get("PATH", "")) is not None
    if not exists:
        raise _refuse(path, f"a program of the local environment, not {program}", hint)
    if script is not None and not _may_appear(script, plan):
        file = Path(plan.image.resolve(script))
        if not (file.exists() if file.is_absolute() else (here / script).exists()):
            raise _refuse(path, f"a script of the local environment, not {script}", hint)
        if plan.image.root is None and all(each.name != "PYTHONPATH" for each in plan.env):
            check_imports(file if file.is_absolute() else here / script, plan.argv)


def _may_appear(word: str, plan: ContainerPlan) -> bool:
    """Return whether a file may be in a volume, or its name is known only when the pod starts."""
    if not word.startswith("/"):
        return "$(" in word or bool(plan.mounts)
    return "$(" in word or any(
        word == where or word.startswith(f"{where}/") for where, _, _ in plan.mounts
    )


def _refuse(path: str, rule: str, hint: str | None) -> InvalidInput:
    return InvalidInput(f"{path}: this machine needs {rule}", hint)
