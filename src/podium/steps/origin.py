"""Where a candidate comes from: a file in its model directory, so that the directory speaks for itself."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from podium.documents import parse, read_json

FILE = "origin.json"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How a model came about."""

    kind: str
    """``trial`` or ``training``."""

    name: str
    """Of the trial or job."""

    run_id: str
    """The run."""

    uri: str
    """Where the job wrote the model directory."""

    hyperparameters: dict[str, Any] = field(default_factory=dict)
    """What the job was given, by flag."""

    experiment: str | None = None
    """The Experiment, of a trial."""

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"{self.kind} {self.name}"

    def write(self, directory: Path) -> None:
        """Put it into a model directory."""
        (directory / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read it from a model directory.

        Raises:
            FileNotFoundError: No step of podium wrote this directory.
            InvalidInput: A field is missing or of another type.
        """
        return cast(Self, parse(cls, read_json(directory / FILE), str(directory / FILE)))
