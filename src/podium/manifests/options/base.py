"""The seam along which sweeps grow: a class in a file of this folder for each thing a sweep can be
asked.

Katib has no fields for these, so an Experiment carries them in one annotation,
``podium.dev/sweep``, a mapping of their settings. Each setting is an argument of ``podium.sweep``
and ``podium.tune`` and a flag of the commands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from podium.errors import InvalidInput

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment
    from podium.manifests.experiment.trial import Trial

Values = Mapping[str, Any]
"""Values of settings by name."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value that an option takes."""

    name: str
    """Key of the annotation and argument in Python."""

    help: str

    kind: Callable[[Any], Any] = str
    """``str``, ``int``, ``float``, or another parser of a text or number."""

    is_list: bool = False
    """Whether it is a list, in the shell a flag that may be repeated."""

    flag: str = ""
    """Flag of the shell; ``--name`` if empty."""

    metavar: str | None = None

    is_raised: bool = False
    """Whether a sweep may be resumed with another value."""

    is_result: bool = False
    """Whether podium writes it, and users cannot set it."""

    def read(self, value: Any) -> Any:
        """Return a value of its kind, a list as a tuple.

        Raises:
            InvalidInput: It is another kind.
        """
        if self.is_list:
            entries = [value] if isinstance(value, str) else value
            if not isinstance(entries, Sequence) or not all(
                isinstance(entry, str) for entry in entries
            ):
                raise self._refused(value, "a list of texts")
            return tuple(entries)
        if isinstance(value, bool | Mapping) or (
            isinstance(value, Sequence) and not isinstance(value, str)
        ):
            raise self._refused(value, "one value")
        if self.kind is int and not str(value).isdecimal():
            raise self._refused(value, "a whole number")
        try:
            return self.kind(value)
        except (TypeError, ValueError):
            raise self._refused(value, "a number") from None

    def _refused(self, value: Any, wanted: str) -> InvalidInput:
        return InvalidInput(f"{self.name} is {wanted}, but got {value!r:.60}", f"{self.help}")


@dataclass(frozen=True, kw_only=True)
class UnderKatib:
    """Finding about an option that Katib ignores when it runs the Experiment."""

    why: str
    what: str
    hint: str

    level: str = "warn"
    refuses: bool = True
    """Whether such an Experiment is not handed to Katib."""


class Follower:
    """Hooks of an option in the loop that runs a sweep."""

    runs_again: ClassVar[bool] = False
    """Whether it asks for runs after the search."""

    def begin(self, trials: Sequence["Trial"]) -> None:
        """Take in the trials of an earlier engine."""

    def trial_begins(self, trial: "Trial") -> None:
        """Handle a trial that begins, or continues under this engine."""

    def trial_ended(self, trial: "Trial") -> None:
        """Take in a trial that has ended."""

    def has_room(self) -> bool:
        """Tell whether another trial may begin now."""
        return True

    def repeats(self) -> Sequence[tuple["Trial", Mapping[str, str]]]:
        """Return the trials to run once more after the search, each with the labels of that run."""
        return ()

    def corrected(self) -> Sequence["Trial"]:
        """Return trials of the search whose metrics later runs have replaced."""
        return ()

    def choice(self) -> "Trial | None":
        """Return the best trial, with the metrics it is reported with; None to leave that to the
        trials' own."""
        return None

    def conclusion(self) -> str:
        """Return the end of the sentence about the end of a sweep; empty if there is no more to
        say."""
        return ""

    def stops_trials(self) -> str:
        """Return why the trials that run are stopped early now; empty if they are not."""
        return ""

    def end(self, trials: int, most: int | None) -> tuple[str, str]:
        """Return reason and message of a sweep that ends since there is no room for another trial.

        Args:
            trials: Number of trials.
            most: Maximum number of trials.
        """
        raise NotImplementedError


class SweepOption:
    """One thing a sweep can be asked."""

    settings: ClassVar[tuple[Setting, ...]]

    title: ClassVar[str]
    """Its name where a sweep is shown."""

    katib: ClassVar[UnderKatib | None] = None

    ended: ClassVar[str] = ""
    """Reason of an Experiment that ended since the option had no room for another trial."""

    raised: ClassVar[str] = ""
    """Change that lets such a sweep continue: ``a higher --max-time``."""

    is_of_trials: ClassVar[bool] = False
    """Whether trials carry it too, so that they are judged by it without their Experiment."""

    @classmethod
    def of(cls, values: Values) -> Self | None:
        """Read its settings; None if none is given.

        Args:
            values: Values of all options, each read by its Setting.

        Raises:
            InvalidInput: They make no sense.
        """
        raise NotImplementedError

    def check(self, experiment: "Experiment") -> None:
        """Refuse an Experiment that the option is incompatible with.

        Raises:
            InvalidInput: It says what, and what to do.
        """

    def describe(self, experiment: "Experiment") -> str:
        """Return the option in words, for status, notebook, report and page."""
        raise NotImplementedError

    def forecast(self, experiment: "Experiment", trials: Sequence["Trial"]) -> str:
        """Predict its effect on a sweep, by its trials or those of a similar one; empty if
        unknown."""
        return ""

    @classmethod
    def prepare(cls, spec: dict[str, Any], values: Values) -> Values:
        """Change Katib's fields so that a sweep with this option runs, and return the settings to
        store.

        Args:
            spec: Spec of the manifest as written, altered in place.
            values: Given settings of this option.
        """
        return values

    @classmethod
    def fix(cls, values: Values, fixed: Mapping[str, str], idle: set[str]) -> Values:
        """Return the settings of all options where some parameters are no longer searched.

        Args:
            fixed: Their values.
            idle: The parameters that never count then; an option adds those it knows of.
        """
        return values

    def search(self, experiment: "Experiment") -> Values:
        """Return arguments of the Search."""
        return {}

    def follow(self, experiment: "Experiment") -> Follower | None:
        """Return its hooks in the loop that runs the sweep, None if it needs none."""
        return None

    def check_trial_by_hand(self, experiment: "Experiment") -> None:
        """Refuse a trial whose values a user chose.

        Raises:
            InvalidInput: It says what, and what to do.
        """

    def more_than(self, before: "SweepOption | None") -> bool:
        """Tell whether a sweep that ended because of this option's earlier value may continue with
        this one."""
        return False
