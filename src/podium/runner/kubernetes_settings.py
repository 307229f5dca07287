"""Settings of kfp-kubernetes on a task: each is served on this machine, has no meaning here, or is
refused before the first step."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.cluster.local.environment import PodIdentity
from podium.cluster.local.supplies import Supplies
from podium.errors import InvalidInput
from podium.manifests.workload import Pod

_SETTERS = {
    "secretAsEnv": "use_secret_as_env",
    "secretAsVolume": "use_secret_as_volume",
    "configMapAsEnv": "use_config_map_as_env",
    "configMapAsVolume": "use_config_map_as_volume",
    "pvcMount": "mount_pvc",
    "fieldPathAsEnv": "use_field_path_as_env",
    "emptyDirMounts": "empty_dir_mount",
    "genericEphemeralVolume": "add_ephemeral_volume",
}
_NO_MEANING = {
    "nodeSelector", "nodeAffinity", "podAffinity", "tolerations", "podMetadata", "imagePullSecret",
    "imagePullPolicy", "enabledSharedMemory", "securityContext",
}  # fmt: skip
"""Where and how a pod runs."""

MOUNTS = ("secretAsVolume", "configMapAsVolume", "pvcMount")
"""Settings that mount what is there already."""

NameOf = Callable[[Mapping[str, Any], str], str | None]
"""Returns the name that an entry of the settings has for a Secret, ConfigMap or claim; None where
an earlier step gives it."""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Gives the steps of a run what their settings ask for."""

    supplies: Supplies
    folder: Path
    """Directory of the run, where volumes that it creates are."""

    def volume(self, name: str) -> Path:
        """Return where a volume lies that the run created."""
        return self.folder / "volumes" / name

    def check(
        self, settings: Mapping[str, Any], step: str, name_of: NameOf, made: set[str]
    ) -> None:
        """Refuse settings that cannot be served.

        Args:
            made: Names of the claims that the pipeline creates.

        Raises:
            InvalidInput: The message names step and setting.
        """
        for kind in settings:
            if kind not in _SETTERS and kind not in _NO_MEANING and kind != "activeDeadlineSeconds":
                raise InvalidInput(
                    f"step {step}: this machine cannot serve the setting {kind}", "leave it out"
                )
        for kind, entry, where in _entries(settings, step):
            name = name_of(entry, kind)
            if name is None:
                continue
            if kind == "pvcMount":
                if name not in made:
                    self.supplies.directory(name, where)
            elif kind == "fieldPathAsEnv":
                _pod(step, settings).value_of(entry["fieldPath"], where)
            elif store := _store(kind):
                optional = entry.get("optional", False)
                self.supplies.values(store, name, field=where, optional=optional)
                self._variables(store, name, entry, where)

    def mounts(self, settings: Mapping[str, Any], step: str, name_of: NameOf) -> dict[str, Path]:
        """Return the local directory of each mount path that the settings ask for, which is made.

        Raises:
            InvalidInput: It is not there.
        """
        directories: dict[str, Path] = {}
        for kind, entry, where in _entries(settings, step):
            name, store = name_of(entry, kind) or "", _store(kind)
            if kind.endswith("AsEnv"):
                continue
            if store:
                into = self.folder / "mounted" / step / name
                optional = entry.get("optional", False)
                directories[entry["mountPath"]] = self.supplies.folder(
                    store, name, into, field=where, optional=optional
                )
            else:
                directories[entry["mountPath"]] = self._directory(kind, entry, name, step, where)
        return directories

    def variables(self, settings: Mapping[str, Any], step: str, name_of: NameOf) -> dict[str, str]:
        """Return the variables that the settings ask for.

        Raises:
            InvalidInput: One is not there.
        """
        environment: dict[str, str] = {}
        for kind, entry, where in _entries(settings, step):
            if kind == "fieldPathAsEnv":
                environment[entry["name"]] = _pod(step, settings).value_of(
                    entry["fieldPath"], where
                )
            elif kind.endswith("AsEnv"):
                name = name_of(entry, kind) or ""
                environment |= self._variables(_store(kind), name, entry, where)
        return environment

    def _variables(
        self, store: str, name: str, entry: Mapping[str, Any], where: str
    ) -> dict[str, str]:
        found = {}
        for pair in entry.get("keyToEnv", ()):
            key, variable = pair.get("secretKey") or pair.get("configMapKey") or "", pair["envVar"]
            how = {"field": where, "variable": variable, "optional": entry.get("optional", False)}
            found[variable] = self.supplies.value(store, name, key, **how)
        return {variable: value for variable, value in found.items() if value is not None}

    def _directory(
        self, kind: str, entry: Mapping[str, Any], name: str, step: str, where: str
    ) -> Path:
        if kind == "pvcMount":
            made = name not in self.supplies.volume and self.volume(name).is_dir()
            place = self.volume(name) if made else self.supplies.directory(name, where)
            place = place / entry.get("subPath", "")
        else:
            place = self.folder / "mounted" / step / entry["volumeName"]
            shutil.rmtree(place, ignore_errors=True)  # each try is a pod of its own
        place.mkdir(parents=True, exist_ok=True)
        return place


def _entries(
    settings: Mapping[str, Any], step: str
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    for kind, setter in _SETTERS.items():
        for entry in settings.get(kind, ()):
            yield kind, entry, f"step {step}, {setter}"


def _store(kind: str) -> str:
    if kind.startswith("secret"):
        return "secret"
    return "config_map" if kind.startswith("configMap") else ""


def _pod(step: str, settings: Mapping[str, Any]) -> PodIdentity:
    own = Pod(manifest={"metadata": settings.get("podMetadata", {})}, path=step)
    return PodIdentity(
        name=step, namespace="default", uid=step, labels=own.labels, annotations=own.annotations
    )
