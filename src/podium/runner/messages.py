"""Messages between `podium run` and its child process: an order on stdin, events on stdout, each a
line of JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

KFP = "kfp"
"""Name of the log with what KFP's executor prints, each line after the name of its step."""

AGAIN = "it is tried again"
"""Line of a step's log between two attempts; it may say why, and when."""

STARTS = "starts"
"""Line of that log with which a step begins."""


@dataclass(frozen=True, kw_only=True)
class _Message:
    """A line of JSON; both sides are one program, so nothing is checked."""

    def to_line(self) -> str:
        return json.dumps(vars(self)) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Self:
        return cls(**json.loads(line))


@dataclass(frozen=True, kw_only=True)
class Order(_Message):
    """The run that the child carries out."""

    run: str
    pipeline: str
    """Name or file of the pipeline."""

    began: str
    directory: str
    cache: str
    """Directory of the results of cached steps."""

    environments: str
    """Directory of the environments of components."""

    defaults: Mapping[str, str]
    """Storage and cluster where the parameters name none."""

    words: Sequence[str] = ()
    """Parameters as ``name=value``."""

    project: str = ""
    """A ``podium.yaml`` with the parameters that are not among the words; empty for none."""

    resumed: Mapping[str, Any] | None = None
    """The parameters of a resumed run; None for a new one."""

    attempts: Mapping[str, str] = field(default_factory=dict)
    """Run id of each step's last attempt; empty for a new run."""

    debug: str = ""
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Places by name of a ``volume``, ``secret``, ``config_map`` and ``image_dir``."""

    def attempt_of(self, step: str) -> str:
        """Return the run id of a step's last attempt; for a new round of a loop that of another."""
        like = (self.attempts[other] for other in self.attempts if stem(other) == stem(step))
        return self.attempts.get(step) or next(like, self.run)


def stem(step: str) -> str:
    """Return the name of a step without the rounds of the loops that it is in."""
    return re.sub(r"(\.\d+)+$", "", step)


@dataclass(frozen=True, kw_only=True)
class Event(_Message):
    """Something that happened in the child."""

    kind: str
    """steps, loop (the steps are others now), start, success, failure, cached, skipped, line,
    outputs, debug, or refused."""

    step: str = ""
    """Name of the step it is about."""

    text: str = ""
    """A line of progress, why the run is refused, or with ``debug`` where the step's files are."""

    hint: str | None = None
    """Suggested fix for a refusal."""

    code: int | None = None
    """Exit code of a step that failed."""

    steps: Mapping[str, str] = field(default_factory=dict)
    """Titles of all steps by name, in the order they run."""

    packed: Mapping[str, str] = field(default_factory=dict)
    """Directory that each code parameter was packed from, with ``steps``."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """The run's parameters, with ``steps``, the pipeline's return values, with ``outputs``, or a
    step's environment, with ``debug``."""
