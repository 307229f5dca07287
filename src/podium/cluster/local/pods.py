"""Translation of a pod template to processes on this machine: each field is honored, named in a
notice or refused, never dropped."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from podium.cluster.local.scripts import check_imports, script_of
from podium.cluster.local.supplies import Image, Images, Supplies
from podium.errors import InvalidInput
from podium.manifests.fields import mapping, objects, text
from podium.manifests.workload import Container, Mount, Pod, Variable, Volume

HONORED_POD = {
    "containers",
    "initContainers",
    "volumes",
    "terminationGracePeriodSeconds",
    "restartPolicy",
}

NO_MEANING_POD = {
    "nodeSelector",
    "nodeName",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "schedulerName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "runtimeClassName",
    "overhead",
    "os",
    "resources",
    "resourceClaims",
    "readinessGates",
    "schedulingGates",
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "imagePullSecrets",
    "securityContext",
    "dnsPolicy",
    "dnsConfig",
    "hostname",
    "subdomain",
    "setHostnameAsFQDN",
    "hostAliases",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "shareProcessNamespace",
    "enableServiceLinks",
}

HONORED_CONTAINER = {
    "name",
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "workingDir",
    "volumeMounts",
}

NO_MEANING_CONTAINER = {
    "imagePullPolicy",
    "resources",
    "resizePolicy",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "terminationMessagePath",
    "terminationMessagePolicy",
}


MAX_GRACE = 30
"""Seconds at most between SIGTERM and SIGKILL, whatever terminationGracePeriodSeconds says."""


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """One container as it will run here."""

    name: str
    path: str
    """Path in the manifest, for messages."""

    image: Image
    argv: tuple[str, ...]
    """Command and args, $(VAR) not yet expanded."""

    env: tuple[Variable, ...]
    """$(VAR) not yet expanded."""

    working_dir: Path | None
    """The working directory on this machine; None for a directory of the pod's own."""

    mounts: tuple[tuple[str, str, Path | None], ...]
    """Mount path, name and sub path of a volume, and the directory that it is; None is one of the
    pod's own."""

    files: Mapping[str, Mapping[str, str]]
    """Files of Secrets and ConfigMaps by the name of their volume, which is the pod's own."""

    supplied: Mapping[str, str]
    """Variables of envFrom, which those of env override."""

    values: Mapping[str, str]
    """Values of variables that a Secret or ConfigMap has, by name."""


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """A pod template as it will run here."""

    init: tuple[ContainerPlan, ...]
    """Run one after the other before main."""

    main: ContainerPlan
    grace: float
    """Seconds between SIGTERM and SIGKILL."""

    ignored: tuple[str, ...]
    """Fields that mean nothing on this machine."""


@dataclass(frozen=True, kw_only=True)
class _Volume:
    """A volume: a directory, files of the pod's own, or neither for an empty one."""

    host: Path | None = None
    files: Mapping[str, str] | None = None


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
        volume.name: _volume(volume, f"{path}.volumes[{number}]", images.supplies)
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
    container: Container, volumes: dict[str, _Volume], images: Images, ignored: list[str]
) -> ContainerPlan:
    path = container.path
    fields = _sort_fields(container.fields, HONORED_CONTAINER, NO_MEANING_CONTAINER, path)
    ignored += [f"containers.{field}" for field in fields]
    image = images.find(container.image)
    if not container.command:
        hint = f"there is no image here to ask; give its ENTRYPOINT: --entrypoint {container.image}='COMMAND'"
        raise _refuse(
            f"{path}.command", f"a command, or the entrypoint of image {container.image}", hint
        )
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
        files={
            mount.volume: files
            for mount in container.mounts
            if (files := volumes[mount.volume].files) is not None
        },
        supplied=_all_keys(container, images.supplies),
        values={
            variable.name: value
            for number, variable in enumerate(container.variables)
            if variable.source
            and (value := _value(variable, f"{path}.env[{number}].valueFrom", images.supplies))
            is not None
        },
    )


def _sort_fields(
    fields: frozenset[str], honored: set[str], no_meaning: set[str], path: str
) -> list[str]:
    for name in sorted(fields - honored - no_meaning):
        hint = "remove it, or run the job on a cluster"
        raise _refuse(f"{path}.{name}", f"a field that this machine can honor, not {name}", hint)
    return sorted(fields & no_meaning)


def _volume(volume: Volume, path: str, supplies: Supplies) -> _Volume:
    """Return the directory or the files of a volume.

    Raises:
        InvalidInput: It is not on this machine, and no option names a directory for it.
    """
    claim = volume.claim
    for name in (volume.name, claim):
        if name and name in supplies.volume:
            return _Volume(host=supplies.directory(name, path))
    if "emptyDir" in volume.sources:
        return _Volume()
    for source, kind in (("secret", "secret"), ("configMap", "config_map")):
        if source in volume.sources:
            return _Volume(
                files=_files(kind, volume.manifest[source], f"{path}.{source}", supplies)
            )
    if volume.host_path:
        host = Path(volume.host_path)
        if not host.exists():
            hint = f"create it, correct the path, or name another: --volume {volume.name}=DIR"
            raise _refuse(f"{path}.hostPath.path", f"a path that exists, not {host}", hint)
        return _Volume(host=host)
    where = f"{path}.{volume.sources[0]}" if volume.sources else path
    return _Volume(host=supplies.directory(claim or volume.name, where))


def _files(kind: str, source: Any, path: str, supplies: Supplies) -> Mapping[str, str]:
    """Return the files of a Secret's or ConfigMap's volume by their path in it."""
    volume = mapping(source)
    name = text(volume.get("secretName") or volume.get("name"))
    values = supplies.files(kind, name, field=path, optional=volume.get("optional"))
    if not volume.get("items"):
        return values
    files = {}
    for number, item in enumerate(objects(volume["items"])):
        where, key = f"{path}.items[{number}]", text(item.get("key"))
        value = supplies.value(kind, name, key, field=where, optional=volume.get("optional"))
        target = PurePosixPath(text(item.get("path")))
        if target.is_absolute() or ".." in target.parts:
            raise _refuse(f"{where}.path", f"a path inside the volume, not {target}", None)
        if value is not None:
            files[str(target)] = value
    return files


def _all_keys(container: Container, supplies: Supplies) -> dict[str, str]:
    """Return the variables of envFrom; as on a cluster, the last one of a name counts."""
    variables: dict[str, str] = {}
    for number, entry in enumerate(container.env_from):
        path = f"{container.path}.envFrom[{number}]"
        for source, kind in (("secretRef", "secret"), ("configMapRef", "config_map")):
            if reference := mapping(entry.get(source)):
                name, optional = text(reference.get("name")), reference.get("optional")
                where = f"{path}.{source}"
                if supplies.is_environment(kind, name):
                    hint = f"name its keys: --{kind.replace('_', '-')} {name}=FILE"
                    raise _refuse(where, f"the keys of {name}, not all of the environment", hint)
                values = supplies.values(kind, name, field=where, optional=optional)
                variables |= {
                    f"{text(entry.get('prefix'))}{key}": value for key, value in values.items()
                }
    return variables


def _plan_mount(
    mount: Mount, path: str, volumes: dict[str, _Volume], container: Container
) -> tuple[str, str, Path | None]:
    where = mount.path
    if mount.volume not in volumes:
        raise _refuse(f"{path}.name", f"the name of a volume, not {mount.volume!r}", None)
    if mount.fields & {"subPathExpr", "mountPropagation"}:
        raise _refuse(path, "a mount without subPathExpr and mountPropagation", None)
    volume = volumes[mount.volume]
    host = volume.host and volume.host / mount.sub_path
    # Nothing can be mounted without root: a path is honored by writing the local one where the
    # manifest names it.
    words = [
        *container.words,
        container.working_dir,
        *(variable.value for variable in container.variables),
    ]
    same = (host is not None and str(host) == where) or (
        host is None and volume.files is None and where in ("/dev/shm", "/tmp")
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


def _value(variable: Variable, path: str, supplies: Supplies) -> str | None:
    """Return the value of a variable that a Secret or ConfigMap has, or podium's own environment;
    None for the downward API's, and where it is optional and not there.

    Raises:
        InvalidInput: It comes from elsewhere, or is not there.
    """
    source, reference = next(iter(variable.source.items()))
    if source == "fieldRef" and isinstance(reference, dict):
        return None
    kind = {"secretKeyRef": "secret", "configMapKeyRef": "config_map"}.get(source)
    if kind is None or not isinstance(reference, dict):
        rule = f"a fieldRef, secretKeyRef or configMapKeyRef, not {source}"
        raise _refuse(path, rule, "give the value itself")
    name, key = text(reference.get("name")), text(reference.get("key"))
    if name not in getattr(supplies, kind) and variable.name in os.environ:
        return os.environ[variable.name]
    optional = reference.get("optional")
    return supplies.value(
        kind, name, key, field=f"{path}.{source}", variable=variable.name, optional=optional
    )


def _check_program(plan: ContainerPlan) -> None:
    """Refuse what would only fail with "not found": the program, or the script given to Python or
    torchrun.

    torchrun would wait for its other replicas first and be restarted after each failure, forever
    without a limit.
    """
    program, script = plan.argv[0], script_of(plan.argv)
    here, path = plan.working_dir or plan.image.workdir, f"{plan.path}.command"
    hint = (
        "start podium where it lies; with podium run, job run and experiment run "
        f"--image-dir {plan.image.name}=DIR maps the image to a directory that has it"
    )
    if _may_appear(program, plan):
        exists = True
    elif "/" in program and not program.startswith("/"):
        exists = (here / program).exists()
    else:
        places = plan.image.search_path(os.environ.get("PATH", ""))
        exists = shutil.which(plan.image.resolve(program), path=places) is not None
    if not exists:
        raise _refuse(path, f"a program of the local environment, not {program}", hint)
    if script is not None and not _may_appear(script, plan):
        file = Path(plan.image.resolve(script))
        if not (file.exists() if file.is_absolute() else (here / script).exists()):
            raise _refuse(path, f"a script of the local environment, not {script}", hint)
        if plan.image.root is None and all(each.name != "PYTHONPATH" for each in plan.env):
            check_imports(file if file.is_absolute() else here / script, plan.argv)


def _may_appear(word: str, plan: ContainerPlan) -> bool:
    # A file may be in a volume, or its name is known only when the pod starts.
    if not word.startswith("/"):
        return "$(" in word or bool(plan.mounts)
    return "$(" in word or any(
        word == where or word.startswith(f"{where}/") for where, _, _ in plan.mounts
    )


def _refuse(path: str, rule: str, hint: str | None) -> InvalidInput:
    return InvalidInput(f"{path}: this machine needs {rule}", hint)
