"""One step of a pipeline: its command, its process, and what it puts out."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podium.cluster.local.environment import expand
from podium.code.reference import FOLDER, SUFFIX
from podium.errors import Failed, InvalidInput
from podium.files.documents import read_json, with_whole_numbers
from podium.files.drafts import appearing
from podium.runner.compiled import Constants, command_of, resolved
from podium.system.settings import STEPS_IMAGE, TRAINER_IMAGE

OUTPUT = "executor_output.json"
"""File that KFP's executor writes."""

CREATE_VOLUME, DELETE_VOLUME = "argostub/createpvc", "argostub/deletepvc"
"""Images that stand for creating and deleting a volume, which KFP's driver does."""

OWN_IMAGES = (STEPS_IMAGE, TRAINER_IMAGE)
"""Images whose content is podium: they install nothing at run time."""


@dataclass(kw_only=True)
class Values:
    """Inputs or outputs of a task."""

    parameters: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Each a list of KFP's runtime artifacts; one that is no list has one entry."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A task of a pipeline that runs one command, with its inputs."""

    name: str
    component: Mapping[str, Any]
    executor: Mapping[str, Any]
    inputs: Values
    folder: Path
    """Directory of its outputs."""

    constants: Constants

    @property
    def container(self) -> Mapping[str, Any]:
        """Its container: image, command, args, env."""
        return dict(self.executor.get("container", {}))

    @property
    def executor_input(self) -> dict[str, Any]:
        """KFP's ExecutorInput: values of the inputs, places of the outputs.

        Whole numbers are such as a cluster's steps get them, inside of dicts and lists too.
        """
        outputs = self.component.get("outputDefinitions", {})
        files = {
            name: {"outputFile": str(self.folder / name)} for name in outputs.get("parameters", {})
        }
        inputs = {
            "parameterValues": {
                name: value for name, value in self.inputs.parameters.items() if value is not None
            },
            "artifacts": {
                name: {"artifacts": held} for name, held in self.inputs.artifacts.items()
            },
        }
        return {
            "inputs": with_whole_numbers({name: held for name, held in inputs.items() if held}),
            "outputs": {
                "parameters": files,
                "artifacts": {name: {"artifacts": held} for name, held in self._empty.items()},
                "outputFile": str(self.folder / OUTPUT),
            },
        }

    @property
    def _empty(self) -> dict[str, list[dict[str, Any]]]:
        """Output artifacts before anything is known of them."""
        outputs = self.component.get("outputDefinitions", {}).get("artifacts", {})
        return {
            name: [
                {
                    "name": name,
                    "type": definition["artifactType"],
                    "uri": str(self.folder / name),
                    "metadata": {},
                }
            ]
            for name, definition in outputs.items()
        }

    def command(self, variables: Mapping[str, str]) -> list[str]:
        """Return its command, $(VAR) and placeholders replaced, without the part that installs
        packages first.

        Args:
            variables: Its environment.
        """
        container = self.container
        words = [*container.get("command", ()), *container.get("args", ())]
        words = [expand(word, variables) for word in words[3 if installing(container) else 0 :]]
        return command_of(words, self.executor_input, self.constants)

    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for entry in self.container.get("env", ()):
            value = expand(entry.get("value", ""), found)
            found[entry["name"]] = resolved(value, self.executor_input, self.constants)
        return found

    def outputs(self) -> Values:
        """Return what its process put out.

        Raises:
            Failed: It wrote no value for a parameter, or one that is not of its type.
        """
        definitions = self.component.get("outputDefinitions", {})
        file = self.folder / OUTPUT
        written = read_json(file) if file.is_file() else {}
        found = Values(parameters=dict(written.get("parameterValues", {})), artifacts=self._empty)
        for name, definition in definitions.get("parameters", {}).items():
            if name not in found.parameters:
                kind = definition.get("parameterType", "STRING")
                found.parameters[name] = _read_output(name, self.folder / name, kind)
        for name, held in written.get("artifacts", {}).items():
            if name in found.artifacts:
                kind_of = found.artifacts[name][0]["type"]
                found.artifacts[name] = [{**entry, "type": kind_of} for entry in held["artifacts"]]
                for entry in found.artifacts[name]:
                    _collect(entry.pop("custom_path", ""), entry["uri"])
        return found

    def show(self, outputs: Values) -> None:
        """Write its outputs where they are looked for: KFP's executor writes neither files that a
        function was given the path of, nor anything for the program of an image."""
        self.folder.mkdir(parents=True, exist_ok=True)
        artifacts = {name: {"artifacts": held} for name, held in outputs.artifacts.items()}
        written = {"parameterValues": outputs.parameters, "artifacts": artifacts}
        with appearing(self.folder / OUTPUT) as draft:
            draft.write_text(json.dumps(written))

    def leave(self, outputs: Values) -> None:
        """Write outputs that were made elsewhere where those of this step are looked for."""
        self.show(outputs)
        for name, held in outputs.artifacts.items():
            if len(held) == 1 and os.path.exists(held[0]["uri"]):
                (self.folder / name).symlink_to(os.path.abspath(held[0]["uri"]))

    def imported(self) -> Values:
        """Return the artifact that it imports.

        Raises:
            Failed: It names a file of this machine that is not there.
        """
        importer = self.executor["importer"]
        uri = importer["artifactUri"].get("constant")
        uri = self.inputs.parameters.get("uri") if uri is None else uri
        uri = resolved(str(uri), self.executor_input, self.constants).removeprefix("file://")
        if "://" not in uri and not os.path.exists(uri):
            raise Failed(f"there is nothing at {uri}, which step {self.name} imports")
        metadata = resolved(importer.get("metadata", {}), self.executor_input, self.constants)
        artifact = {
            "name": "artifact",
            "type": importer.get("typeSchema", {}),
            "uri": uri,
            "metadata": metadata,
        }
        return Values(artifacts={"artifact": [artifact]})


def _collect(custom: str, uri: str) -> None:
    # A step wrote the artifact to a path of its own; others look for it at its URI.
    if custom and os.path.exists(custom) and not os.path.exists(uri) and "://" not in uri:
        copy = shutil.copytree if os.path.isdir(custom) else shutil.copy2
        copy(custom, uri)


_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)
_READ: Mapping[str, Callable[[str], Any]] = {
    "STRING": str,
    "NUMBER_INTEGER": lambda text: int(text.replace("_", "?")),  # which Go takes nowhere
    "NUMBER_DOUBLE": lambda text: float(text.replace("_", "?")),
    "BOOLEAN": lambda text: _BOOLEANS[text.strip()],
}
_HOLDS = {"LIST": list, "STRUCT": dict}


def _read_output(name: str, file: Path, kind: str) -> Any:
    """Read the file that a step wrote for a parameter, as KFP's launcher does (TextToPbValue of
    backend/src/v2/metadata): a cluster fails a step that wrote none, or one of another type."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise Failed(f"output {name} was not written") from None
    except UnicodeDecodeError:
        raise Failed(f"output {name} is not UTF-8") from None
    try:
        value = _READ.get(kind, json.loads)(text)
        if isinstance(value, _HOLDS.get(kind, object)):
            return value
    except (ValueError, KeyError):
        pass
    raise Failed(f"output {name} is not of type {kind}: {text[:80]!r}")


def installing(container: Mapping[str, Any]) -> str:
    """Return the script that installs packages before the real command; empty if there is none."""
    command = container.get("command", ())
    if len(command) > 3 and re.fullmatch(r"(/bin/)?(ba)?sh", command[0]):
        script = str(command[2])
        if "pip install" in script and script.rstrip().endswith('"$0" "$@"'):
            return script
    return ""


@dataclass(frozen=True)
class Cache:
    """Results of steps, by what they were made from."""

    folder: Path

    def key(self, step: Step, belongs: str, custom: str, variables: Mapping[str, str]) -> str:
        """Return the key of a step's result.

        Args:
            belongs: The attempt of a run that it serves alone; empty if it serves any.
            custom: The key that the pipeline names; empty for none.
            variables: Those of Secrets and ConfigMaps.
        """
        made = (
            [custom]
            if custom
            else [
                step.container.get("image", ""),
                [*step.container.get("command", ()), *step.container.get("args", ())],
                step.container.get("env", []),
                _inputs(step),
                [_state(uri) for uri in _uris(step.inputs)],
                variables,
            ]
        )
        parts = ["podium", step.name if belongs else step.component, belongs or made]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    @staticmethod
    def digest(step: Step) -> str:
        """Return a digest of a step's inputs, in which all packed code is equal: a finished step is
        not repeated for that of today."""
        inputs = re.sub(rf'/{FOLDER}/[0-9a-f]{{64}}{re.escape(SUFFIX)}"', '"', _inputs(step))
        return hashlib.sha256(inputs.encode()).hexdigest()

    def get(self, key: str, inputs: str = "") -> tuple[Values, Path] | None:
        """Return a result whose files are still there, and the folder of the step that made it;
        None if there is none.

        Args:
            inputs: Digest of the inputs that it must have been made from; empty for any, of a
                result of another run, whose files must be as they were.
        """
        try:
            entry = read_json(self.folder / f"{key}.json")
        except (OSError, InvalidInput):
            return None
        files = entry["files"]
        if inputs not in ("", entry["inputs"]) or not all(map(os.path.exists, files)):
            return None
        if not inputs and any(_state(place) != state for place, state in files.items()):
            return None
        return Values(**entry["outputs"]), Path(entry.get("folder", ""))

    def put(self, key: str, step: Step, outputs: Values) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        entry = {
            "inputs": self.digest(step),
            "folder": str(step.folder),
            "outputs": vars(outputs),
            "files": {uri: _state(uri) for uri in _uris(outputs) if os.path.exists(uri)},
        }
        with appearing(self.folder / f"{key}.json") as draft:
            draft.write_text(json.dumps(entry))


def _uris(values: Values) -> list[str]:
    return [artifact["uri"] for held in values.artifacts.values() for artifact in held]


def _state(place: str) -> list[list[Any]]:
    """Return name, size and time of each file at a place, those that links lead to; none of a
    URL."""
    found: list[list[Any]] = []
    if not place:
        return found
    for file in _files_at(place):
        with suppress(OSError):
            status = os.stat(file) if os.path.exists(file) else os.lstat(file)
            found.append([os.path.relpath(file, place), status.st_size, status.st_mtime_ns])
    return sorted(found)


def _files_at(place: str) -> Iterator[str]:
    if not os.path.isdir(place):
        yield place
    seen: set[str] = set()
    for folder, folders, files in os.walk(place, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link to a folder around it, or a second one to the same
            folders.clear()
            yield folder
        else:
            seen.add(real)
            folders.sort()
            yield from (os.path.join(folder, name) for name in files)


def _inputs(step: Step) -> str:
    return json.dumps(vars(step.inputs), sort_keys=True, default=str)
