"""Pipelines and their versions: a new version only when the content changed."""

import json
import re
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from podium.documents import load_yaml
from podium.errors import Conflict, NotFound, require, suggestion
from podium.kfp.client import Server
from podium.kfp.parameters import Parameter
from podium.kfp.values import PIPELINES, with_experiment_text

TYPES: dict[str, type] = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": bool,
    "STRING": str,
    "STRUCT": dict,
    "LIST": list,
}


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a pipeline on the server."""

    pipeline: str
    """Name of the pipeline."""

    pipeline_id: str
    """The server's id of it."""

    name: str
    """Name of the version."""

    id: str
    """The server's id of it."""

    created: str
    """When, as the server says; whole seconds."""

    digest: str
    """Of the content: equal content, equal digest."""

    spec: dict[str, Any]
    """The pipeline spec, or ``{pipeline_spec, platform_spec}``."""

    new: bool = False
    """Whether this upload made it."""

    @property
    def ours(self) -> bool:
        """Whether podium compiled it: another pipeline may mean anything by a parameter's name."""
        return self.spec.get("pipeline_spec", self.spec)["pipelineInfo"].get("name") in PIPELINES

    def parameters(self) -> list[Parameter]:
        """Return the parameters the pipeline takes."""
        spec = self.spec.get("pipeline_spec", self.spec)
        inputs = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        return [
            Parameter(
                name=name,
                type=TYPES.get(one["parameterType"], str),
                default=one.get("defaultValue"),
                description=one.get("description", ""),
            )
            for name, one in inputs.items()
        ]


def read_spec(text: str) -> dict[str, Any]:
    """Parse compiled YAML into what the server will show of it.

    Raises:
        InvalidInput: It is no compiled KFP v2 pipeline.
    """
    hint = "make one with `podium compile`"
    documents = [one for one in load_yaml(text, "the compiled pipeline") if one]
    fits = bool(documents) and all(isinstance(one, dict) for one in documents) and "pipelineInfo" in documents[0]
    require(fits, "the file is a compiled KFP v2 pipeline", hint, documents=len(documents))
    if len(documents) == 1:
        return dict(documents[0])
    return {"pipeline_spec": documents[0], "platform_spec": documents[1]}


def digest_of(spec: Any) -> str:
    """Hash a spec by its meaning: the server stores other bytes than were sent, and 1.0 comes back as 1 (observed)."""
    return sha256(json.dumps(_whole(spec), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _whole(value: Any) -> Any:
    """Return the value with every whole float as an int."""
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def find_pipeline(server: Server, name: str) -> str | None:
    """Return a pipeline's id by its name, or None."""
    wanted = json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
    found = server.pages(
        f"look for pipeline {name}",
        server.client.list_pipelines,
        "pipelines",
        namespace=server.namespace,
        filter=wanted,
    )
    return next((str(one.pipeline_id) for one in found if one.display_name == name), None)


def versions_of(server: Server, pipeline: str) -> list[Version]:
    """Return a pipeline's versions, newest first.

    Raises:
        NotFound: There is no such pipeline; the hint names those there are.
    """
    for name in (pipeline, pipeline.replace("_", "-")):
        pipeline_id = find_pipeline(server, name)
        if pipeline_id:
            return _versions(server, name, pipeline_id)
    listed = server.pages("list pipelines", server.client.list_pipelines, "pipelines", namespace=server.namespace)
    names = [str(one.display_name) for one in listed]
    hint = suggestion(pipeline, names) if names else "upload it first: podium upload"
    raise NotFound(f"the server has no pipeline {pipeline!r}", hint)


def _versions(server: Server, pipeline: str, pipeline_id: str) -> list[Version]:
    listed = server.pages(
        f"list versions of {pipeline}",
        server.client.list_pipeline_versions,
        "pipeline_versions",
        pipeline_id=pipeline_id,
    )
    found = [_version(pipeline, pipeline_id, one) for one in listed]
    # Two uploads within a second have the same time: the number in the name decides.
    return sorted(found, key=lambda one: (one.created, _number(one.name)), reverse=True)


def _version(pipeline: str, pipeline_id: str, one: Any, *, new: bool = False) -> Version:
    return Version(
        pipeline=pipeline,
        pipeline_id=pipeline_id,
        name=str(one.display_name),
        id=str(one.pipeline_version_id),
        created=one.created_at.isoformat() if one.created_at else "",
        digest=digest_of(one.pipeline_spec),
        spec=dict(one.pipeline_spec or {}),
        new=new,
    )


def _number(name: str) -> int:
    found = re.match(r"v(\d+)-", name)
    return int(found[1]) if found else 0


def choose(server: Server, pipeline: str, version: str | None) -> Version:
    """Return a version by its name, the newest one if None.

    Raises:
        NotFound: There is no such pipeline or version.
    """
    found = versions_of(server, pipeline)
    names = [one.name for one in found]
    if not found or (version is not None and version not in names):
        what = f"no version {version!r}" if version else "no version"
        raise NotFound(f"pipeline {pipeline} has {what}", suggestion(version or "", names) if names else None)
    return found[0] if version is None else found[names.index(version)]


def upload(server: Server, text: str, name: str | None = None, description: str = "") -> Version:
    """Upload compiled YAML as a version, unless the newest version has the same content.

    Args:
        server: The server.
        text: The compiled pipeline, one or two YAML documents.
        name: Name of the pipeline; the compiled one's if None.
        description: Shown in the UI with a new version.

    Returns:
        The version, with new=False if it was there already.

    Raises:
        InvalidInput: The text is no compiled pipeline, or the server refuses it.
    """
    spec = read_spec(text)
    pipeline = name or str(spec.get("pipeline_spec", spec)["pipelineInfo"]["name"])
    _check_defaults(spec)
    pipeline_id = find_pipeline(server, pipeline) or _make(server, pipeline)
    present = _versions(server, pipeline, pipeline_id)
    digest = digest_of(spec)
    if present and present[0].digest == digest:
        return present[0]
    version = f"v{max((_number(one.name) for one in present), default=0) + 1}-{digest[:8]}"
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "pipeline.yaml")
        file.write_text(text)
        try:
            made = server.call(
                f"upload {pipeline} {version}",
                server.client.upload_pipeline_version,
                pipeline_package_path=str(file),
                pipeline_version_name=version,
                pipeline_id=pipeline_id,
                description=description,
            )
        except Conflict:  # somebody uploaded the same content in this moment
            return choose(server, pipeline, version)
    return _version(pipeline, pipeline_id, made, new=True)


def _check_defaults(spec: dict[str, Any]) -> None:
    """Refuse a file's path as the default of our pipeline's Experiment: no step's pod has the file."""
    parameters = spec.get("pipeline_spec", spec).get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    values = {name: one.get("defaultValue") for name, one in parameters.items()}
    if spec.get("pipeline_spec", spec)["pipelineInfo"].get("name") in PIPELINES:
        hint = "compile it again: podium compile puts the text of the file into the pipeline"
        carried = with_experiment_text(values) == values
        require(carried, "experiment is a bundled name or text", hint, experiment=values.get("experiment"))


def _make(server: Server, pipeline: str) -> str:
    from kfp_server_api import V2beta1Pipeline

    body = V2beta1Pipeline(display_name=pipeline, name=pipeline, namespace=server.namespace)
    api = server.client.pipelines
    try:
        made = server.call(f"create pipeline {pipeline}", api.pipeline_service_create_pipeline, pipeline=body)
    except Conflict:
        return str(find_pipeline(server, pipeline))
    return str(made.pipeline_id)
