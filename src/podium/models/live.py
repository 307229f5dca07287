"""Items that a server answered, with labels that came later: what promotion compares two versions
on in place of a test part.

An item counts for a comparison if both versions answered it, it has a label, and neither has seen
it in training. Equal items count together, as a group does: asking one often proves nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from podium.data.row_files import open_rows
from podium.data.test_part import sketch
from podium.data.values import to_numbers, to_text
from podium.display.text import are, figure, iso, listed, plural
from podium.errors import Damaged, InvalidInput
from podium.files.documents import foreign
from podium.models.document import command
from podium.models.recorded import Answer, Exchange, Recording, digest_of
from podium.models.shared_items import Measured, TestItems, seen_by, unknown_training
from podium.models.task import decision_threshold, spellings
from podium.models.version import Version
from podium.scoring.scores import check_predictions
from podium.storage import absolute

_NAMED = 3
"""Ids that a sentence names."""

_MOST_UNANSWERED = 0.01
"""Share of the labeled items that a version may have left without an answer."""

_BIASED, _BIASED_BY = 0.001, 0.05
"""Labeled items are no sample of the recorded ones if the share on which two versions answer the
same, or one says a class, differs from that of the others by more, and chance does that so
rarely."""

_Item = tuple[str, int]
"""Id of a request, and the item's place in it."""


@dataclass(frozen=True, kw_only=True)
class LiveItems:
    """Recorded answers and labels of a model.

    Raises:
        NotFound: There are no recorded answers, or no such file of labels.
        InvalidInput: The labels lack a column, name an item twice, do not fit, or are of no
            recorded request.
        Damaged: A recorded answer cannot be read.
    """

    model: str
    recorded: str
    """Directory or URI."""

    labels: Path
    """Table with the columns id and label, and item where a request has several."""

    @property
    def evidence(self) -> dict[str, Any]:
        """Where the items come from, for the history."""
        times = [self._exchanges[name].time for name, _ in self._labeled]
        return {
            "recorded_in": absolute(self.recorded),
            "labels_in": str(self.labels.absolute()),
            "labels_sha256": sha256(self.labels.read_bytes()).hexdigest(),
            "items": len(self._labeled),
            "since": iso(min(times)),
            "until": iso(max(times)),
        }

    @property
    def test_part(self) -> str:
        """Short text that tells the set of items."""
        return sketch(self._hashes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the items come from, and which are left out, in sentences."""
        evidence = self.evidence
        every = sum(len(_first(exchange).items) for exchange in self._exchanges.values())
        unlabeled, spare = every - len(self._labeled), len(self._labels) - len(self._labeled)
        notes = [
            f"compared on live items that were answered from {evidence['since']} to {evidence['until']}: "
            f"{self._recording.url}, labels of {self.labels}"
        ]
        if unlabeled:
            notes.append(f"{unlabeled:,} of {every:,} recorded items have no label")
        if spare:
            notes.append(f"{plural(spare, 'label')} {are(spare)} of no recorded item")
        if self._ambiguous:
            notes.append(
                f"{plural(len(self._ambiguous), 'request id')} {are(len(self._ambiguous))} left out, "
                f"as other items came under the same id: {_some(sorted(self._ambiguous))}"
            )
        return tuple(notes)

    def of(self, challenger: Version) -> TestItems:
        """Return the labeled items, on which versions are measured by what they answered.

        Args:
            challenger: Says whether labels are classes or numbers.

        Raises:
            InvalidInput: They are neither its classes nor numbers, or it failed on too many items.
        """
        self._require_answers(challenger)
        texts, classes = [self._labels[item] for item in self._labeled], _classes(challenger)
        if classes:
            spelled = spellings(classes, texts)
            texts = [spelled[text] for text in texts]
            if not {*texts} & {*classes}:  # both versions would be wrong on all, and so not worse
                raise InvalidInput(
                    f"{self.labels}: none of the {len(texts):,} labels of recorded items, such as {texts[0]!r}, "
                    f"is a class of {challenger.title}: {listed(classes)}",
                    "write the labels as the classes are named",
                )
            names = tuple(dict.fromkeys([*classes, *sorted(set(texts))]))
            places = {name: at for at, name in enumerate(names)}
            target = np.array([places[text] for text in texts])
        else:
            names, target = (), to_numbers(pa.array(texts))[0]
            if np.isnan(target).any():
                wrong = texts[int(np.flatnonzero(np.isnan(target))[0])]
                raise InvalidInput(
                    f"{self.labels}: the label {wrong!r} is not a number, and {challenger.title} predicts numbers"
                )
        times = [self._exchanges[name].time.replace(tzinfo=None) for name, _ in self._labeled]
        return TestItems(
            target=target,
            classes=names,
            units=self._hashes,
            keys=self._hashes,
            times=np.array(times, "datetime64[us]"),
            inputs={},
            column=self._column,
            measure=self._measure,
        )

    def agreement(self, one: Version, other: Version) -> str:
        """Return how often two versions answer the same, on items with a label and on others, as a
        sentence; empty if there are no others. Equal items count once, and those that were asked
        after the last with a label are none. Numbers are the same if they are as near as those of
        half of the items.

        Raises:
            InvalidInput: The labeled items are plainly no sample of the recorded ones.
        """
        labeled, both = set(self._labeled), [self._answers(version) for version in (one, other)]
        last = max(self._exchanges[name].time for name, _ in self._labeled)
        found = dict[str, tuple[Any, Any, bool, str]]()
        for name, exchange in self._exchanges.items():
            first, second = (responses.get(name) for responses in both)
            asked = first and second and exchange.time <= last
            for at, item in enumerate(_first(exchange).items if asked else ()):
                said = first.predicted[at], second.predicted[at]  # type: ignore[union-attr]
                if item and None not in said:
                    is_labeled = (name, at) in labeled or (item in found and found[item][2])
                    found[item] = *said, is_labeled, name
        marks = [is_labeled for _, _, is_labeled, _ in found.values()]
        if all(marks) or not any(marks):
            return ""
        answers = zip(*found.values(), strict=True)
        firsts, seconds = (_said(version, list(next(answers))) for version in (one, other))
        marked, requests = np.array(next(answers)), list(next(answers))
        if names := _classes(one):
            spelled = spellings(names, seconds.tolist())
            seconds = np.array([spelled[name] for name in seconds.tolist()])
            same, alike = firsts == seconds, "the same"
        else:
            gaps = np.abs(firsts - seconds).reshape(len(firsts), -1).mean(1)
            same, alike = gaps <= np.median(gaps), "nearly the same"
        told = _shares(f"{one.version} and {other.version} answer {alike}", same, marked, requests)
        leans = [
            _shares(f"{version.version} says {words}", flags, marked, requests, among)
            for version, said in ((one, firsts), (other, seconds))
            for words, flags, among in [_leaning(said, marked)]
        ]
        for sentence, chance, apart in (told, *leans):
            if chance < _BIASED and apart > _BIASED_BY:
                raise InvalidInput(
                    f"the labeled items are no sample of the recorded ones: {sentence}; refused below p = {_BIASED:g} "
                    f"and from {100 * _BIASED_BY:g} points on",
                    "label ids that are drawn by chance, or compare on the test part: "
                    + command(
                        f"models promote {one.name} {one.version} --rule likely", one.storage
                    ),
                )
        return told[0]

    def _answers(self, version: Version) -> dict[str, Answer | None]:
        """Return what a version answered, by request, None where it failed; what another model of
        its name answered is not there."""
        digest, name = digest_of(version), version.version
        return {
            each.id: each.answers.get(name)
            for each in self._exchanges.values()
            if each.digests.get(name) == digest
        }

    def _column(self, name: str) -> np.ndarray:
        raise InvalidInput(
            f"slice={name} needs the columns of the items, and {self._recording.url} holds hashes of them",
            f"podium models promote {self.model} VERSION --rule slice={name} --data URI compares on a dataset",
        )

    def _require_answers(self, version: Version) -> None:
        """Refuse a version that failed where another one answered: it would be judged by the items
        that it is good at."""
        answers, asked, without = self._answers(version), 0, 0
        for name, at in self._labeled:
            if name not in answers:
                continue  # nobody asked it
            answer = answers[name]
            asked += 1
            without += answer is None or answer.predicted[at] is None
        if without > _MOST_UNANSWERED * asked:
            raise InvalidInput(
                f"{version.title} has no answer to {without:,} of {asked:,} labeled items that it was asked for: "
                f"on the others alone it would look too good",
                f"see why it fails: {command(f'serve {version.name}@{version.version}', version.storage)}",
            )

    def _measure(self, version: Version) -> Measured:
        """Return what a version answered of the labeled items.

        Raises:
            InvalidInput: It answered none of them.
            Damaged: Its predictions are of other classes.
        """
        exchanges = list(self._exchanges.values())
        by_request = self._answers(version)
        answers = [by_request.get(name) for name, _ in self._labeled]
        others = sum(version.version in each.digests for each in exchanges) - len(by_request)
        answered = np.array(
            [
                bool(answer) and answer.predicted[at] is not None  # type: ignore[union-attr]
                for answer, (_, at) in zip(answers, self._labeled, strict=True)
            ]
        )
        if not answered.any():
            versions = sorted({name for each in exchanges for name in each.answers})
            serve = f"serve {version.name} --shadow {version.version} --record DIRECTORY"
            raise InvalidInput(
                f"{version.title} answered none of the labeled items in {self._recording.url}"
                + (
                    f", where {version.version} is another model of that name"
                    if others
                    else f"; versions that answered there: {', '.join(versions)}"
                ),
                f"{command(serve, version.storage)} records its answers",
            )
        chosen = [
            (answer, at)
            for answer, (_, at), holds in zip(answers, self._labeled, answered, strict=True)
            if holds and answer
        ]
        classes = _classes(version)
        some = _array([answer.predicted[at] for answer, at in chosen], classes, version)
        predicted = np.zeros((len(answered), *some.shape[1:]), some.dtype)
        predicted[answered] = some
        fair, notes = answered.copy(), []
        if missing := int((~answered).sum()):
            notes.append(f"{version.version} has no answer to {plural(missing, 'live item')}")
        if others:
            notes.append(
                f"{plural(others, 'recorded answer')} of {version.version} {are(others)} left out, as "
                "another model of that name gave them"
            )
        if failed := sum(answer is None for answer in by_request.values()):
            notes.append(f"{version.version} failed on {plural(failed, 'recorded request')}")
        if (seen := seen_by(version)) is None:
            notes.append(unknown_training(version.title, "live items"))
        else:
            hashes = np.array([int(answer.items[at], 16) for answer, at in chosen], np.uint64)
            fair[answered] = ~np.isin(hashes, seen.hashes)
            if count := int(answered.sum() - fair.sum()):
                notes.append(f"{version.version} has seen {plural(count, 'live item')} in training")
        threshold = decision_threshold(version)
        return Measured(
            version=version.version,
            predicted=predicted,
            decided=threshold.decide(predicted, classes) if threshold else None,
            classes=classes,
            fair=fair,
            notes=tuple(notes),
        )

    @cached_property
    def _recording(self) -> Recording:
        return Recording(self.recorded, self.model)

    @property
    def _exchanges(self) -> dict[str, Exchange]:
        return self._recording.requests[0]

    @property
    def _ambiguous(self) -> set[str]:
        return self._recording.requests[1]

    @cached_property
    def _labels(self) -> Mapping[_Item, str]:
        return _read_labels(self.labels)

    @cached_property
    def _labeled(self) -> list[_Item]:
        """Recorded items that have a label, in the order in which they were asked."""
        found = [
            (name, at)
            for name, exchange in self._exchanges.items()
            for at, item in enumerate(_first(exchange).items)
            if item and (name, at) in self._labels
        ]
        if not self._exchanges:
            raise InvalidInput(
                f"each request id in {self._recording.url} stands for different items, which labels by "
                f"id cannot tell apart: {_some(sorted(self._ambiguous))}"
                if self._ambiguous
                else f"no request in {self._recording.url} was answered",
                f"podium serve {self.model} --shadow VERSION --record DIRECTORY: a request without an id "
                f"gets one of its own",
            )
        if not found:
            raise InvalidInput(
                f"none of the {len(self._labels):,} labels in {self.labels} is of a request in {self._recording.url}",
                f"ids there, as the answers had them: {_some(self._exchanges)}",
            )
        return found

    @cached_property
    def _hashes(self) -> np.ndarray:
        items = (_first(self._exchanges[name]).items[at] for name, at in self._labeled)
        return np.array([int(item, 16) for item in items], np.uint64)


def _first(exchange: Exchange) -> Answer:
    """Return the answer that the client got, or the only one."""
    return next(iter(exchange.answers.values()))


def _leaning(said: np.ndarray, marked: np.ndarray) -> tuple[str, np.ndarray, int]:
    """Return the answer whose share differs most between items with a label and others, in words,
    which items got it, and of how many answers; of numbers those above the median."""
    if said.dtype.kind == "f":
        values = said.reshape(len(said), -1).mean(1)
        middle = float(np.median(values))
        return f"more than {figure(middle)}", values > middle, 1
    names, place = np.unique(said, return_inverse=True)
    sides = [np.bincount(place[side], minlength=len(names)) for side in (marked, ~marked)]
    at = int(np.abs(sides[0] / sides[0].sum() - sides[1] / sides[1].sum()).argmax())
    return str(names[at]), place == at, len(names)


def _shares(
    words: str, flags: np.ndarray, marked: np.ndarray, requests: list[str], among: int = 1
) -> tuple[str, float, float]:
    """Return on which share of items with a label and of others something holds, as a sentence, how
    likely chance leaves them so far apart, and how far that is.

    Args:
        words: What holds.
        among: Of so many such things it differs most (Bonferroni).
    """
    counts = [[int((flags & side).sum()), int((~flags & side).sum())] for side in (marked, ~marked)]
    (with_, others), (test, chance) = map(sum, counts), _chance(counts, flags, marked, requests)
    shares, chance = (counts[0][0] / with_, counts[1][0] / others), min(1.0, chance * among)
    sentence = (
        f"{words} on {shares[0]:.1%} of {plural(with_, 'item')} with a label and on "
        f"{shares[1]:.1%} of {others:,} without one ({test}: p = {chance:.2g})"
    )
    return sentence, chance, abs(shares[0] - shares[1])


def _chance(
    counts: list[list[int]], same: np.ndarray, marked: np.ndarray, requests: list[str]
) -> tuple[str, float]:
    """Return how often labels that are drawn by chance leave shares so far apart, and by which
    test.

    Items of one request are not independent, so where requests hold several the larger of two is
    taken: Fisher's suits items that were drawn one by one, Mann-Whitney's whole requests.
    """
    from scipy.stats import fisher_exact, mannwhitneyu  # takes a second

    shares = dict[tuple[str, bool], list[bool]]()
    for request, mark, alike in zip(requests, marked.tolist(), same.tolist(), strict=True):
        shares.setdefault((request, mark), []).append(alike)
    by_items = float(fisher_exact(counts).pvalue)
    if all(len(of) == 1 for of in shares.values()):
        return "Fisher's exact test", by_items
    sides = [
        [float(np.mean(of)) for (_, mark), of in shares.items() if mark is side]
        for side in (True, False)
    ]
    by_requests = float(mannwhitneyu(*sides).pvalue)
    return "Fisher's test of items, Mann-Whitney's of requests", max(by_items, by_requests)


def _said(version: Version, predicted: list[Any]) -> np.ndarray:
    """Return what a version says of items: classes by name, or numbers."""
    classes, threshold = _classes(version), decision_threshold(version)
    array = _array(predicted, classes, version)
    if not classes:
        return array
    if threshold:
        array = threshold.decide(array, classes)
    return np.array(classes)[array.argmax(1) if array.ndim > 1 else array]


def _some(names: Any) -> str:
    shown = [repr(name) for name, _ in zip(names, range(_NAMED), strict=False)]
    return ", ".join(shown) + (" …" if len(names) > _NAMED else "")


def _classes(version: Version) -> tuple[str, ...]:
    return version.opened.classes or ()


def _array(predicted: list[Any], classes: tuple[str, ...], version: Version) -> np.ndarray:
    """Return recorded predictions as an array that is fit to be compared."""
    with foreign(f"recorded answers of {version.title} are not predictions", Damaged):
        array = np.array(predicted if classes else np.array(predicted, np.float64))
        if array.dtype.kind not in ("iu" if classes and array.ndim == 1 else "iuf"):
            raise ValueError(f"they are {array.dtype}")
    count, none = len(classes) or None, np.zeros(len(array))
    check_predictions(array, none, classes=count, name=f"the recorded {version.title}")
    return array


def _read_labels(path: Path) -> Mapping[_Item, str]:
    """Read labels by item; rows without one are left out.

    Raises:
        NotFound: There is no such file.
        InvalidInput: It lacks a column, or an item comes twice.
    """
    file, labels, rows = open_rows(path), dict[_Item, str](), dict[_Item, int]()
    file.require("id", role="the request's id")
    file.require("label", role="the true class or number")
    for batch in file:
        ids = to_text(batch.columns["id"], ("",)).to_pylist()
        texts = to_text(batch.columns["label"]).to_pylist()
        places = np.zeros(len(batch))
        if "item" in batch.columns:
            places = to_numbers(batch.columns["item"])[0]
        for row, name, text, at in zip(
            batch.numbers.tolist(), ids, texts, places.tolist(), strict=True
        ):
            if name is None or text is None:
                continue
            if not at >= 0 or at != int(at):
                raise InvalidInput(
                    f"{path}, row {row}: item is the place in the request, from 0, not {at}"
                )
            item = name, int(at)
            if item in rows:
                raise InvalidInput(
                    f"{path} labels item {item[1]} of the request {name!r} twice, in rows {rows[item]} and {row}",
                    "keep one row of each; the column item tells items of one request apart",
                )
            labels[item], rows[item] = text, row
    if not labels:
        raise InvalidInput(f"{path} has no labels", "a table with the columns id and label")
    return labels
