"""Pipelines and their versions on a server; equal content is not uploaded twice."""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from podium.code.bundle import Bundle
from podium.errors import Conflict, InvalidInput, NotFound, suggestion
from podium.files.documents import load_yaml, with_whole_numbers
from podium.kfp.client import Server, named
from podium.kfp.code import with_code
from podium.kfp.definition import Definition, reaching
from podium.kfp.parameters import Parameters
from podium.kfp.project import check_reachable
from podium.kfp.values import (
    PIPELINES,
    check_values,
    experiment_text,
    own_name,
    with_experiment_text,
)


@dataclass(frozen=True, kw_only=True)
class PipelineVersion:
    """A version of a pipeline on the server."""

    pipeline: str
    pipeline_id: str
    name: str
    id: str
    created: str
    """The server's creation time, in whole seconds."""

    digest: str
    spec: dict[str, Any]
    """The pipeline spec, without the platform spec that a server may have beside it."""

    new: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is one of podium's pipelines; another one may mean something else by a
        parameter's name."""
        return own_name(self.spec) is not None

    def parameters(self) -> Parameters:
        return Parameters.within(self.spec)

    def sendable(
        self, given: Mapping[str, Any], folder: Path = Path()
    ) -> tuple[dict[str, Any], dict[str, Bundle]]:
        """Check values of parameters, and return them as pods can read them.

        Args:
            given: Values by name, each of its parameter's type.
            folder: Folder that relative paths start from.

        Returns:
            The values, with Experiments as text and code as URIs, and the code for store_code.

        Raises:
            InvalidInput: A parameter without a default is missing, or a value breaks a rule of its
                pipeline.
        """
        parameters = self.parameters()
        parameters.require_all(given)
        values = parameters.with_defaults(
            with_experiment_text(given, folder, reaching(self.spec, "experiment"))
        )
        values, code = with_code(values, reaching(self.spec, "code") & given.keys(), folder)
        if self.ours:
            check_reachable(values)
            check_values(values)
        return {name: values[name] for name in given}, code

    def body(self, parameters: Mapping[str, Any], pipeline_root: str | None) -> dict[str, Any]:
        """Return the fields of a request that name the version and its parameters."""
        from kfp_server_api import V2beta1PipelineVersionReference, V2beta1RuntimeConfig

        reference = V2beta1PipelineVersionReference(
            pipeline_id=self.pipeline_id, pipeline_version_id=self.id
        )
        runtime = V2beta1RuntimeConfig(parameters=parameters, pipeline_root=pipeline_root)
        return {"pipeline_version_reference": reference, "runtime_config": runtime}

    def require_own(self, values: Mapping[str, Any]) -> None:
        """Refuse a version uploaded from a project under the name of one of podium's own pipelines.

        Args:
            values: Values of parameters; who names the model knows what is run.

        Raises:
            InvalidInput: A version of tune-and-promote or train-and-promote has another model as
                its default.
        """
        if self.pipeline not in PIPELINES or not self.ours or "model_name" in values:
            return
        usual = next(each.default for each in self._defaults() if each.name == "model_name")
        model = next(
            (each.default for each in self.parameters() if each.name == "model_name"), usual
        )
        if model != usual:
            text = f"{self.pipeline} is podium's own pipeline, but {self.name} was uploaded for another model, {model}"
            own = f"for podium's own: podium upload {self.pipeline.replace('-', '_')}"
            raise InvalidInput(
                text,
                f"--version {self.name} to run it (in a schedule, version: {self.name}), or {own}",
            )

    def changes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a run that are not podium's defaults, or of another pipeline not its
        own."""
        values = {each.name: each.default for each in self.parameters()} | dict(given)
        defaults = {each.name: each.default for each in self._defaults()}
        return {
            name: value
            for name, value in values.items()
            if name not in defaults or value != defaults[name]
        }

    def _defaults(self) -> Parameters:
        own = own_name(self.spec)
        return Definition.load(own).parameters if own else self.parameters()


def _pipeline_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    return dict(spec.get("pipeline_spec", spec))


def read_spec(text: str, name: str = "the compiled pipeline") -> dict[str, Any]:
    """Parse compiled YAML into the form in which the server returns it.

    Args:
        name: Name in an error.

    Raises:
        InvalidInput: It is not a compiled KFP v2 pipeline.
    """
    hint = "make one with `podium compile`"
    documents = [document for document in load_yaml(text, name) if document]
    mappings = all(isinstance(document, dict) for document in documents)
    if not documents or not mappings or "pipelineInfo" not in documents[0]:
        raise InvalidInput(f"{name} is not a compiled KFP v2 pipeline", hint)
    if len(documents) == 1:
        return dict(documents[0])
    return {"pipeline_spec": documents[0], "platform_spec": documents[1]}


def _digest_of(spec: Any) -> str:
    # The server reorders the bytes and returns 1 for 1.0 (observed).
    return sha256(
        json.dumps(with_whole_numbers(spec), sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def _version(
    pipeline: str, pipeline_id: str, version: Any, *, new: bool = False
) -> PipelineVersion:
    return PipelineVersion(
        pipeline=pipeline,
        pipeline_id=pipeline_id,
        name=str(version.display_name),
        id=str(version.pipeline_version_id),
        created=version.created_at.isoformat() if version.created_at else "",
        digest=_digest_of(version.pipeline_spec),
        spec=_pipeline_spec(version.pipeline_spec or {}),
        new=new,
    )


def _number(name: str) -> int:
    match = re.match(r"v(\d+)-", name)
    return int(match[1]) if match else 0


def _check_defaults(spec: Mapping[str, Any]) -> None:
    """Refuse a file's path as the default of our pipeline's Experiment: the step's pod does not
    have the file."""
    inputs = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    default = inputs.get("experiment", {}).get("defaultValue")
    if own_name(spec) and experiment_text(default) != default:
        raise InvalidInput(
            f"experiment is a file's path, {default!r}, which no pod has",
            "compile it again: podium compile puts the text of the file into the pipeline",
        )


class ServerPipelines:
    """The pipelines of a server, and their versions."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def names(self) -> dict[str, str]:
        """Return the names of the server's pipelines by id."""
        listed = self.server.pages(
            "list pipelines",
            self.server.pipelines.pipeline_service_list_pipelines,
            "pipelines",
            namespace=self.server.namespace,
        )
        return {str(pipeline.pipeline_id): str(pipeline.display_name) for pipeline in listed}

    def _find(self, name: str) -> str | None:
        pipelines = self.server.pages(
            f"look for pipeline {name}",
            self.server.pipelines.pipeline_service_list_pipelines,
            "pipelines",
            namespace=self.server.namespace,
            filter=named(name),
        )
        return next(
            (str(pipeline.pipeline_id) for pipeline in pipelines if pipeline.display_name == name),
            None,
        )

    def versions(self, pipeline: str) -> list[PipelineVersion]:
        """Return a pipeline's versions, newest first.

        Raises:
            NotFound: There is no such pipeline; the hint lists those that exist.
        """
        for name in (pipeline, pipeline.replace("_", "-")):
            pipeline_id = self._find(name)
            if pipeline_id:
                return self._versions(name, pipeline_id)
        names = list(self.names().values())
        hint = suggestion(pipeline, names) if names else "upload it first: podium upload"
        raise NotFound(f"the server has no pipeline {pipeline!r}", hint)

    def _versions(self, pipeline: str, pipeline_id: str) -> list[PipelineVersion]:
        listed = self.server.pages(
            f"list versions of {pipeline}",
            self.server.pipelines.pipeline_service_list_pipeline_versions,
            "pipeline_versions",
            pipeline_id=pipeline_id,
        )
        versions = [_version(pipeline, pipeline_id, version) for version in listed]
        # Two uploads within a second have the same time; the number in the name orders them.
        return sorted(
            versions, key=lambda version: (version.created, _number(version.name)), reverse=True
        )

    def choose(self, pipeline: str, version: str | None) -> PipelineVersion:
        """Return a version by its name; None is the newest version.

        Raises:
            NotFound: There is no such pipeline or version.
        """
        versions = self.versions(pipeline)
        names = [each.name for each in versions]
        if not versions or (version is not None and version not in names):
            missing = f"no version {version!r}" if version else "no version"
            raise NotFound(
                f"pipeline {pipeline} has {missing}",
                suggestion(version or "", names) if names else None,
            )
        return versions[0] if version is None else versions[names.index(version)]

    def upload(self, text: str, name: str | None = None) -> PipelineVersion:
        """Upload compiled YAML as a version, unless the newest version has the same content.

        Args:
            text: The compiled pipeline, one or two YAML documents.
            name: Name of the pipeline; the compiled one's if None.

        Returns:
            The version, with new=False if it existed before.

        Raises:
            InvalidInput: The text is not a compiled pipeline, or the server refuses it.
        """
        spec = read_spec(text)
        pipeline = name or str(_pipeline_spec(spec)["pipelineInfo"]["name"])
        _check_defaults(_pipeline_spec(spec))
        pipeline_id = self._find(pipeline) or self._make(pipeline)
        present = self._versions(pipeline, pipeline_id)
        digest = _digest_of(spec)
        if present and present[0].digest == digest:
            return present[0]
        version = (
            f"v{max((_number(earlier.name) for earlier in present), default=0) + 1}-{digest[:8]}"
        )
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "pipeline.yaml")
            file.write_text(text)
            try:
                made = self.server.call(
                    f"upload {pipeline} {version}",
                    self.server.uploads.upload_pipeline_version,
                    uploadfile=str(file),
                    name=version,
                    pipelineid=pipeline_id,
                )
            except Conflict:  # another process uploaded the same content at the same time
                return self.choose(pipeline, version)
        return _version(pipeline, pipeline_id, made, new=True)

    def _make(self, pipeline: str) -> str:
        from kfp_server_api import V2beta1Pipeline

        body = V2beta1Pipeline(
            display_name=pipeline, name=pipeline, namespace=self.server.namespace
        )
        create = self.server.pipelines.pipeline_service_create_pipeline
        try:
            made = self.server.call(f"create pipeline {pipeline}", create, pipeline=body)
        except Conflict:
            return str(self._find(pipeline))
        return str(made.pipeline_id)
