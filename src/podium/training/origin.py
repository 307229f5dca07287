"""Where a candidate comes from: a file in its model directory, so that the directory speaks for
itself."""

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from podium.errors import NotFound
from podium.files.documents import parse

if TYPE_CHECKING:
    from podium.prediction.directory import ModelDirectory

FILE = "origin.json"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Environment that a model was trained in: its predict command needs the same."""

    image: str = ""
    code: str = ""
    install_requirements: bool = False


@dataclass(frozen=True, kw_only=True)
class Origin(Runtime):
    """Origin of a model."""

    kind: str
    """``trial`` or ``training``."""

    name: str
    run_id: str
    uri: str
    """Where the job wrote the model directory."""

    hyperparameters: dict[str, Any] = field(default_factory=dict)
    experiment: str | None = None
    """The Experiment, of a trial."""

    @property
    def title(self) -> str:
        """Kind and name, for people."""
        return f"{self.kind} {self.name}"

    def write(self, directory: "ModelDirectory") -> None:
        """Put it into the model directory."""
        directory.put(FILE, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def read(cls, directory: "ModelDirectory") -> Self:
        """Read it from a model directory.

        Raises:
            NotFound: No sweep or training of podium made this directory.
            InvalidInput: A field is missing or of another type.
        """
        document, name = directory.load(FILE), f"{directory.uri}/{FILE}"
        if document is None:
            raise NotFound(
                f"there is no {name}",
                "a candidate is the output of a sweep or a training of podium",
            )
        return parse(cls, document, name)
