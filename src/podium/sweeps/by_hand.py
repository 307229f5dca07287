"""Trials with values chosen by a user, in an Experiment that runs or is resumed for them."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from podium.errors import InvalidInput, suggestion
from podium.files.documents import parse, read_json
from podium.files.drafts import appearing
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.options import options_of
from podium.search.space import Parameter, settled


def check_values(experiment: Experiment, values: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a trial as text, in the order of the space; an inactive parameter has
    its fixed value.

    Raises:
        InvalidInput: One is missing, is not of the space, or lies outside of it: the search could
            not learn from it; or an option refuses trials by hand.
    """
    for option in options_of(experiment):
        option.check_trial_by_hand(experiment)
    known = {parameter.name: parameter for parameter in experiment.space}
    for name in values:
        if name not in known:
            raise InvalidInput(
                f"{experiment.name} does not search over {name!r}", suggestion(name, known)
            )
    given = {name: _checked(known[name], str(value)) for name, value in values.items()}
    if missing := [
        name for name, parameter in known.items() if name not in given and parameter.counts(given)
    ]:
        raise InvalidInput(
            f"no value is given for {', '.join(missing)}",
            f"{missing[0]}=VALUE; --like TRIAL fills in",
        )
    return settled(experiment.space, given)


def _checked(parameter: Parameter, text: str) -> str:
    if not parameter.numeric:
        if text not in parameter.choices:
            raise InvalidInput(
                f"{parameter.name}={text} is not among its values",
                suggestion(text, parameter.choices),
            )
        return text
    ends = f"{parameter.text(parameter.low)} to {parameter.text(parameter.high)}"
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(
            f"{parameter.name}={text} is not a number", f"its space is {ends}"
        ) from None
    if not parameter.low <= value <= parameter.high:
        raise InvalidInput(
            f"{parameter.name}={text} lies outside of its space", f"its space is {ends}"
        )
    if parameter.kind == "int" and not value.is_integer():
        raise InvalidInput(f"{parameter.name}={text} is not a whole number", f"its space is {ends}")
    return parameter.nearest(value) if parameter.step else parameter.text(value)


class Requests:
    """Trials that a person asked the process for that runs an Experiment, or will: a file for
    each, in the Experiment's directory."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "asked"

    def add(self, trial: str, values: Mapping[str, str]) -> None:
        self._folder.mkdir(exist_ok=True)
        with appearing(self._folder / f"{trial}.json") as draft:
            draft.write_text(json.dumps(dict(values)) + "\n")

    def all(self) -> dict[str, Mapping[str, str]]:
        """Return the values by the name of the trial, in the order of the requests."""
        try:
            files = sorted(
                self._folder.glob("[!.]*.json"), key=lambda file: file.stat().st_mtime_ns
            )
        except FileNotFoundError:
            return {}
        asked: dict[str, Mapping[str, str]] = {}
        for file in files:
            with suppress(FileNotFoundError, InvalidInput):
                asked[file.stem] = parse(dict[str, str], read_json(file), str(file))
        return asked

    def drop(self, trial: str) -> None:
        (self._folder / f"{trial}.json").unlink(missing_ok=True)
