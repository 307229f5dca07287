"""A version in Kubeflow's Model Registry (Hub), registered by the URI of its files: no bytes are
copied."""

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from podium.display.text import figure, one_line
from podium.errors import Failed, InvalidInput
from podium.models.signature import require_trusted
from podium.models.version import Version
from podium.prediction.command import ONNX
from podium.system.machine import user_name

if TYPE_CHECKING:
    from kubeflow.hub import ModelRegistryClient

_CHAMPION = "champion"
"""Property of the hub's model: podium's champion at the last export."""

_SERVICE = "--namespace kubeflow svc/model-registry-service"
"""Where Kubeflow's manifests put a hub."""


def check_address(uri: str) -> None:
    """Refuse an address that cannot be a hub's.

    Raises:
        InvalidInput: It is not ``http://host:port`` or ``https://host``, or the hub's client is not
            installed.
    """
    try:
        parts = urlsplit(uri)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits or {"@", "#", " "} & set(uri) or parts.path.strip("/") or parts.query:
        shown = uri.rpartition("@")[2]  # without a password
        hint = "--hub http://model-registry-service.kubeflow:8080; --token-file logs in"
        raise InvalidInput(f"not the address of a model registry server: {shown!r}", hint)
    if any(find_spec(module) is None for module in ("model_registry", "kubeflow", "kubeflow.hub")):
        raise InvalidInput(
            f"--hub {uri} needs the client of the model registry", "pip install 'podium-ml[hub]'"
        )


@dataclass(frozen=True, kw_only=True)
class _Entry:
    uri: str

    form: str | None
    """The format as runtimes of KServe call it, where they know it."""

    form_version: str | None
    description: str | None
    properties: Mapping[str, str | float]

    @classmethod
    def of(cls, version: Version) -> "_Entry":
        """Describe a version; only what its registry knows."""
        form, form_version = _format(version)
        value, data = version.facts.value, version.facts.dataset.name
        described = (
            f"{version.facts.metric.name} {figure(value)} on " if value is not None else None
        )
        return cls(
            uri=version.storage.join(version.prefix),
            form=form,
            form_version=form_version,
            description=described
            and described + (f"the test part of {data}" if data else "its test part"),
            properties=_properties(version),
        )


def _format(version: Version) -> tuple[str | None, str | None]:
    if ONNX in version.files:
        return "onnx", "1"
    if version.is_command:
        return "podium-command", None
    return (
        ("safetensors", None)
        if any(name.endswith(".safetensors") for name in version.files)
        else (None, None)
    )


def _properties(version: Version) -> dict[str, str | float]:
    facts, origin = version.facts, version.facts.origin
    figures = {name: float(value) for name, value in version.metrics.items()}
    trial = origin.name if origin.kind == "trial" else None
    told = {
        "run_id": facts.run_id,
        "experiment": origin.experiment,
        "trial": trial,
        "dataset": facts.dataset.name,
        "data_digest": facts.dataset.digest,
        "code_version": facts.code_version,
        "image": facts.image,
    }
    return {**figures, **{name: value for name, value in told.items() if value}}


def register(
    version: Version, uri: str, *, champion: str | None = None, token: str | None = None
) -> str:
    """Register a version in a hub, or bring what is there up to date; properties of others stay.

    Args:
        uri: Address of the server.
        champion: The model's champion, for the hub's model.
        token: Bearer token; None for that of the pod, or of the file that
            KF_PIPELINES_SA_TOKEN_PATH names.

    Returns:
        The id that the hub gave the version.

    Raises:
        InvalidInput: It is not an address of a hub, or its client is not installed.
        Untrusted: PODIUM_PUBLIC_KEY asks for a signature that it does not have.
        Failed: The hub does not do it.
    """
    check_address(uri)
    require_trusted(version)
    try:
        client = _client(uri, token)
        number = _registered(client, version)
        _point(client, version.name, champion)
    except Exception as error:  # of aiohttp, of its client's two layers, of pydantic
        reason, hint = _reason(error)
        raise Failed(f"{version.title} is not registered at {uri}: {reason}", hint) from error
    return number


def _client(uri: str, token: str | None) -> "ModelRegistryClient":
    from kubeflow.hub import ModelRegistryClient

    logging.getLogger(
        "model-registry"
    ).disabled = True  # it warns of every port that does not end in 80
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "User access token is missing")
        return ModelRegistryClient(uri.rstrip("/"), author=user_name(), user_token=token)


def _registered(client: "ModelRegistryClient", version: Version) -> str:
    from model_registry.exceptions import StoreError

    told = _Entry.of(version)
    name = version.name, version.version
    try:
        there = client.get_model_version(*name)
    except (ValueError, StoreError):  # no such version; no such model
        client.register_model(
            version.name,
            told.uri,
            version=version.version,
            version_description=told.description,
            metadata=told.properties,
            model_format_name=told.form,
            model_format_version=told.form_version,
        )
        return str(client.get_model_version(*name).id)
    there.description = told.description
    there.custom_properties = {**(there.custom_properties or {}), **told.properties}
    client.update_model_version(there)
    try:
        artifact = client.get_model_artifact(*name)
    except (
        ValueError
    ):  # an export ended between two requests, and no public method adds an artifact alone
        hub = client._registry
        form = {"model_format_name": told.form, "model_format_version": told.form_version}
        hub.async_runner(hub._register_model_artifact(there, version.name, told.uri, **form))
    else:
        artifact.uri, artifact.model_format_name, artifact.model_format_version = (
            told.uri,
            told.form,
            told.form_version,
        )
        client.update_model_artifact(artifact)
    return str(there.id)


def _point(client: "ModelRegistryClient", name: str, champion: str | None) -> None:
    """Name podium's champion in the hub's model, so that it has at most one."""
    model = client.get_model(name)
    properties = model.custom_properties or {}
    if properties.get(_CHAMPION, "") != (champion or ""):
        model.custom_properties = {**properties, _CHAMPION: champion or ""}
        client.update_model(model)


def _reason(error: Exception) -> tuple[str, str]:
    status = getattr(error, "status", None)  # of the server's answer
    if status in (401, 403) or "user token" in str(error):
        return (
            "it refuses the token" if status else "https needs a token"
        ), "--token-file FILE names one that it takes"
    if status == 404:
        return (
            f"it does not know the API that model-registry {installed('model-registry')} speaks",
            "pip install 'model-registry<0.3.15' speaks v1alpha3, pip install -U model-registry v1",
        )
    if status:
        answer = one_line(str(getattr(error, "body", None) or ""))
        return f"it answered {status} {answer}".rstrip(), f"kubectl logs {_SERVICE} shows why"
    reason = one_line(str(error)) or type(error).__name__
    return (
        reason,
        f"kubectl port-forward {_SERVICE} 8080:8080 makes http://127.0.0.1:8080 of a cluster's server",
    )
