"""Earlier sweeps whose trials a search learns from first."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from podium.manifests.options.base import Setting, SweepOption, Values

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class WarmStart(SweepOption):
    """Names of earlier Experiments of the same cluster."""

    title: ClassVar[str] = "warm start"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="warm_start",
            is_list=True,
            metavar="NAME",
            help="Learn from the trials of this Experiment on the same cluster first; may be repeated.",
        ),
    )

    names: tuple[str, ...]

    @classmethod
    def of(cls, values: Values) -> "WarmStart | None":
        named = (part.strip() for text in values.get("warm_start", ()) for part in text.split(","))
        names = tuple(dict.fromkeys(filter(None, named)))
        return cls(names=names) if names else None

    def describe(self, experiment: "Experiment") -> str:
        return f"from {', '.join(self.names)}"
