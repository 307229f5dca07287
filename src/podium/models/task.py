"""The task of a model: its target, its kind and its classes. A model's name stands for one task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.data.schema import DatasetInfo
from podium.data.seen import OTHER_NAME
from podium.data.values import FLAGS, are_flags
from podium.display.text import listed
from podium.errors import InvalidInput
from podium.models.document import as_mapping, beside
from podium.prediction.predictor import PREPROCESSING
from podium.scoring.threshold import THRESHOLD, Threshold

if TYPE_CHECKING:
    from podium.models.championship import Championship
    from podium.models.version import Version

_LEAST_CLASSES = 2
"""Fewer common classes are nothing to compare by."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Task that a dataset sets a model."""

    dataset: str

    kind: str

    target: str

    classes: tuple[str, ...]

    @classmethod
    def of(cls, info: DatasetInfo) -> "Task":
        """Return the task of a dataset."""
        return cls(dataset=info.name, kind=info.kind, target=info.target.name, classes=info.classes)

    def require_same(self, version: "Version") -> None:
        """Refuse a version of another task.

        Another class more or less is the same task; another kind, another target or other classes
        are not.

        Raises:
            InvalidInput: It says what differs.
        """
        facts, name, data = version.facts.dataset, version.title, self.dataset
        if facts.kind not in (None, self.kind):
            raise _other_task(
                version.name, f"{name} is of {facts.kind}, but the dataset {data} of {self.kind}"
            )
        target = facts.target or _described(version).get("target")
        if target not in (None, self.target):
            raise _other_task(
                version.name,
                f"{name} predicts {target!r}, but the target of {data} is {self.target!r}",
            )
        own = spelled_as(self.classes, class_names(version))
        shared = [label for label in own if label in self.classes]
        if own and self.classes and len(shared) < _LEAST_CLASSES:
            raise _other_task(
                version.name, f"{name} knows {listed(own)}, but {data} has {listed(self.classes)}"
            )

    def require_same_model(self, model: "Championship") -> None:
        """Refuse a model of another task: that of its champion, or else of its first version.

        Raises:
            InvalidInput: It says what differs.
        """
        version = model.find_champion() or next(iter(model.ledger.versions()), None)
        if version is not None:
            self.require_same(version)


def is_alike(one: "Version", other: "Version") -> bool:
    """Return whether two versions predict the same target, with the same classes, from columns of
    the same names."""
    first, second = one.facts.dataset, other.facts.dataset
    return (first.kind, first.target, set(class_names(one)), _columns(one)) == (
        second.kind,
        second.target,
        set(class_names(other)),
        _columns(other),
    )


def _columns(version: "Version") -> list[str]:
    columns = _described(version).get("columns")
    named = (
        [each.get("name") for each in columns if isinstance(each, dict)]
        if isinstance(columns, list)
        else []
    )
    return sorted(map(str, named))


def decision_threshold(version: "Version") -> Threshold | None:
    """Return by which a version decides between two classes; None for the most probable one.

    Raises:
        InvalidInput: Its file cannot be read.
        Damaged: Its file is not what was uploaded.
    """
    return Threshold.read(beside(version, THRESHOLD), f"{THRESHOLD} of {version.title}")


def class_names(version: "Version") -> tuple[str, ...]:
    """Return the classes of a version by index, as ``podium predict`` names them; empty if they are
    not known."""
    own = _described(version).get("classes")
    return tuple(map(str, own)) if isinstance(own, list) and own else version.facts.dataset.classes


def spelled_as(reference: Sequence[str], own: tuple[str, ...]) -> tuple[str, ...]:
    """Return classes in the spelling of others: No as no, and where both are booleans, 0 as false.

    Another export spells them otherwise, and of several spellings in one column the first one
    counts. Names stay as they are where one of them would stand for two.
    """
    spelled = _spellings(reference, own, are_flags(reference) and are_flags(own))
    return tuple(spelled.values()) if len(set(spelled.values())) == len(own) else own


def spellings(classes: Sequence[str], labels: Iterable[str]) -> dict[str, str]:
    """Return for each label the class that it spells, the same for several, or itself if there is
    none."""
    different = sorted(set(labels))
    flags = are_flags(classes) and are_flags(label for label in different if label.lower() in FLAGS)
    return _spellings(classes, different, flags)


def _spellings(classes: Sequence[str], names: Sequence[str], flags: bool) -> dict[str, str]:
    def meaning(name: str) -> str:
        return FLAGS.get(name.lower(), name.casefold()) if flags else name.casefold()

    spelled = {meaning(name): name for name in classes}
    if len(spelled) < len(classes):  # a name may be either of two
        return dict(zip(names, names, strict=True))
    return {name: spelled.get(meaning(name), name) for name in names}


def _described(version: "Version") -> Mapping[str, Any]:
    return as_mapping(beside(version, PREPROCESSING))


def _other_task(model: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"the model {model} is for another task: {why}",
        OTHER_NAME,
    )
