"""Points that a sweep tries before its algorithm suggests any."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from podium.errors import InvalidInput, suggestion
from podium.manifests.options.base import Setting, SweepOption, UnderKatib, Values
from podium.search.distributions import encode
from podium.search.space import settled

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class First(SweepOption):
    """Points to try first."""

    title: ClassVar[str] = "first"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="first",
            is_list=True,
            metavar="TEXT",
            help="Values to try first: 'lr=0.1, depth=2'; may be repeated.",
        ),
    )
    katib: ClassVar[UnderKatib | None] = UnderKatib(
        why="Katib's algorithms suggest every point, the first one too.",
        what="only podium's own engine tries the points of first",
        hint="Katib runs it as well, without them",
        level="note",
        refuses=False,
    )

    points: tuple[Mapping[str, str], ...]
    """Values by parameter, of those that are named."""

    @classmethod
    def of(cls, values: Values) -> "First | None":
        points = tuple(map(_read, values.get("first", ())))
        return cls(points=points) if points else None

    @classmethod
    def fix(cls, values: Values, fixed: Mapping[str, str], idle: set[str]) -> Values:
        """Leave out points of other values, and the values that are decided."""
        points = [
            {name: value for name, value in point.items() if name not in {*fixed, *idle}}
            for point in map(_read, values.get("first", ()))
            if all(fixed.get(name, value) == value for name, value in point.items())
        ]
        texts = (", ".join(f"{name}={value}" for name, value in point.items()) for point in points)
        return {**values, "first": tuple(filter(None, texts))}

    def describe(self, experiment: "Experiment") -> str:
        return "; ".join(
            " ".join(f"{name}={value}" for name, value in point.items()) for point in self.points
        )

    def check(self, experiment: "Experiment") -> None:
        """Refuse a point that is none of the space."""
        parameters = {parameter.name: parameter for parameter in experiment.space}
        for point in self.points:
            for name, value in point.items():
                if name not in parameters:
                    raise InvalidInput(
                        f"a first trial gives {name}, which is not searched",
                        suggestion(name, parameters),
                    )
                try:
                    encode(parameters[name], value)
                except ValueError:
                    raise InvalidInput(
                        f"a first trial gives {name}={value}, which is not in its range",
                        f"its space is {parameters[name].extent}",
                    ) from None
            lacking = [
                each.name
                for each in parameters.values()
                if each.name not in point and each.counts(point)
            ]
            if lacking:
                raise InvalidInput(
                    f"a first trial gives {', '.join(point)}, but no {lacking[0]}",
                    f"add {lacking[0]}=VALUE",
                )

    def search(self, experiment: "Experiment") -> Values:
        return {"first": [settled(experiment.space, point) for point in self.points]}


def _read(text: str) -> dict[str, str]:
    """Read ``lr=0.1, depth=2``.

    Raises:
        InvalidInput: It is something else.
    """
    point = {}
    for part in filter(None, map(str.strip, text.replace(",", " ").split())):
        name, sign, value = part.partition("=")
        if not (name and sign and value):
            raise InvalidInput(
                f"a first trial has values by parameter, not {part!r}", "lr=0.1, depth=2"
            )
        point[name] = value
    return point
