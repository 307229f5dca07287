"""The same points twice, in whatever order trials end and however often the search is begun anew."""

import random
from pathlib import Path
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.manifests.experiment.space import read_space
from podium.search.algorithm import PastTrial
from podium.search.algorithms import ALGORITHMS
from podium.search.search import Search
from podium.search.space import Parameter

pytestmark = pytest.mark.whole

SPACE = list(
    read_space(
        [
            {
                "name": "lr",
                "parameterType": "double",
                "feasibleSpace": {"min": "0.001", "max": "1", "step": "0.001"},
            },
            {
                "name": "width",
                "parameterType": "int",
                "feasibleSpace": {"min": "1", "max": "27", "step": "1"},
            },
            {"name": "kind", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b"]}},
        ]
    )
)
SETTINGS: dict[str, dict[str, Any]] = {
    "hyperband": {"r_l": 9.0, "eta": 3, "resource_name": "width"},
    "asha": {"r_l": 27.0, "eta": 3, "resource_name": "width"},
    "pbt": {"suggestion_trial_dir": "/x", "n_population": 5, "truncation_threshold": 0.2},
    "bayesianoptimization": {"n_initial_points": 5},
    "cmaes with restarts": {"restart_strategy": "ipop"},
}
LAG, TRIALS = 6, {"bayesianoptimization": 11}  # whose suggestions take long


def loss(point: dict[str, str]) -> float | None:
    """A trial's result; one with a wide network of kind b fails."""
    if point["kind"] == "b" and float(point["width"]) > 20:
        return None
    return (
        (float(point["lr"]) - 0.3) ** 2
        + (float(point["width"]) - 9) ** 2 / 100
        + (point["kind"] == "a")
    )


class Sweep:
    """Trials that end in a random order, by so many workers, in a process that is killed now and then."""

    def __init__(self, folder: Path, algorithm: str, workers: int, luck: int, kill: float) -> None:
        self.folder, self.luck, self.workers, self.kill = folder, random.Random(luck), workers, kill
        self.algorithm, self.settings = algorithm.partition(" ")[0], SETTINGS.get(algorithm, {})
        self.trials: dict[str, PastTrial] = {}
        self.starts, self.most = 0, TRIALS.get(algorithm, 30)

    def begin(self) -> Search:
        self.starts += 1
        begun = self.luck.sample(
            list(self.trials.values()), len(self.trials)
        )  # an API server has no order
        return Search(
            SPACE, self.algorithm, {"random_state": 7, **self.settings}, maximize=False, begun=begun, lag=LAG,
            directory=self.folder / str(self.starts if self.luck.random() < 0.5 else 0), name="sweep",
        )  # fmt: skip

    def run(self) -> list[tuple[str, ...]]:
        search = self.begin()
        while True:
            if self.luck.random() < self.kill:
                search = self.begin()
            running = [past for past in self.trials.values() if past.running]
            name = f"trial-{self.luck.randrange(10**9)}"
            if (
                len(running) < self.workers
                and len(self.trials) < self.most
                and (point := search.ask(name))
            ):
                if self.luck.random() < self.kill:  # between the point and its trial
                    search = self.begin()
                    continue
                self.trials[name] = PastTrial(
                    trial=name, point=point, value=None, running=True, tags=search.tags(name)
                )
            elif running:
                ended = self.luck.choice(running)
                ended.running, ended.value = False, loss(ended.point)
                search.tell(ended.trial, ended.value)
            else:
                return [tuple(past.point.values()) for past in self.trials.values()]


@pytest.mark.parametrize(
    "algorithm", [*(name for name in ALGORITHMS if name != "grid"), "grid", "cmaes with restarts"]
)
def test_workers_delays_and_kills_change_no_trial(tmp_path: Path, algorithm: str) -> None:
    expected = Sweep(tmp_path / "one", algorithm, workers=1, luck=0, kill=0.0).run()
    assert len(expected) > 10
    for luck, (workers, kill) in enumerate(
        [(1, 0.1), (4, 0.0), (LAG, 0.0), (4, 0.1), (LAG, 0.2)], 1
    ):
        assert Sweep(tmp_path / str(luck), algorithm, workers, luck, kill).run() == expected, (
            workers,
            kill,
        )


BELLS = [
    Parameter(name="drop", kind="double", low=0.0, high=1.0, distribution="normal"),
    Parameter(name="decay", kind="double", low=1e-4, high=1e-1, distribution="logNormal"),
]


@pytest.mark.parametrize("algorithm", ["sobol", "cmaes with restarts"])
def test_values_of_a_bell_are_the_same_when_resumed(tmp_path: Path, algorithm: str) -> None:
    def search(begun: list[PastTrial] | None = None) -> Search:
        settings = {"random_state": 1, **SETTINGS.get(algorithm, {})}
        name = algorithm.partition(" ")[0]
        return Search(
            BELLS,
            name,
            settings,
            maximize=True,
            directory=tmp_path,
            name="s",
            begun=begun,
            lag=1,
        )

    asked, begun = search(), list[PastTrial]()
    for number in range(16):
        trial, value = f"t{number}", number / 10
        point = asked.ask(trial)
        assert point
        begun.append(PastTrial(trial=trial, point=point, value=value, tags=asked.tags(trial)))
        asked.tell(trial, value)
    assert search(begun).ask("next") == asked.ask("next")


def test_points_depend_on_earlier_results(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "tpe", workers=4, luck=1, kill=0.0)
    points = sweep.run()
    late = [
        value
        for value in map(loss, (past.point for past in list(sweep.trials.values())[20:]))
        if value is not None
    ]
    early = [
        value
        for value in map(loss, (past.point for past in list(sweep.trials.values())[:10]))
        if value is not None
    ]
    assert sorted(late)[len(late) // 2] < sorted(early)[len(early) // 2]
    assert len(set(points)) > 20


def test_another_seed_gives_other_points(tmp_path: Path) -> None:
    searches = [
        Search(
            SPACE,
            "tpe",
            {"random_state": seed},
            maximize=False,
            directory=tmp_path / str(seed),
            name="s",
            lag=4,
        )
        for seed in (1, 2)
    ]
    assert searches[0].ask("x") != searches[1].ask("x")


def test_trials_of_another_sweep_decide_the_first_points(tmp_path: Path) -> None:
    known = [
        PastTrial(
            trial=f"old-{number}",
            point={"lr": f"0.{number + 10}", "width": str(1 + number), "kind": "b"},
            value=float(number),
        )
        for number in range(20)
    ]

    def first(name: str, earlier: list[PastTrial]) -> list[dict[str, str] | None]:
        search = Search(
            SPACE,
            "tpe",
            {"random_state": 7},
            maximize=False,
            directory=tmp_path / name,
            name="sweep",
            earlier=earlier,
            lag=4,
        )
        return [search.ask(str(number)) for number in range(4)]

    points = first("warm", known)
    assert points == first("again", known)
    assert points != first("cold", [])


def test_a_trial_that_was_changed_is_told(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "sobol", workers=1, luck=1, kill=0.0)
    sweep.run()
    next(iter(sweep.trials.values())).point["lr"] = "0.999"
    with pytest.raises(InvalidInput, match=r"has lr=0.999.*but the search gives") as caught:
        sweep.begin()
    assert caught.value.hint


def test_a_trial_by_another_optuna_is_refused(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "tpe", workers=1, luck=1, kill=0.0)
    sweep.run()
    next(iter(sweep.trials.values())).tags["sampler"] = "optuna-4.5.0"
    with pytest.raises(InvalidInput, match=r"suggested by optuna-4\.5\.0, and this is") as caught:
        sweep.begin()
    assert "optuna==4.5.0" in caught.value.hint


def test_a_point_waits_for_what_it_depends_on(tmp_path: Path) -> None:
    search = Search(SPACE, "random", {}, maximize=False, directory=tmp_path, name="sweep", lag=2)
    assert search.ask("first")
    assert search.ask("second")
    assert search.ask("third") is None
    search.tell("second", 1.0)
    assert search.ask("third") is None
    search.tell("first", 1.0)
    assert search.ask("third")


def test_a_gaussian_process_without_pytorch_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.search.bayesian.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match="needs PyTorch, which is not installed"):
        Search(
            SPACE, "bayesianoptimization", {}, maximize=False, directory=tmp_path, name="sweep"
        ).ask("first")
