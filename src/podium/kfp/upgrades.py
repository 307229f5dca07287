"""Versions that the schedules of a server run, compared with those this podium would compile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.kfp.client import Server
from podium.kfp.definition import Definition
from podium.kfp.schedules import Schedules
from podium.kfp.values import PIPELINES, own_name
from podium.kfp.versions import PipelineVersion, ServerPipelines


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A schedule and the version that it runs."""

    schedule: str
    pipeline: str
    version: str
    """Name of the version; empty if the server has it no more."""

    newest: str
    images: tuple[str, ...]
    ours: bool
    current: bool
    """Whether its steps are those of this podium; True for another pipeline, about which nothing is
    known."""

    newest_current: bool
    """Whether those of the newest version are."""

    @property
    def advice(self) -> str:
        """Suggested command; empty if nothing is to be done."""
        if self.version and self.current:
            return ""
        again = (
            f"podium upload {self.pipeline}"
            if self.pipeline in PIPELINES
            else "podium upload in its project"
        )
        applied = "podium schedule apply, with version: latest in its file"
        return applied if self.newest_current else f"{again}, then {applied}"

    @classmethod
    def on(cls, server: Server) -> "list[Pinned]":
        """Return each schedule of a server with the version that it runs; nothing is changed.

        Raises:
            PodiumError: The server does not answer.
        """
        pipelines = ServerPipelines(server)
        names, versions, found = pipelines.names(), dict[str, list[PipelineVersion]](), []
        for schedule in Schedules(server).all():
            pipeline = names.get(schedule["pipeline_id"], "")
            if pipeline and pipeline not in versions:
                versions[pipeline] = pipelines.versions(pipeline)
            uploaded = versions.get(pipeline, [])
            version = next((each for each in uploaded if each.id == schedule["version"]), None)
            newest = uploaded[0] if uploaded else None
            found.append(
                cls(
                    schedule=schedule["name"],
                    pipeline=pipeline,
                    version=version.name if version else "",
                    newest=newest.name if newest else "",
                    images=_images(version.spec) if version else (),
                    ours=bool(version and version.ours),
                    current=bool(version and _is_current(version)),
                    newest_current=bool(newest and _is_current(newest)),
                )
            )
        return found


def _is_current(version: PipelineVersion) -> bool:
    # The steps are compared, not their images and defaults.
    own = own_name(version.spec)
    return own is None or _steps(version.spec) == _steps(Definition.load(own).spec)


def _steps(spec: Mapping[str, Any]) -> dict[str, Any]:
    components = {
        name: {
            key: one.get("parameterType")
            for key, one in component.get("inputDefinitions", {}).get("parameters", {}).items()
        }
        for name, component in spec["components"].items()
    }
    executors = spec["deploymentSpec"]["executors"]
    return components | {name: _command(executor) for name, executor in executors.items()}


def _command(executor: Mapping[str, Any]) -> list[str]:
    container = executor.get("container", {})
    return [*container.get("command", []), *container.get("args", [])]


def _images(spec: Mapping[str, Any]) -> tuple[str, ...]:
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    return tuple(
        sorted(
            {
                executor["container"]["image"]
                for executor in executors.values()
                if "container" in executor
            }
        )
    )
