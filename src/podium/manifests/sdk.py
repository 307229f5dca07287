"""Objects of Kubeflow's Python SDKs as manifests, and back.

The SDKs are the extra ``sdk``: kubeflow-katib (`KatibClient`) and kubeflow-training
(`TrainingClient`).

    manifest = from_sdk(KatibClient().get_experiment("sweep"))
    TrainingClient().create_job(to_sdk(manifest))
"""

import importlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from podium.errors import InvalidInput, PodiumError
from podium.manifests.conditions import Manifest

_MODELS = {
    ("kubeflow.org/v1beta1", "Experiment"): ("kubeflow.katib", "V1beta1Experiment"),
    ("kubeflow.org/v1beta1", "Trial"): ("kubeflow.katib", "V1beta1Trial"),
    ("kubeflow.org/v1", "PyTorchJob"): ("kubeflow.training", "KubeflowOrgV1PyTorchJob"),
}


def from_sdk(obj: Any) -> Manifest:
    """Return the manifest of an SDK object.

    Args:
        obj: A `V1beta1Experiment`, a `V1beta1Trial`, a `KubeflowOrgV1PyTorchJob` or any other model
            of the SDKs. The trial template of an Experiment may hold an SDK object too.

    Returns:
        A dict as in YAML, without the fields that are None.
    """
    from kubernetes.client import ApiClient

    if "kind" not in getattr(obj, "openapi_types", ()):
        name = type(obj).__name__
        raise InvalidInput(
            f"{name} is not an SDK object with a kind", "pass a V1beta1Experiment, for example"
        )
    manifest: Manifest = ApiClient().sanitize_for_serialization(obj)
    return manifest


def to_sdk(manifest: Manifest) -> Any:
    """Return the SDK object of an Experiment, a Trial or a PyTorchJob.

    Args:
        manifest: A dict as in YAML.

    Returns:
        A `V1beta1Experiment`, `V1beta1Trial` or `KubeflowOrgV1PyTorchJob`.

    Raises:
        InvalidInput: The object is of another kind, or has fields that this version of the SDK
            would drop.
        PodiumError: The SDK is not installed.
    """
    version, kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
    if (version, kind) not in _MODELS:
        models = ", ".join(f"{name} ({version})" for version, name in _MODELS)
        raise InvalidInput(f"the SDKs have no model for {kind} ({version})", f"they have {models}")
    package, model = _MODELS[version, kind]
    try:
        sdk, api = (
            importlib.import_module(package),
            importlib.import_module(f"{package}.api_client"),
        )
    except ModuleNotFoundError as error:
        distribution = package.replace(".", "-")
        hint = f"pip install --no-deps {distribution}; `make install` brings it along"
        raise PodiumError(f"{model} needs the package {error.name}", hint) from error
    obj = api.ApiClient().deserialize(
        SimpleNamespace(data=json.dumps(manifest)), getattr(sdk, model)
    )
    if dropped := list(_dropped(manifest, from_sdk(obj))):
        hint = "remove them, or create the object from the manifest itself"
        raise InvalidInput(f"{model} would drop {', '.join(dropped)}", hint)
    return obj


def _dropped(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            here = f"{path}.{key}".lstrip(".")
            if value is not None and key not in after:
                yield here
            else:
                yield from _dropped(value, after.get(key), here)
    elif isinstance(before, list) and isinstance(after, list):
        for number, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from _dropped(left, right, f"{path}[{number}]")
