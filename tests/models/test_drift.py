"""PSI and KS over bins: their values, and how often chance alone is called drift."""

import numpy as np
import pytest

from podium.data.profile import Bins, Profile, _InputProfile
from podium.models.drift import Shift, shifts

DRAW = np.random.default_rng(11)


def shift_of(bins: Bins, values: np.ndarray) -> Shift:
    profile = Profile(inputs={"table": _InputProfile(meaning="table", bins=(bins,))})
    (shift,) = shifts(profile, {("input", bins.name): bins.count(values)})
    return shift


def test_the_index_is_that_of_its_definition() -> None:
    bins = Bins.of_categories(
        "plan", ["basic", "pro", "(missing)", "(unknown)"], np.repeat([0.0, 1], [6000, 4000])
    )
    shift = shift_of(bins, np.repeat([0.0, 1], [3000, 7000]))
    assert shift.psi == pytest.approx(
        (0.3 - 0.6) * np.log(0.3 / 0.6) + (0.7 - 0.4) * np.log(0.7 / 0.4), abs=1e-3
    )
    assert (shift.ks, shift.bin, shift.share) == (None, "basic", (0.6, 0.3))
    assert shift_of(bins, np.repeat([0.0, 1], [6000, 4000])).psi < 1e-6


def test_an_empty_bin_is_neither_infinite_nor_forgotten() -> None:
    bins = Bins.of_numbers("age", DRAW.normal(40, 8, 2000))
    beyond = shift_of(bins, np.concatenate([DRAW.normal(40, 8, 700), np.full(300, 999.0)]))
    assert 1 < beyond.psi < 10
    assert beyond.bin.startswith("above ")
    gone = shift_of(bins, np.full(1000, np.nan))
    assert (gone.verdict(0.2), gone.bin) == ("drift", "(missing)")


def test_the_largest_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    from scipy.stats import ks_2samp

    trained, now = DRAW.normal(0, 1, 5000), DRAW.normal(0.5, 1, 5000)
    assert shift_of(Bins.of_numbers("x", trained), now).ks == pytest.approx(
        ks_2samp(trained, now).statistic, abs=0.01
    )


SPREADS = {
    "normal": lambda count: DRAW.normal(40, 8, count),
    "mostly zero": lambda count: DRAW.exponential(5, count) * (DRAW.random(count) < 0.1),
    "few values": lambda count: DRAW.poisson(2, count).astype(float),
}


@pytest.mark.parametrize(("trained", "seen"), [(300, 200), (2000, 200), (500, 5000)])
@pytest.mark.parametrize("spread", SPREADS)
def test_chance_alone_is_hardly_ever_called_drift(spread: str, trained: int, seen: int) -> None:
    draws = [
        shift_of(Bins.of_numbers("x", SPREADS[spread](trained)), SPREADS[spread](seen)) for _ in range(1000)
    ]  # fmt: skip
    beyond = sum(shift.psi > shift.chance for shift in draws)
    assert beyond <= 8, "1 in 1,000, which is 1; 8 has a chance of 1 in 100,000"


def test_no_column_of_many_drifts_by_chance() -> None:
    drifted = looks = 0
    for _ in range(10):
        columns = DRAW.poisson(4, (300, 100)).astype(float)
        bins = [Bins.of_numbers(str(at), values) for at, values in enumerate(columns.T)]
        profile = Profile(inputs={"table": _InputProfile(meaning="table", bins=tuple(bins))})
        for _ in range(10):
            seen = DRAW.poisson(4, (200, 100)).astype(float)
            counts = {("input", of.name): of.count(seen[:, at]) for at, of in enumerate(bins)}
            drifted += any(each.verdict(0) == "drift" for each in shifts(profile, counts))
            looks += 1
    assert drifted <= 2, f"of {looks} looks"


@pytest.mark.parametrize(("names", "tail"), [(60, 2), (200, 1)])
@pytest.mark.parametrize(("trained", "seen"), [(500, 200), (500, 2000), (5000, 2000)])
def test_rare_categories_that_training_lacks_are_no_drift(
    names: int, tail: int, trained: int, seen: int
) -> None:
    shares = 1 / np.arange(1, names + 1) ** tail
    drifted = 0
    for _ in range(300):
        before, now = (DRAW.choice(names, n, p=shares / shares.sum()) for n in (trained, seen))
        known = np.unique(before)
        places = np.full(names, len(known) + 1)  # (unknown)
        places[known] = np.arange(len(known))
        bins = Bins.of_categories(
            "city", [*map(str, known), "(missing)", "(unknown)"], places[before]
        )
        drifted += shift_of(bins, places[now].astype(float)).verdict(0.2) == "drift"
    assert drifted <= 5, "1 in 1,000, which is 0.3; 5 has a chance of 1 in 100,000"


def test_no_items_at_all_are_no_drift() -> None:
    bins = Bins.of_categories("city", ["a", "b", "(missing)", "(unknown)"], np.arange(100) % 2)
    assert shift_of(bins, np.empty(0)).verdict(0.2) == "too few"


def test_a_new_category_and_a_renamed_one_are_drift() -> None:
    names = [*map(str, range(60)), "(missing)", "(unknown)"]
    bins = Bins.of_categories("city", names, np.repeat(np.arange(60), np.arange(1, 61)))
    now = DRAW.choice(60, 1000, p=np.arange(1, 61) / np.arange(1, 61).sum()).astype(float)
    assert shift_of(bins, now).verdict(0.2) == "same"
    renamed = shift_of(bins, np.where(now >= 57, 61.0, now))
    assert (renamed.verdict(0.2), renamed.bin) == ("drift", "(unknown)")
    assert shift_of(bins, np.where(np.arange(1000) % 4, now, 61.0)).verdict(0.2) == "drift"


@pytest.mark.parametrize("share", [0.1, 0.25])
@pytest.mark.parametrize(
    ("names", "tail", "trained", "is_known"), [(200, 0, 5000, False), (60, 2, 500, True)]
)
def test_a_category_that_becomes_common_is_drift(
    names: int, tail: int, trained: int, is_known: bool, share: float
) -> None:
    shares = 1 / np.arange(1, names + 1) ** tail
    before, now = (DRAW.choice(names, n, p=shares / shares.sum()) for n in (trained, 2000))
    known, times = np.unique(before, return_counts=True)
    places = np.full(names + 1, len(known) + 1)
    places[known] = np.arange(len(known))
    bins = Bins.of_categories("city", [*map(str, known), "(missing)", "(unknown)"], places[before])
    assert shift_of(bins, places[now].astype(float)).verdict(0.2) == "same"
    now[: int(share * len(now))] = known[times.argmin()] if is_known else names
    assert shift_of(bins, places[now].astype(float)).verdict(0.2) == "drift"


def test_few_items_are_not_judged_however_far_they_are() -> None:
    bins = Bins.of_numbers("age", DRAW.normal(40, 8, 2000))
    assert shift_of(bins, np.full(199, 90.0)).verdict(0.2) == "too few"
    assert shift_of(bins, np.full(200, 90.0)).verdict(0.2) == "drift"
    assert shift_of(bins, np.array([])).verdict(0.2) == "too few"
