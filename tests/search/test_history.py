"""A model sees a bounded part of a long sweep, and the same as ever of a short one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.manifests.experiment.space import read_space
from podium.search.algorithms import ALGORITHMS
from podium.search.search import JOURNAL, Search, _open_journal

pytestmark = pytest.mark.whole

LIMIT = 60
LEARNING = ["tpe", "multivariate-tpe"]
SPACE = read_space(
    [
        {"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}},
        {"name": "kind", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b"]}},
    ]
)


def search(
    directory: Path, algorithm: str = "tpe", *, maximize: bool = False, **settings: Any
) -> Search:
    given = {"random_state": 5, **settings}
    return Search(
        list(SPACE), algorithm, given, maximize=maximize, directory=directory, name="study"
    )


def run(asked: Search, first: int, count: int) -> list[dict[str, str]]:
    points = []
    for number in range(first, first + count):
        point = asked.ask(f"t{number}")
        assert point
        points.append(point)
        asked.tell(
            f"t{number}",
            abs(float(point["x"]) - 0.3) + (point["kind"] == "b") if number % 9 else None,
        )
    return points


def limit(monkeypatch: pytest.MonkeyPatch, algorithm: str, trials: int | None) -> None:
    monkeypatch.setitem(ALGORITHMS.own, algorithm, replace(ALGORITHMS[algorithm], history=trials))


def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Record the trials that TPE models, each time it is asked."""
    from optuna.samplers import TPESampler

    looks: list[list[Any]] = []
    before = TPESampler.before_trial

    def look(self: Any, study: Any, trial: Any) -> None:
        looks.append(
            [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        )
        before(self, study, trial)

    monkeypatch.setattr(TPESampler, "before_trial", look)
    return looks


@pytest.mark.parametrize("algorithm", [*LEARNING, "bayesianoptimization"])
def test_points_below_the_limit_are_the_whole_historys(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 14 if algorithm == "bayesianoptimization" else LIMIT - 1
    limit(monkeypatch, algorithm, LIMIT)
    bounded = run(search(tmp_path / "bounded", algorithm), 0, count)
    limit(monkeypatch, algorithm, None)  # asks the study on disk
    assert run(search(tmp_path / "whole", algorithm), 0, count) == bounded


@pytest.mark.parametrize("algorithm", LEARNING)
@pytest.mark.parametrize("maximize", [False, True])
def test_a_model_sees_few_trials_and_always_the_best(
    algorithm: str, maximize: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, algorithm, LIMIT)
    looks = seen(monkeypatch)
    asked = search(tmp_path, algorithm, maximize=maximize)
    run(asked, 0, 4 * LIMIT)
    assert max(map(len, looks)) < LIMIT
    values = sorted(
        (trial.value for trial in record(tmp_path) if trial.value is not None), reverse=maximize
    )
    asked.ask("last")
    assert (
        sorted((trial.value for trial in looks[-1] if trial.value is not None), reverse=maximize)[
            :25
        ]
        == values[:25]
    )


def record(directory: Path) -> list[Any]:
    import optuna

    storage = optuna.storages.JournalStorage(_open_journal(directory / JOURNAL))
    return optuna.load_study(study_name="study", storage=storage).trials


def test_the_record_on_disk_keeps_every_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "tpe", LIMIT)
    points = run(search(tmp_path), 0, 3 * LIMIT)
    trials = record(tmp_path)
    assert [trial.user_attrs["trial"] for trial in trials] == [
        f"t{number}" for number in range(3 * LIMIT)
    ]
    assert [
        {name: str(value) for name, value in trial.params.items()} for trial in trials
    ] == points
    assert sum(trial.state.name == "FAIL" for trial in trials) == 3 * LIMIT / 9


def test_a_resumed_long_sweep_is_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, "tpe", LIMIT)
    points = run(search(tmp_path), 0, 3 * LIMIT)
    looks = seen(monkeypatch)
    again = search(tmp_path)
    assert not any(point in points for point in run(again, 3 * LIMIT, 3))
    assert [len(look) for look in looks] == [LIMIT // 2, LIMIT // 2 + 1, LIMIT // 2 + 2]
    for number in range(3 * LIMIT):
        again.tell(f"t{number}", 0.0)  # they have ended, seen or not
    assert sum(trial.value == 0.0 for trial in record(tmp_path)) == 0


def test_running_trials_stay_in_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, "tpe", LIMIT)
    asked = search(tmp_path)
    run(asked, 0, 20)
    for number in range(20, 24):
        asked.ask(f"t{number}")
    run(asked, 24, 2 * LIMIT)
    looks = seen(monkeypatch)
    asked.ask("last")
    assert [trial.user_attrs.get("trial") for trial in looks[-1] if not trial.state.is_finished()] == [
        "t20", "t21", "t22", "t23",
    ]  # fmt: skip
    asked.tell("t20", 0.5)
    assert (
        next(trial for trial in record(tmp_path) if trial.user_attrs["trial"] == "t20").value == 0.5
    )


def test_hyperopts_share_of_good_trials_counts_the_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"gamma": 0.5}
    make = ALGORITHMS["tpe"].sampler
    assert make
    monkeypatch.setattr("optuna.samplers.TPESampler", lambda **given: given["gamma"])
    share: Any = make(settings, (), 1, 0)
    assert (share(100), share(400)) == (5, 10)
    rest: Any = make(settings, (), 1, 300)
    assert rest(100) == 10
