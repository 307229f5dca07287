"""Experiments from files, from text, or from those that come with podium."""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from podium.errors import InvalidInput
from podium.files.documents import load_yaml, read_text
from podium.manifests.experiment.optimization_job import as_experiment
from podium.manifests.fields import mapping, text
from podium.manifests.resource import Resource

Manifest = Mapping[str, Any]


def is_config_map(manifest: Any) -> bool:
    return isinstance(manifest, Mapping) and manifest.get("kind") == "ConfigMap"


def objects_of(content: str, origin: str) -> list[Any]:
    """Return each object of a YAML file; of a List, as kubectl get prints it, its items.

    Raises:
        InvalidInput: It is not YAML.
    """
    found = list[Any]()
    for document in load_yaml(content, origin, kubectl=True):
        is_list = isinstance(document, dict) and document.get("kind") == "List"
        items = (document.get("items") or []) if is_list else [document]
        found += items if isinstance(items, list) else [items]
    return found


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
    documents = load_yaml(text(data[key]), f"{key} of ConfigMap {name}", kubectl=True)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InvalidInput(
            f"{key} of ConfigMap {name} must hold one object", "write a Job, for example"
        )
    return dict(documents[0])


_RATE_SHARES = {"": 1.0, "tutorial": 1.0, "fast": 0.1, "best": 0.1}
"""Learning rates that the bundled Experiments search for a network of the trainer, by those of
Adadelta, 0.05 to 2 with the batch sizes that are searched; ``fast`` and ``best`` use SGD."""

_RATE_SHARE_OF_ADAMW = 0.001
"""The same for all other networks, which use AdamW."""

LINEAR = "linear"
"""Network of sentences where nobody names one."""

QUICKEST = {"image": "fast", "table": "mlp", "array": "mlp", "tokens": LINEAR}
"""Network of trials of a bundled Experiment where nobody names one, by the meaning of the input."""

TREES = "trees"
"""Network of tables where nobody names one."""

AUTO, RANDOM, TABLES = "auto", "random", "tables"
"""The Experiment that podium chooses: tables, which searches the network too, for tables."""


def bundled() -> list[str]:
    """Return the names of the Experiments that come with podium."""
    folder = resources.files("podium.experiments")
    names = sorted(
        entry.name.removesuffix(".yaml")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    )
    return [name for name in names if "kind: Experiment" in (folder / f"{name}.yaml").read_text()]


def is_bundled(name_or_text: str) -> bool:
    """Return whether load would take an Experiment that comes with podium: a file of the same name
    goes first."""
    return name_or_text in bundled() and not Path(name_or_text).is_file()


def load(name_or_text: str, network: str = "", config_maps: Sequence[Path] = ()) -> dict[str, Any]:
    """Read one object: YAML text, a file's path, or the name of a manifest that comes with podium.

    Args:
        name_or_text: Text if it has a line break or a brace; else a path if there is such a file;
            else a name.
        network: The trainer's ``--model``; one that comes with podium searches learning rates of
            its optimizer. Ranges in a user's own text or file are never changed.
        config_maps: Files of ConfigMaps that may hold the trial template.

    Raises:
        InvalidInput: No such file or name, not YAML, or not exactly one object beside ConfigMaps.
    """
    manifests = [item for file in config_maps for item in _config_maps(file)]
    if "\n" in name_or_text or "{" in name_or_text:
        return parse(name_or_text, "the given text", manifests)
    path = Path(name_or_text)
    if os.path.isfile(path):  # also of a text that is too long for a path
        try:
            return parse(read_text(path), name_or_text, manifests)
        except OSError as error:
            raise InvalidInput(f"{name_or_text} cannot be read: {error}") from None
    entry = resources.files("podium.experiments") / f"{name_or_text}.yaml"
    if not re.fullmatch(r"[\w-]+", name_or_text) or not os.path.isfile(str(entry)):
        close = difflib.get_close_matches(name_or_text, bundled(), 1)
        hint = f"did you mean {close[0]}?" if close else f"a file, or one of {', '.join(bundled())}"
        raise InvalidInput(f"no file and no bundled experiment is called {name_or_text!r}", hint)
    manifest = parse(entry.read_text(), name_or_text)
    share = _RATE_SHARES.get(network, _RATE_SHARE_OF_ADAMW)
    if share != 1.0 and name_or_text != TABLES:
        _scale_learning_rates(manifest, share)
    return manifest


def each_of(name_or_text: str) -> list[str]:
    """Return what load takes for each Experiment of a file that holds several, with the ConfigMaps
    beside them; else what was given."""
    path = Path(name_or_text)
    if not os.path.isfile(path):
        return [name_or_text]
    documents = objects_of(read_text(path), name_or_text)
    kinds = [mapping(document).get("kind") for document in documents]
    if kinds.count("Experiment") < 2 or set(kinds) - {"Experiment", "ConfigMap"}:
        return [name_or_text]
    from podium.files.yaml_loader import dump

    beside = [document for document in documents if is_config_map(document)]
    return [
        "---\n".join(map(dump, [document, *beside]))
        for document, kind in zip(documents, kinds, strict=True)
        if kind == "Experiment"
    ]


def _scale_learning_rates(experiment: dict[str, Any], share: float) -> None:
    for parameter in experiment["spec"].get("parameters") or []:
        if parameter["name"] == "lr":
            space = parameter["feasibleSpace"]
            space |= {
                key: f"{float(space[key]) * share:g}"
                for key in ("min", "max", "step")
                if key in space
            }


def _config_maps(file: Path) -> list[dict[str, Any]]:
    try:
        objects = objects_of(read_text(file), str(file))
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error.strerror}", "give the path of a ConfigMap's YAML"
        ) from None
    if not objects or not all(map(is_config_map, objects)):
        raise InvalidInput(
            f"{file} must hold ConfigMaps and nothing else", "kubectl get configmap NAME -o yaml"
        )
    return objects


def parse(text: str, origin: str, config_maps: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Parse one object of YAML or JSON that could be sent to Kubernetes, and the ConfigMaps beside
    it.

    Args:
        text: The objects; a trial template that one of its ConfigMaps holds is put into the
            Experiment.
        origin: Source of the text, for messages.

    Raises:
        InvalidInput: Not YAML, not one object beside ConfigMaps, or it holds what JSON cannot say.
    """
    documents = objects_of(text, origin)
    if beside := [manifest for manifest in documents if is_config_map(manifest)]:
        documents = [manifest for manifest in documents if not is_config_map(manifest)] or documents
    if len(documents) != 1:
        found = [mapping(each) for each in documents]
        named = ", ".join(
            f"{each.get('kind')} {mapping(each.get('metadata')).get('name')}" for each in found
        )
        hint = "give each a file of its own" if documents else "write a Kubernetes object"
        problem = f"a manifest holds one object, but {origin} holds {len(documents)}"
        raise InvalidInput(f"{problem}: {named}" if named else problem, hint)
    if not isinstance(documents[0], dict):
        kind = type(documents[0]).__name__
        raise InvalidInput(
            f"a manifest holds one object, but {origin} holds {kind}", "write a Kubernetes object"
        )
    return with_template(as_experiment(documents[0]), [*beside, *config_maps], origin)
