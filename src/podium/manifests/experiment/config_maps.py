"""Trial templates in ConfigMaps: the job is inserted where an Experiment without one has it."""

from collections.abc import Mapping, Sequence
from typing import Any

from podium.errors import InvalidInput
from podium.files.documents import load_yaml
from podium.manifests.fields import mapping, text
from podium.manifests.resource import Resource

Manifest = Mapping[str, Any]


def is_config_map(manifest: Any) -> bool:
    """Tell whether an object is a ConfigMap."""
    return isinstance(manifest, Mapping) and manifest.get("kind") == "ConfigMap"


def with_template(
    experiment: Manifest, config_maps: Sequence[Manifest], origin: str
) -> dict[str, Any]:
    """Return an Experiment with the trialSpec from its ConfigMap; unchanged if there is no such
    ConfigMap.

    Katib replaces placeholders in the text of the template, here it is read first: a value stays a
    text where Katib would let YAML make a number of it.

    Args:
        config_maps: The available ones; one without a namespace fits any.
        origin: Source of the Experiment, for messages.

    Raises:
        InvalidInput: The ConfigMap has no such template, the template is not one object, or the
            Experiment lacks the conditions for which Katib has no defaults then.
    """
    template = mapping(mapping(experiment.get("spec")).get("trialTemplate"))
    reference = mapping(template.get("configMap"))
    config_map = _find(reference, config_maps)
    if config_map is None or template.get("trialSpec") is not None:
        return dict(experiment)
    if not (template.get("successCondition") and template.get("failureCondition")):
        message = f"{origin}: spec.trialTemplate must have successCondition and failureCondition beside a configMap"
        raise InvalidInput(message, "Katib has no defaults for them then")
    rest = {name: value for name, value in template.items() if name != "configMap"}
    spec = {
        **experiment["spec"],
        "trialTemplate": {**rest, "trialSpec": _read(config_map, reference)},
    }
    return {**experiment, "spec": spec}


def _find(reference: Manifest, config_maps: Sequence[Manifest]) -> Manifest | None:
    for manifest in config_maps:
        metadata = Resource.parse(manifest).metadata
        same_namespace = metadata.get("namespace") in (None, reference.get("configMapNamespace"))
        if reference and metadata.get("name") == reference.get("configMapName") and same_namespace:
            return manifest
    return None


def _read(config_map: Manifest, reference: Manifest) -> dict[str, Any]:
    name, data = Resource.parse(config_map).name, mapping(config_map.get("data"))
    key = text(reference.get("templatePath"))
    if key not in data:
        raise InvalidInput(
            f"ConfigMap {name} has no template {key!r}",
            f"it has {', '.join(map(str, data)) or 'none'}",
        )
    documents = load_yaml(text(data[key]), f"{key} of ConfigMap {name}")
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InvalidInput(
            f"{key} of ConfigMap {name} must hold one object", "write a Job, for example"
        )
    return dict(documents[0])
