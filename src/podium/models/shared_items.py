"""Test items that several versions of a model share, and what each version predicts of them.

A version is measured as ``podium predict`` would use it, along its whole path: its own
preprocessing makes its inputs from raw items, and its classes go by name. What it was trained on
or chosen by does not count; on items of a class that it does not know it is wrong, as it would be
in use.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from podium.data import sealed
from podium.data.artifact import describe
from podium.data.held_out import HeldOut, TestInputs
from podium.data.seen import (
    SEEN,
    SeenItems,
    near_words,
    parse_hashes,
    require_items,
    unseen,
)
from podium.display.text import are, listed, plural
from podium.errors import Damaged, InvalidInput
from podium.files.documents import foreign
from podium.models.document import beside
from podium.models.task import (
    Task,
    class_names,
    decision_threshold,
    spelled_as,
)
from podium.models.version import PREDICTIONS, TARGET, TEST_ITEMS, Version
from podium.prediction.command import CommandModel
from podium.prediction.predictor import PREPROCESSING
from podium.scoring import (
    Metric,
)
from podium.scoring.scores import check_count, check_predictions

if TYPE_CHECKING:
    from podium.models.championship import Championship


class VersionJobs(Protocol):
    """Where the predict command of a version runs, if not on this machine."""

    def predict_version(
        self, version: Version, inputs: Mapping[str, np.ndarray], *, classes: int | None
    ) -> np.ndarray:
        """Return its predictions of a test part, as CommandModel.predict does."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One version on the test items."""

    version: str

    predicted: np.ndarray
    """For all items: probabilities [n, classes], class indices [n], or floats [n] or [n, k]; 0
    where not fair."""

    classes: tuple[str, ...]
    """Its own classes, by index; empty for regression."""

    fair: np.ndarray
    """[n], whether an item counts: it could be prepared, and the version has not seen it."""

    decided: np.ndarray | None = None
    """Class indices [n] of a version with a threshold; None of one that decides for the most
    probable class."""

    near: int = 0
    """How many items do not count since they nearly equal what it has seen."""

    notes: tuple[str, ...] = ()
    """Remarks for the reader, as sentences."""


@dataclass(frozen=True, kw_only=True)
class SharedItems:
    """The predictions of several versions for the test items that are fair to all of them."""

    items: np.ndarray
    """[m], positions in the test part, in the order of the items' hashes, so that draws do not
    depend on a file's."""

    target: np.ndarray
    """Class indices ``[m]``, or floats ``[m]`` or ``[m, k]``."""

    predicted: tuple[np.ndarray, ...]
    """The predictions of each version: probabilities, class indices or floats."""

    decided: tuple[np.ndarray, ...]
    """Class indices of each version with a threshold; the predictions of others."""

    classes: tuple[str, ...]
    """Names of the classes; empty for regression."""

    groups: np.ndarray | None = None
    """[m], numbers of the groups of items that count together; None if every item counts alone."""

    units: np.ndarray | None = None

    inputs: Mapping[str, np.ndarray]
    """The dataset's inputs by name, each ``[n, ...]`` of the whole test part; empty for stored
    predictions."""

    notes: tuple[str, ...] = ()
    """How many items were left out and why, and what is not known, in sentences."""

    def of(self, metric: Metric) -> tuple[np.ndarray, ...]:
        """Return what a metric is computed from, of each version."""
        return self.decided if metric.decides else self.predicted

    @property
    def kind(self) -> str:
        """classification or regression."""
        return "regression" if self.target.dtype.kind == "f" else "classification"

    def newest(self, count: int, times: np.ndarray) -> "SharedItems":
        """Return the newest of them, and those that are as old as the oldest of these.

        Args:
            times: [n], of the whole test part.
        """
        own = times[self.items]
        oldest = np.sort(own)[-min(count, len(own))]
        kept = own >= oldest
        since = str(oldest).removesuffix("T00:00:00.000000")
        note = f"compared on the {kept.sum():,} newest of {len(kept):,} test items, since {since}"
        return replace(
            self,
            items=self.items[kept],
            target=self.target[kept],
            predicted=tuple(array[kept] for array in self.predicted),
            decided=tuple(array[kept] for array in self.decided),
            groups=None if self.groups is None else self.groups[kept],
            units=None if self.units is None else self.units[kept],
            notes=(*self.notes, note),
        )


@dataclass(frozen=True, kw_only=True)
class TestItems:
    """The test items that versions are evaluated on."""

    target: np.ndarray
    """[n] or [n, k]."""

    classes: tuple[str, ...]
    """The target's classes; empty for regression."""

    units: np.ndarray | None = None
    """[n], hash of what counts together: the group of an item, else the item itself; None if it is
    not known."""

    keys: np.ndarray | None = None
    """[n], hash of each item as it came; None if it is not known."""

    times: np.ndarray | None = None
    """[n], the time of each item; None if it is not known."""

    inputs: Mapping[str, np.ndarray]

    column: Callable[[str], np.ndarray] | None = None
    """HeldOut.column; None for stored predictions."""

    measure: Callable[[Version], Measured]
    """Measures a version on them, or reads its stored predictions."""

    @classmethod
    def of_data(cls, data: str, jobs: VersionJobs | None = None) -> "TestItems":
        """Return the test items of a dataset, on which each version is measured once.

        Args:
            data: URI of the dataset, or of its test part.
            jobs: Where a predict command runs; None runs it on this machine.
        """
        held_out = HeldOut.open(data)
        measured: dict[str, Measured] = {}

        def measure(version: Version) -> Measured:
            if version.version not in measured:
                measured[version.version] = _measure(version, held_out, jobs)
            return measured[version.version]

        return cls(
            target=held_out.part.target,
            classes=held_out.info.classes,
            units=held_out.units,
            keys=held_out.keys,
            times=held_out.times,
            inputs=held_out.part.inputs,
            column=held_out.column,
            measure=measure,
        )

    @classmethod
    def stored(cls, versions: Sequence[Version]) -> "TestItems":
        """Return the test items that all versions were evaluated on, with the predictions that are
        stored."""
        digests = [version.facts.dataset.test_digest for version in versions]
        missing = [
            f"{file} of {version.version}"
            for version in versions
            for file in (PREDICTIONS, TARGET)
            if file not in version.files
        ]
        if missing or None in digests or len(set(digests)) != 1:
            why = (
                f"{', '.join(missing)} is not stored"
                if missing
                else "they were evaluated on different test parts"
            )
            raise InvalidInput(
                f"versions are compared on the same test part, but {why}",
                "run them again: --data URI",
            )
        target = _stored_array(versions[0], TARGET)
        classes = versions[0].facts.dataset.classes or _numbered(target)
        hashes = stored_hashes(versions[0])

        def measure(version: Version) -> Measured:
            array = _stored_array(version, PREDICTIONS)
            if len(array) != len(target):
                raise Damaged(
                    f"{PREDICTIONS} of {version.version} has {len(array)} items, but {TARGET} {len(target)}"
                )
            seen = seen_by(version)
            fair = np.ones(len(target), bool)
            if hashes is not None and seen is not None:
                fair &= ~np.isin(hashes[:, :2], seen.hashes).any(axis=1)
            own = version.facts.dataset.classes or classes
            threshold = decision_threshold(version)
            return Measured(
                version=version.version,
                predicted=array,
                decided=threshold.decide(array, own) if threshold else None,
                classes=own,
                fair=fair,
                notes=_unknown(version, digests[0]) if seen is None else (),
            )

        units, keys = (None, None) if hashes is None else (hashes[:, 1], hashes[:, 2])
        return cls(
            target=target, classes=classes, units=units, keys=keys, inputs={}, measure=measure
        )

    def common(self, versions: Sequence[Version]) -> SharedItems:
        """Return the predictions for the items that are fair to all versions, with classes by name.

        Raises:
            TooFewItems: Hardly any are left.
        """
        measured = [
            replace(own, classes=spelled_as(self.classes, own.classes))
            for own in map(self.measure, versions)
        ]
        names = tuple(
            dict.fromkeys(
                [*self.classes, *(name for version in measured for name in version.classes)]
            )
        )
        fair = np.logical_and.reduce([version.fair for version in measured])
        notes = [note for version in measured for note in version.notes]
        if left_out := int((~fair).sum()):
            notes.append(
                f"{left_out:,} of {len(fair):,} test items {are(left_out)} left out: "
                "a model was trained on them or chosen by them, or cannot read them"
                f"{near_words(max(version.near for version in measured))}"
            )
        notes += [note for version in measured if (note := self._unknown_to(version, fair))]
        require_items(fair)
        items = self._in_order(np.flatnonzero(fair))
        predicted = _alike(
            [by_name(version.predicted[items], version.classes, names) for version in measured]
        )
        decided = (
            array if own.decided is None else by_name(own.decided[items], own.classes, names)
            for own, array in zip(measured, predicted, strict=True)
        )
        return SharedItems(
            items=items,
            target=self.target[items],
            classes=names,
            inputs=self.inputs,
            notes=tuple(notes),
            predicted=predicted,
            decided=tuple(decided),
            groups=_groups(self.units, items),
            units=None if self.units is None else self.units[items],
        )

    def _unknown_to(self, version: Measured, fair: np.ndarray) -> str:
        """Say how many items are of classes that a version does not know; empty for none."""
        unknown = [name for name in self.classes if version.classes and name not in version.classes]
        if not unknown:
            return ""
        lost = fair & np.isin(self.target, [self.classes.index(name) for name in unknown])
        return (
            f"{version.version} does not know {listed(unknown)}, so it is wrong on "
            f"{plural(int(lost.sum()), 'item')}"
        )

    def _in_order(self, items: np.ndarray) -> np.ndarray:
        """Return positions in the order of the hashes of items, equal ones by their target."""
        if self.keys is None:
            return items
        target = self.target.reshape(len(self.target), -1)
        units = self.keys if self.units is None else self.units
        return items[np.lexsort((*target[items].T, units[items], self.keys[items]))]


def by_name(predicted: np.ndarray, own: tuple[str, ...], names: tuple[str, ...]) -> np.ndarray:
    """Return predictions in the order of other classes, by name.

    Args:
        predicted: Probabilities [n, classes] or class indices [n].
        own: The classes they speak of.
        names: The classes wanted, own among them.
    """
    if own == names:
        return predicted
    places = np.array([names.index(name) for name in own])
    if predicted.ndim == 1:
        return places[predicted]
    renamed = np.zeros((len(predicted), len(names)), predicted.dtype)
    renamed[:, places] = predicted
    return renamed


def _alike(predicted: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return floats of one type: log_loss clips probabilities by the precision of theirs."""
    floats = [array.dtype for array in predicted if array.dtype.kind == "f"]
    kind = np.result_type(*floats) if floats else None
    return tuple(
        array.astype(kind, copy=False) if array.dtype.kind == "f" else array for array in predicted
    )


def _groups(units: np.ndarray | None, items: np.ndarray) -> np.ndarray | None:
    """Return the number of each item's unit; None if every item is one."""
    if units is None:
        return None
    different, numbers = np.unique(units[items], return_inverse=True)
    return None if len(different) == len(items) else numbers


def predictions(versions: Sequence[Version], data: str | None) -> SharedItems:
    """Get the predictions of versions for one test part.

    Args:
        data: URI of a dataset, or of its test part, to run them on; None to use the predictions
            stored with them.

    Raises:
        InvalidInput: No predictions are stored, or they are of different items, and no data is
            given; a version does not fit the dataset; or too few items are new to all versions.
    """
    items = TestItems.stored(versions) if data is None else TestItems.of_data(data)
    return items.common(versions)


def _numbered(target: np.ndarray) -> tuple[str, ...]:
    return (
        ()
        if target.dtype.kind == "f"
        else tuple(str(label) for label in range(int(target.max()) + 1))
    )


def _measure(version: Version, held_out: HeldOut, jobs: VersionJobs | None) -> Measured:
    name = version.title
    taken, fresh, near, notes = _prepare(version, held_out)
    classes = held_out.info.classes
    predicted = _stored_for(version, held_out) if taken.inputs is held_out.part.inputs else None
    if predicted is None:
        classes = class_names(version) or classes
        predicted = _run_version(version, taken, classes, jobs)
    target = held_out.part.target[taken.kept]
    if held_out.info.classes:  # the version's own classes may be others
        check_count(predicted, target, name=name)
    else:
        check_predictions(predicted, target, classes=None, name=name)
    fair, whole = (
        np.zeros(len(held_out), bool),
        np.zeros((len(held_out), *predicted.shape[1:]), predicted.dtype),
    )
    fair[taken.kept], whole[taken.kept] = fresh, predicted
    threshold = decision_threshold(version)
    return Measured(
        version=version.version,
        predicted=whole,
        decided=threshold.decide(whole, classes) if threshold else None,
        classes=classes,
        fair=fair,
        near=near,
        notes=notes,
    )


def _prepare(
    version: Version, held_out: HeldOut
) -> tuple[TestInputs, np.ndarray, int, tuple[str, ...]]:
    """Return the test items as a version takes them, which of them are new to it, how many of the
    others only nearly equal what it has seen, and what is not known.

    Raises:
        InvalidInput: It is of another task, or cannot be measured on these items.
    """
    name = version.title
    Task.of(held_out.info).require_same(version)
    own = beside(version, PREPROCESSING)
    taken = held_out.inputs_for(own if "kind" in own else {}, name)
    seen = seen_by(version)
    notes = _unknown(version, held_out.info.test_digest) if seen is None else ()
    return taken, *unseen(taken, held_out.groups, seen), notes


def check_comparable(model: "Championship", data: str) -> None:
    """Refuse a dataset on which no version of a model could be compared with the champion, before
    anything is trained.

    Args:
        model: By its name in the registry; it may have no version yet.
        data: URI of the dataset or of its test part.

    Raises:
        InvalidInput: It is of another task than the model, the champion cannot be measured on its
            test items, or hardly any of them is new to the champion.
    """
    Task.of(describe(data)).require_same_model(model)
    champion = model.find_champion()
    if champion is not None:
        held_out = HeldOut.open(data)
        require_items(_prepare(champion, held_out)[1])


def _unknown(version: Version, test_digest: str | None) -> tuple[str, ...]:
    facts = version.facts
    if facts.dataset.test_digest == test_digest and facts.origin.kind != "upload":
        return ()  # a run keeps the items that it evaluates on from what it trains
    return (unknown_training(version.title),)


def unknown_training(name: str, items: str = "test items") -> str:
    """Say that nobody knows whether a model has seen some items."""
    return (
        f"it is not known which items {name} was trained on: some of the {items} may be among them"
    )


def seen_by(version: Version) -> SeenItems | None:
    """Return what a version has seen in training; None if it is not known."""
    if SEEN not in version.files:
        return None
    return SeenItems.from_bytes(version.read(SEEN), f"{SEEN} of {version.title}")


def stored_hashes(version: Version) -> np.ndarray | None:
    """Return the content of its TEST_ITEMS; None if it has none."""
    if TEST_ITEMS not in version.files:
        return None
    return parse_hashes(version.read(TEST_ITEMS), f"{TEST_ITEMS} of {version.title}")


def _stored_for(version: Version, held_out: HeldOut) -> np.ndarray | None:
    """Return the stored predictions of a version if they are for these items and classes."""
    facts = version.facts.dataset
    same = (facts.test_digest, facts.classes) == (held_out.info.test_digest, held_out.info.classes)
    if not same or PREDICTIONS not in version.files:
        return None
    stored = _stored_array(version, PREDICTIONS)
    return stored if len(stored) == len(held_out) else None


def _stored_array(version: Version, file: str) -> np.ndarray:
    """Read an array that is stored with a version; never a pickle, which could run any code.

    Raises:
        Damaged: It is not an array of numbers, [n] or [n, k].
    """
    content = sealed.opened(version.read(file), f"{file} of {version.title}")
    with foreign(f"{file} of {version.title} is not an array", Damaged):
        array: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
    if (
        not isinstance(array, np.ndarray)
        or array.ndim not in (1, 2)
        or array.dtype.kind not in "iuf"
        or not array.size
    ):
        raise Damaged(f"{file} of {version.title} is not an array of numbers [n] or [n, k]")
    return array


def _run_version(
    version: Version,
    taken: TestInputs,
    classes: tuple[str, ...],
    jobs: VersionJobs | None = None,
) -> np.ndarray:
    count, opened = len(classes) or None, version.opened.model
    if jobs and isinstance(opened, CommandModel):
        return jobs.predict_version(version, taken.inputs, classes=count)
    return opened.predict(taken.inputs, classes=count)
