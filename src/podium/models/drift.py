"""Whether what a version is asked now is like what it was trained on: PSI and KS over the bins of
its training part."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from podium.data.profile import MISSING, OTHER, UNKNOWN, Bins, Counts, Profile, Watch
from podium.data.rows import Problem
from podium.data.schema import DATES
from podium.errors import InvalidInput, NotFound
from podium.models.document import beside, command
from podium.models.version import Version
from podium.prediction import PREPROCESSING, PROFILE
from podium.system.exposition import read_samples

_LEAST = 200
"""Items; fewer are not judged."""

_RARE = 0.001
"""Probability that any PSI of a look is so large by chance alone, of items like those of the
training part."""

_FEW = 5
"""Training items of a category, fewer than which say little of its share."""


_EARLIER = 0.05
"""Share of the items by which no later bin may be less, nor the missing more, where time went on."""


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Distance of an input, or of the predictions, from the training part."""

    of: str
    """``input`` or ``prediction``."""

    name: str

    items: int

    psi: float
    """Population stability index; half an item is added to each bin, so that an empty one
    counts."""

    chance: float
    """PSI that so few items reach by chance in any column once in 1,000 times."""

    ks: float | None
    """Kolmogorov–Smirnov distance for numbers: the largest difference of the two cumulative
    distributions, at the edges of the bins."""

    bin: str
    """Whose share has changed most."""

    share: tuple[float, float]
    """Share of that bin in training and now."""

    is_later: bool = False
    """Whether it is a date and what has changed is only that time went on."""

    def verdict(self, limit: float, least: int = _LEAST) -> str:
        """Return ``too few``, ``drift``, ``later`` or ``same``.

        Args:
            limit: PSI above which it is drift, if chance does not reach it.
            least: Items.
        """
        if self.items < least:
            return "too few"
        changed = "later" if self.is_later else "drift"
        return changed if self.psi > max(limit, self.chance) else "same"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Binned requests to a version."""

    counts: Counts
    items: int
    notes: tuple[str, ...] = ()
    """Caveats for the reader, as sentences."""

    @classmethod
    def in_data(cls, version: Version, uri: str) -> "Seen":
        """Count the items of a file or folder, and what the version says of them; see
        Predictor.stream.

        Raises:
            NotFound, InvalidInput, Failed: As Predictor.stream.
        """
        watch, predictor = Watch(_require_profile(version)), version.opened
        predictor.seen = watch.note
        problems = [result for result in predictor.stream([uri]) if isinstance(result, Problem)]
        counts = watch.counts()
        notes = (
            [f"{len(problems):,} items could not be read and are not counted: {problems[0]}"]
            if problems
            else []
        )
        if watch.failures:
            notes.append(
                f"{watch.failures:,} calls of the model do not fit the bins and are not counted"
            )
        return cls(counts=counts, items=watch.items, notes=tuple(notes))

    @classmethod
    def by_servers(
        cls, version: Version, pages: Mapping[str, str], before: Mapping[str, str] | None = None
    ) -> "Seen":
        """Add up what servers have counted of a version.

        Args:
            pages: Their /metrics, by URL.
            before: Pages of an earlier look; what these had counted already is left out.

        Raises:
            NotFound: None of them counts items of this version.
            InvalidInput: A server's bins are not those of the version.
        """
        profile, notes = _require_profile(version), list[str]()
        keys = {of: list(bins.labels) for of, bins in profile.bins().items()}
        total: Counts = {of: np.zeros(len(labels), np.int64) for of, labels in keys.items()}
        items, others = 0, dict[str, int]()
        for url, page in pages.items():
            watched = _watched(page, version.name)
            earlier = (before or {}).get(url, "")
            if earlier and _began(earlier) != _began(page):
                notes.append(
                    f"{url} has restarted since the last time: its earlier counts are lost"
                )
                earlier = ""
            previous = _watched(earlier, version.name)
            if previous.get(version.version, 0) > watched.get(version.version, 0):
                earlier, previous = "", {}  # it forgot this version, and began again
            items += watched.get(version.version, 0) - previous.get(version.version, 0)
            for name, many in watched.items():
                others[name] = others.get(name, 0) + max(0, many - previous.get(name, 0))
            for sign, text in ((1, page), (-1, earlier)):
                _add(total, text, sign, version, keys, url)
            if failed := _failures(page, version) - _failures(earlier, version):
                notes.append(f"{url}: {failed:,} calls of the model could not be counted")
        own = others.pop(version.version, None)
        if own is None:
            told = f", but of {', '.join(sorted(others))}" if others else ""
            metrics = " ".join(f"--metrics {shlex.quote(url)}" for url in pages)
            words = (
                f"models drift {version.name}@{min(others)} {metrics}"
                if others
                else f"serve {version.name} --watch"
            )
            hint = command(words, version.storage)
            raise NotFound(f"{', '.join(pages)} counts no items of {version.title}{told}", hint)
        if others := {name: count for name, count in others.items() if count}:
            told = ", ".join(f"{count:,} of {name}" for name, count in others.items())
            notes.append(f"items that other versions answered are left out: {told}")
        return cls(counts=total, items=items, notes=tuple(notes))


def _require_profile(version: Version) -> Profile:
    profile = version.opened.profile
    if profile is None:
        raise InvalidInput(
            f"{version.title} has no {PROFILE} of its training part: no dataset was named",
            "train it again, or podium models upload --data DATASET",
        )
    return profile


def dates_of(version: Version) -> set[str]:
    """Return the columns of a version's table that hold dates."""
    fitted = beside(version, PREPROCESSING).get("columns", ())
    return {
        str(column.get("name"))
        for column in fitted
        if isinstance(column, dict) and column.get("type") in DATES
    }


def shifts(profile: Profile, counts: Counts, dates: Collection[str] = ()) -> list[Shift]:
    """Compare counts with the training part, predictions first, then the inputs that changed
    most.

    Args:
        dates: Inputs that time alone makes larger.
    """
    all_bins = profile.bins()
    found = [
        _shift(
            of,
            bins,
            counts[of, bins.name],
            is_date=of == "input" and bins.name in dates,
            rare=_RARE / len(all_bins),
        )
        for (of, _), bins in all_bins.items()
    ]
    return sorted(found, key=lambda shift: (shift.of == "input", -shift.psi))


def _shift(of: str, bins: Bins, counts: NDArray[np.int64], *, is_date: bool, rare: float) -> Shift:
    trained, tail = np.array(bins.counts), _rare(bins, counts)
    pooled = [np.append(array[~tail], array[tail].sum()) for array in (counts, trained)]
    used = np.add(*pooled) > 0
    here, there = (((array[used] + 0.5) / (array[used] + 0.5).sum()) for array in pooled)
    items, of_training = int(counts.sum()), max(1, int(trained.sum()))
    # Without a change PSI is about chi-squared of bins - 1, times this (Yurdakul: Statistical
    # Properties of PSI).
    noise = 1 / max(1, items) + 1 / of_training
    now, before = counts / max(1, items), trained / of_training
    at = int(np.abs(now - before).argmax())
    # What is missing has no place among the numbers.
    ladder = [array[:-1].cumsum() / max(1, array[:-1].sum()) for array in (counts, trained)]
    more = now - before
    # A missing date counts as the median, which comes before what is less than it was.
    newest = more[(more > _EARLIER).argmax() : -1]
    only_later = more[-1] <= _EARLIER and (newest >= -_EARLIER).all()
    return Shift(
        of=of,
        name=bins.name,
        items=items,
        psi=float(((here - there) * np.log(here / there)).sum()),
        chance=float(chdtri(max(1, int(used.sum()) - 1), rare) * noise),
        ks=float(np.abs(ladder[0] - ladder[1]).max()) if bins.ordered else None,
        bin=bins.labels[at],
        share=(float(before[at]), float(now[at])),
        is_later=is_date and bool(only_later),
    )


def _rare(bins: Bins, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which bins count as one: of a long tail of categories others come next time, and the
    training part has none that it does not know. One that has become common counts alone."""
    trained, labels = np.array(bins.counts), np.array(bins.labels)
    if bins.ordered:
        return np.zeros(len(labels), bool)
    tail = np.isin(labels, (UNKNOWN, OTHER)) | (trained < _FEW)
    most = np.full(len(labels), float(_FEW))
    most[labels == UNKNOWN] = _met_once(bins)
    # As many as chance allows, once in the training part and once here.
    expected = _beyond_chance(most) * counts.sum() / max(1, trained.sum())
    usual = (labels == OTHER) | (counts <= _beyond_chance(expected))
    return tail & (labels != MISSING) & usual


def _beyond_chance(count: NDArray[np.float64]) -> NDArray[np.float64]:
    return count + 4 * np.sqrt(count) + 4


def _met_once(bins: Bins) -> float:
    """Return how many categories at most had one training item: as many items of unknown ones come
    among as many others (Good: The population frequencies of species, 1953)."""
    counts = dict(zip(bins.labels, bins.counts, strict=True))
    places = dict(zip(bins.labels, bins.categories, strict=False))
    others = counts.get(OTHER, 0)
    named = [count for label, count in counts.items() if label not in (MISSING, UNKNOWN, OTHER)]
    rest = places.get(UNKNOWN, 0) - 1 - len(named)  # their names come first, then (missing)
    # None of the rest has more than any that is named.
    most = max(2, min(named, default=2))
    return named.count(1) + min(others, max(0, rest * most - others) / (most - 1))


def _add(
    total: Counts,
    page: str,
    sign: int,
    version: Version,
    keys: Mapping[tuple[str, str], list[str]],
    url: str,
) -> None:
    for labels, count in read_samples(page, "podium_serve_bin_items_total"):
        if _is(labels, version):
            key = (labels["of"], labels["name"])
            if labels["bin"] not in keys.get(key, ()):
                raise InvalidInput(
                    f"{url} counts {labels['name']} in bins that {version.title} does not have",
                    "does it serve another model of this name?",
                )
            total[key][keys[key].index(labels["bin"])] += sign * int(count)


def _is(labels: Mapping[str, str], version: Version) -> bool:
    return (labels["model"], labels["version"]) == (version.name, version.version)


def _watched(page: str, model: str) -> dict[str, int]:
    samples = read_samples(page, "podium_serve_watched_items_total")
    return {labels["version"]: int(count) for labels, count in samples if labels["model"] == model}


def _failures(page: str, version: Version) -> int:
    samples = read_samples(page, "podium_serve_watch_failures_total")
    return sum(int(count) for labels, count in samples if _is(labels, version))


def _began(page: str) -> float | None:
    return next(
        (value for _, value in read_samples(page, "podium_serve_start_timestamp_seconds")), None
    )
