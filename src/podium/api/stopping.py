"""Early stopping by one word: the changes that ``stop`` makes to an Experiment of tune."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podium.api.space import Dimension, Int, Value
from podium.errors import InvalidInput, suggestion
from podium.search.algorithms import AUTO, MEDIAN_STOP, find
from podium.search.halving import ASHA

_STOPS = ("median", "asha")

_START = 3
"""Lines after which medianstop judges a trial: Katib's own 4 is past the end of many a short
training."""

_TRIALS = 3
"""Trials that must have succeeded before one is judged; Katib's own default."""

_LENGTHS = (
    "epochs", "epoch", "num_epochs", "n_epochs", "max_epochs", "train_epochs", "num_train_epochs", "steps", "num_steps",
    "n_steps", "max_steps", "train_steps", "iterations", "iters", "num_iterations", "n_iter", "max_iter", "rounds",
    "num_rounds", "num_boost_round", "n_estimators",
)  # fmt: skip
"""Common names of the parameter that sets the length of training."""


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Early stopping of trials that make no progress."""

    algorithm: str
    settings: Mapping[str, object]
    spec: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def reads_along(self) -> bool:
        """Whether a trial's output is read as it grows."""
        return bool(self.spec)

    @classmethod
    def read(
        cls,
        stop: str | None,
        algorithm: str,
        settings: Mapping[str, object],
        searched: Mapping[str, Dimension],
        fixed: Mapping[str, Value],
        metric: str,
    ) -> "Stopping":
        """Return the settings that a word for early stopping stands for.

        Args:
            stop: One of _STOPS, or None.
            algorithm: The algorithm that the user chose.
            settings: Settings of the algorithm.
            searched: Searched parameters.
            fixed: Other arguments, the same in all trials.
            metric: Name of the objective.

        Raises:
            InvalidInput: There is no such word, it does not go with the algorithm, or asha finds no
                range that says how long a trial trains.
        """
        if stop is None:
            return cls(algorithm=algorithm, settings=settings)
        if stop not in _STOPS:
            raise InvalidInput(
                f"trials are stopped early by {' or '.join(_STOPS)}, but got {stop!r}",
                suggestion(stop, _STOPS),
            )
        return (
            _median(algorithm, settings, metric)
            if stop == "median"
            else _asha(algorithm, settings, searched, fixed)
        )


def _median(algorithm: str, settings: Mapping[str, object], metric: str) -> Stopping:
    if find(algorithm).has_resource:
        problem = f"median compares trials that train equally long, but those of {algorithm} do not"
        raise InvalidInput(
            problem, f"--stop median with --algorithm tpe or random; {algorithm} needs no --stop"
        )
    options = {"min_trials_required": _TRIALS, "start_step": _START}
    listed = [{"name": name, "value": str(value)} for name, value in options.items()]
    spec = {"earlyStopping": {"algorithmName": MEDIAN_STOP.name, "algorithmSettings": listed}}
    text = (
        f"from {_TRIALS} trials on, one is stopped that is worse than the others after it printed "
        f"{metric} {_START} times"
    )
    return Stopping(algorithm=algorithm, settings=settings, spec=spec, text=text)


def _asha(
    algorithm: str,
    settings: Mapping[str, object],
    searched: Mapping[str, Dimension],
    fixed: Mapping[str, Value],
) -> Stopping:
    if algorithm not in (AUTO, ASHA.name):
        raise InvalidInput(
            f"asha is an algorithm itself, but {algorithm} is named too", "leave --algorithm out"
        )
    name = str(settings.get("resource_name") or _length(searched, fixed))
    length = searched.get(name)
    if not isinstance(length, Int) or length.low < 1:
        problem = (
            "asha needs a range of whole numbers from 1 on that says how long a trial trains, "
            f"but {name} is {length}"
        )
        raise InvalidInput(problem, f"--{name} 1..27, in Python {{{name!r}: (1, 27)}}")
    options = {"resource_name": name, "r_min": length.low, "r_l": length.high, **settings}
    text = f"all trials start with {name} {length.low}, and the best third continues with three times as many"
    return Stopping(algorithm=ASHA.name, settings=options, text=f"{text}, up to {length.high}")


def _length(searched: Mapping[str, Dimension], fixed: Mapping[str, Value]) -> str:
    found = [name for name in searched if name.lower().replace("-", "_") in _LENGTHS]
    if len(found) == 1:
        return found[0]
    if found:
        problem = f"asha needs one flag that says how long a trial trains, but {', '.join(found)} may be it"
        raise InvalidInput(problem, f"search --{found[0]} alone, and give the others one value")
    named = [name for name in fixed if name.lower().replace("-", "_") in _LENGTHS]
    flag = named[0] if named else "epochs"
    most = fixed.get(flag)
    high = most if isinstance(most, int) and most > 1 else 27
    missing = f"but --{flag} is {most} in all trials" if named else f"but --{flag} is missing"
    example = f"podium tune train.py --lr 1e-4..1e-1 --{flag} 1..{high} --stop asha"
    raise InvalidInput(
        f"asha needs a flag of the script that says how long a trial trains, {missing}",
        f"{example}, in Python {{{flag!r}: (1, {high})}}; --stop median needs no such flag",
    )
