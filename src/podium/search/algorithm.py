"""Declaration of a search algorithm, read by the search, the checks, the doctor and the help."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from podium.search.space import Parameter

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

Point = dict[str, str]


class Setting(NamedTuple):
    """Type and range of an algorithm setting."""

    convert: Callable[[str], Any]
    """Makes a number or a word of the text."""

    holds: Callable[[Any], bool]
    """Whether podium and Katib take the value."""

    kind: str
    """Description of the expected value."""

    katib: tuple[str, ...] = ()
    """Further values that Katib takes and podium does not."""

    def read(self, text: str) -> Any:
        """Return the value; None if neither podium nor Katib accepts it."""
        try:
            value = self.convert(text)
        except (ValueError, OverflowError):
            return None
        return value if self.holds(value) else None


SEED = Setting(int, lambda value: value >= 0, "an integer >= 0")
COUNT = Setting(int, lambda value: value > 0, "an integer > 0")
COUNT_0 = Setting(int, lambda value: value >= 0, "an integer >= 0")
POSITIVE = Setting(float, lambda value: 0 < value < math.inf, "a number > 0")
SHARE = Setting(float, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def one_of(*names: str, katib: tuple[str, ...] = ()) -> Setting:
    """Return a setting whose value is one of a few words."""
    return Setting(str, lambda value: value in names, f"one of {', '.join(names)}", katib)


@dataclass(kw_only=True)
class PastTrial:
    """A trial that this process has not asked for: of an engine before, or of an earlier sweep."""

    trial: str
    point: Point
    value: float | None
    running: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    by_hand: bool = False
    """Whether a person gave its values."""


class Plan:
    """Gives points one by one; a resumed plan recalls its earlier points."""

    def __init__(
        self, space: Sequence[Parameter], settings: Mapping[str, Any], maximize: bool
    ) -> None:
        self.space = space
        self.settings = settings
        self.maximize = maximize
        self.given = 0

    def next(self, trial: str) -> Point | None:
        """Return the next point; None if there is none: now, before the trials have ended that it
        depends on, or ever."""
        raise NotImplementedError

    def tags(self, trial: str) -> dict[str, str]:
        """Return data to store with a trial that was given a point, beside its values."""
        return {}

    def tell(self, trial: str, value: float | None) -> None:
        """Learn the result of a trial."""

    def recall(self, history: Iterable[PastTrial]) -> None:
        """Go on after the given trials, oldest first."""
        self.given = len(list(history))


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A search algorithm, with a plan of its own or a sampler of Optuna's.

    Sources of what Katib does: katib 0.19,
    pkg/suggestion/v1beta1/{hyperopt,optuna,goptuna,skopt,hyperband,pbt}.
    """

    name: str
    """``spec.algorithm.algorithmName``."""

    settings: Mapping[str, Setting]
    """``algorithmSettings`` that podium and Katib's service take."""

    required: tuple[str, ...] = ()
    """Settings that have no default."""

    example: str = ""
    """The required settings, as a hint."""

    in_katib: bool = True
    """Whether Katib's default configuration has it."""

    drops_unknown_settings: bool = False
    """Whether Katib's service drops a setting that it does not know; the other services refuse
    it."""

    distributions: tuple[str, ...] = ()
    """Distributions beside uniform that Katib's service honors."""

    always_log: bool = False
    """Whether Katib's service samples every double on a log scale."""

    is_finite: bool = False
    """Whether it gives each point once and ends."""

    needs_steps: bool = False
    """Whether every double and int needs a step."""

    needs_two_numbers: bool = False
    """Whether it needs two parameters that are double or int."""

    keeps_files: bool = False
    """Whether a trial begins with its parent's files, on a volume that resumePolicy FromVolume
    keeps."""

    at_once: Callable[[Mapping[str, Any]], tuple[int, str]] | None = None
    """Number of trials that Katib's service suggests all at once or not at all, by the settings,
    and the settings that decide it."""

    warm_trials: int = 0
    """Number of earlier sweeps' trials that a warm start uses; 0 if the algorithm does not learn
    from results."""

    plan: Callable[[Sequence[Parameter], Mapping[str, Any], bool], Plan | None] | None = None
    """Makes the plan for a space, settings and whether more is better; None, or a plan that is
    None: it samples."""

    sampler: "Callable[[Mapping[str, Any], Sequence[FrozenTrial], int, int], BaseSampler] | None" = None
    """Makes Optuna's sampler for settings, the trials of a warm start, a seed and the number of
    trials unseen by it."""

    history: int | None = None
    """Maximum number of trials that its sampler sees; None for all."""

    takes_several: bool = False
    """Whether it supports several objectives, and learns which points break a constraint or uses no
    results at all."""

    takes_conditions: bool = False
    """Whether it leaves inactive parameters out of a point, so that it learns nothing from their
    values."""

    explored: Callable[[Parameter, Mapping[str, Any]], Parameter] = lambda parameter, settings: (
        parameter
    )
    """Returns the parameter with the range of its values, where that exceeds the space's."""

    @property
    def has_resource(self) -> bool:
        """Whether one of the parameters says how long a trial trains, so that trials differ in
        length."""
        return "resource_name" in self.settings
