"""What of a pod template this machine can do: honour a field, name it in a notice, or refuse it. Never drop it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.cluster.base import Manifest
from podium.cluster.local.images import Image, Images, find_image
from podium.cluster.local.podfields import HONOURED_CONTAINER, HONOURED_POD, NO_MEANING_CONTAINER, NO_MEANING_POD
from podium.cluster.local.scripts import script_of
from podium.errors import InvalidInput

MAX_GRACE = 30
"""Seconds at most between SIGTERM and SIGKILL, whatever terminationGracePeriodSeconds says."""


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """One container as it will run here."""

    name: str
    """Its name in the template."""

    path: str
    """Where it stands in the manifest, for messages."""

    image: Image
    """Its local environment."""

    argv: tuple[str, ...]
    """Command and args, $(VAR) not yet expanded."""

    env: tuple[tuple[str, Any], ...]
    """Pairs of name and value, or the valueFrom object."""

    working_dir: Path | None
    """workingDir as it is called here; None is a directory of its own."""

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


def plan_pod(template: Manifest, path: str, images: Images) -> PodPlan:
    """Read an admitted pod template.

    Args:
        template: With metadata and spec.
        path: Where it stands in the manifest, for messages.
        images: What stands for images.

    Raises:
        InvalidInput: A field would change the result and cannot be honoured here.
    """
    spec, inside = template["spec"], f"{path}.spec"
    ignored = _sort_fields(spec, HONOURED_POD, NO_MEANING_POD, inside)
    containers, init = spec["containers"], spec.get("initContainers") or []
    if len(containers) > 1:
        names = ", ".join(one["name"] for one in containers[1:])
        raise _refuse(
            f"{inside}.containers[1]", f"one container a pod, but there is also {names}", "remove the sidecar"
        )
    volumes = {
        one["name"]: _read_volume(one, f"{inside}.volumes[{at}]") for at, one in enumerate(spec.get("volumes") or [])
    }
    plans = [_plan(one, f"{inside}.initContainers[{at}]", volumes, images, ignored) for at, one in enumerate(init)]
    main = _plan(containers[0], f"{inside}.containers[0]", volumes, images, ignored)
    grace = spec.get("terminationGracePeriodSeconds")
    return PodPlan(
        init=tuple(plans),
        main=main,
        grace=min(MAX_GRACE if grace is None else grace, MAX_GRACE),
        ignored=tuple(dict.fromkeys(ignored)),
    )


def _plan(
    container: Manifest, path: str, volumes: dict[str, Path | None], images: Images, ignored: list[str]
) -> ContainerPlan:
    ignored += [f"containers.{one}" for one in _sort_fields(container, HONOURED_CONTAINER, NO_MEANING_CONTAINER, path)]
    image = find_image(container["image"], images)
    argv = (*(container.get("command") or ()), *(container.get("args") or ()))
    if not container.get("command"):
        hint = "write the image's entrypoint as command: there is no image here to ask"
        raise _refuse(f"{path}.command", f"a command for image {container['image']}", hint)
    env = tuple((one["name"], one.get("valueFrom") or one.get("value") or "") for one in container.get("env") or ())
    for at, (_, value) in enumerate(env):
        if isinstance(value, dict):
            _check_source(value, f"{path}.env[{at}].valueFrom")
    mounts = []
    for at, mount in enumerate(container.get("volumeMounts") or ()):
        mounts.append(_read_mount(mount, f"{path}.volumeMounts[{at}]", volumes, container))
    plan = ContainerPlan(
        name=container["name"],
        path=path,
        image=image,
        argv=argv,
        env=env,
        working_dir=_working_dir(container.get("workingDir"), f"{path}.workingDir", image),
        mounts=tuple(mounts),
    )
    if "initContainers" not in path:
        _check_program(plan)
    return plan


def _sort_fields(found: Manifest, honoured: set[str], no_meaning: set[str], path: str) -> list[str]:
    given = {name for name, value in found.items() if value not in (None, [], {}, "", False)}
    for name in sorted(given - honoured - no_meaning):
        hint = "remove it, or run the job on a cluster"
        raise _refuse(f"{path}.{name}", f"a field that this machine can honour, not {name}", hint)
    return sorted(given & no_meaning)


def _read_volume(volume: Manifest, path: str) -> Path | None:
    if "emptyDir" in volume:
        return None
    if isinstance(volume.get("hostPath"), dict) and isinstance(volume["hostPath"].get("path"), str):
        host = Path(volume["hostPath"]["path"])
        if not host.exists():
            raise _refuse(f"{path}.hostPath.path", f"a path that exists, not {host}", "create it, or correct the path")
        return host
    kinds = ", ".join(key for key in volume if key != "name") or "no source"
    raise _refuse(
        path, f"a volume that is an emptyDir or a hostPath, not {kinds}", "pass data by URI, credentials by environment"
    )


def _read_mount(
    mount: Manifest, path: str, volumes: dict[str, Path | None], container: Manifest
) -> tuple[str, str, Path | None]:
    name, where = mount.get("name") or "", (mount.get("mountPath") or "").rstrip("/")
    if name not in volumes:
        raise _refuse(f"{path}.name", f"the name of a volume, not {name!r}", None)
    if mount.get("subPathExpr") or mount.get("mountPropagation"):
        raise _refuse(path, "a mount without subPathExpr and mountPropagation", None)
    sub = (mount.get("subPath") or "").strip("/")
    host = volumes[name]
    host = host and host / sub
    # Nothing can be mounted without root: a path is honoured by writing the local one where the manifest names it.
    text = [*container.get("command", []), *(container.get("args") or []), container.get("workingDir") or ""]
    text += [str(one.get("value", "")) for one in container.get("env") or []]
    same = (host is not None and str(host) == where) or (host is None and where in ("/dev/shm", "/tmp"))
    if not same and not any(where in one for one in text):
        hint = f"pass {where} to the program as an argument: nothing can be mounted here, but arguments are translated"
        raise _refuse(f"{path}.mountPath", f"a path that command, args or env name, not {where}", hint)
    return where, f"{name}/{sub}" if sub else name, Path(where) if same else host


def _working_dir(given: str | None, path: str, image: Image) -> Path | None:
    if not given or (image.root and given == "/"):
        return None
    here = Path(image.resolve(given))
    if not (here.is_absolute() and here.is_dir()):
        hint = f"map the image to a directory that has it: --image-dir {image.name}=DIR"
        raise _refuse(path, f"a directory of the local environment, not {given}", hint)
    return here


def _check_source(source: Manifest, path: str) -> None:
    kind = next(iter(source), None)
    reference = source.get(str(kind))
    if kind == "fieldRef" and isinstance(reference, dict):
        return
    if kind in ("secretKeyRef", "configMapKeyRef") and isinstance(reference, dict):
        return
    raise _refuse(path, f"a fieldRef, secretKeyRef or configMapKeyRef, not {kind}", "give the value itself")


def _check_program(plan: ContainerPlan) -> None:
    """Refuse what would only fail with "not found": the program, or the script given to Python or torchrun.

    torchrun would wait for its other replicas first and be restarted after each failure, for ever without a limit.
    """
    program, script = plan.argv[0], script_of(plan.argv)
    here, path = plan.working_dir or plan.image.workdir, f"{plan.path}.command"
    hint = f"map the image to a directory that has it: --image-dir {plan.image.name}=DIR"
    if _may_appear(program, plan):
        found = True
    elif "/" in program and not program.startswith("/"):
        found = (here / program).exists()
    else:
        found = plan.image.find_program(program, os.environ.get("PATH", "")) is not None
    if not found:
        raise _refuse(path, f"a program of the local environment, not {program}", hint)
    if script is not None and not _may_appear(script, plan):
        place = Path(plan.image.resolve(script))
        if not (place.exists() if place.is_absolute() else (here / script).exists()):
            raise _refuse(path, f"a script of the local environment, not {script}", hint)


def _may_appear(word: str, plan: ContainerPlan) -> bool:
    """Return whether a file of this name may come with a volume, or its name is known only when the pod starts."""
    if not word.startswith("/"):
        return "$(" in word or bool(plan.mounts)
    return "$(" in word or any(word == where or word.startswith(f"{where}/") for where, _, _ in plan.mounts)


def _refuse(path: str, law: str, hint: str | None) -> InvalidInput:
    return InvalidInput(f"{path}: this machine needs {law}", hint)
