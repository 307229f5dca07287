"""Suggestions keep to the space, to their seed and to Katib's brackets, and the study is Optuna's own."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from podium.manifests.experiment.space import read_space
from podium.search.algorithm import PastTrial
from podium.search.algorithms import ALGORITHMS as KNOWN
from podium.search.distributions import Columns, encode
from podium.search.search import JOURNAL, Search
from podium.search.space import Parameter, Premise


def double(name: str, **space: str) -> dict[str, Any]:
    return {"name": name, "parameterType": "double", "feasibleSpace": space}


def whole(name: str, **space: str) -> dict[str, Any]:
    return {"name": name, "parameterType": "int", "feasibleSpace": space}


EVERYTHING: list[dict[str, Any]] = [
    double("lr", min="0.001", max="1", distribution="logUniform"),
    double("decay", min="0.01", max="1", distribution="logNormal"),
    double("drop", min="0", max="1", step="0.1", distribution="normal"),
    whole("units", min="4", max="32"),
    whole("epochs", min="1", max="9", step="2"),
    whole("width", min="1", max="1024", distribution="logUniform"),
    double("gain", min="0.1", max="0.35", step="0.1"),
    {"name": "batch", "parameterType": "discrete", "feasibleSpace": {"list": ["16", "32"]}},
    {
        "name": "optimizer",
        "parameterType": "categorical",
        "feasibleSpace": {"list": ["sgd", "adam"]},
    },
]
ALGORITHMS = [
    "random",
    "tpe",
    "multivariate-tpe",
    "cmaes",
    "sobol",
    "bayesianoptimization",
    "hyperband",
    "asha",
]


def space_of(*names: str) -> list[Parameter]:
    chosen = [parameter for parameter in EVERYTHING if not names or parameter["name"] in names]
    space = list(read_space(chosen))
    assert len(space) == len(chosen)
    return space


def search(directory: Path, algorithm: str, space: list[Parameter], **settings: Any) -> Search:
    if algorithm in ("hyperband", "asha"):
        settings = {"r_l": 9.0, "eta": 3, "resource_name": "epochs", **settings}
    return Search(space, algorithm, settings, maximize=False, directory=directory, name="study")


def inside(parameter: Parameter, text: str) -> bool:
    if not parameter.numeric:
        return text in parameter.choices
    if parameter.kind == "int" and text != str(int(text)):
        return False
    on_step = (
        not parameter.step
        or abs((float(text) - parameter.low) / parameter.step % 1) in (0, 1)
        or parameter.step < 1
    )
    return parameter.low <= float(text) <= parameter.high and on_step


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_suggestion_lies_in_the_search_space(algorithm: str, tmp_path: Path) -> None:
    space = space_of()
    asked = search(tmp_path, algorithm, space, random_state=1)
    for count in range(12):
        point = asked.ask(f"t{count}")
        assert point is not None
        for parameter in space:
            if parameter.name != "epochs" or algorithm not in ("hyperband", "asha"):
                assert inside(parameter, point[parameter.name]), (parameter, point)
        asked.tell(f"t{count}", float(point["lr"]) if count % 4 else None)


@pytest.mark.parametrize("algorithm", ["random", "tpe", "sobol", "hyperband", "asha"])
def test_a_seed_repeats_points_and_going_on_gives_new_ones(algorithm: str, tmp_path: Path) -> None:
    def points(directory: Path, first: int, count: int) -> list[Any]:
        asked = search(directory, algorithm, space_of("lr", "units", "epochs"), random_state=7)
        found = []
        for place in range(first, first + count):
            found.append(asked.ask(f"t{place}"))
            asked.tell(f"t{place}", 1.0 / (place + 1))
        return found

    one, other = points(tmp_path / "one", 0, 6), points(tmp_path / "other", 0, 6)
    assert one == other
    more = points(tmp_path / "one", 6, 3)
    assert not any(point in one for point in more)


def test_sobol_scrambles_its_sequence_by_the_seed_alone(tmp_path: Path) -> None:
    def points(seed: int | None) -> list[tuple[float, ...]]:
        settings = {} if seed is None else {"random_state": seed}
        asked = search(tmp_path / str(seed), "sobol", space_of("lr", "units"), **settings)
        found = [asked.ask(f"t{number}") for number in range(8)]
        return [tuple(map(float, point.values())) for point in found if point]

    plain, one, other = points(None), points(1), points(2)
    assert plain[0] == (pytest.approx(10**-1.5), 18), (
        "without a seed it is Katib's, from the middle on"
    )
    assert plain != one != other != plain
    for seeded in (one, other):
        assert sum(lr < 10**-1.5 for lr, _ in seeded) == 4, "as evenly spread"


def test_a_grid_gives_each_point_once_and_then_ends(tmp_path: Path) -> None:
    asked = search(tmp_path, "grid", space_of("gain", "batch", "epochs"))
    points = [asked.ask(f"t{count}") for count in range(31)]
    assert points[30] is None
    assert asked.ask("t31") is None
    assert len({tuple(point.items()) for point in points[:30] if point}) == 3 * 2 * 5
    assert {point["gain"] for point in points[:30] if point} == {"0.1", "0.2", "0.3"}, (
        "no rounding dust"
    )


def test_a_grid_goes_on_where_it_was(tmp_path: Path) -> None:
    first = search(tmp_path, "grid", space_of("gain", "batch"))
    points = [first.ask(f"t{count}") for count in range(4)]
    again = search(tmp_path, "grid", space_of("gain", "batch"))
    points += [again.ask(f"t{count}") for count in range(4, 6)]
    assert len({tuple(point.items()) for point in points if point}) == 6


def test_hyperband_runs_all_brackets_and_promotes_the_best(tmp_path: Path) -> None:
    asked = search(tmp_path, "hyperband", space_of("lr", "epochs"), random_state=1)
    rungs: list[list[dict[str, str]]] = []
    names: list[str] = []
    while not rungs or rungs[-1]:
        rung = []
        while point := asked.ask(name := f"t{len(names) + len(rung)}"):
            rung.append((name, point))
        rungs.append([point for _, point in rung])
        names += [name for name, _ in rung]
        for name, point in rung:
            asked.tell(name, float(point["lr"]))
    assert rungs.pop() == []
    assert [(len(rung), rung[0]["epochs"]) for rung in rungs] == [
        (9, "1"), (3, "3"), (1, "9"),
        (5, "3"), (2, "9"),
        (3, "9"),
    ]  # fmt: skip
    best = sorted(float(point["lr"]) for point in rungs[0])[:3]
    assert sorted(float(point["lr"]) for point in rungs[1]) == best


def test_hyperband_goes_on_in_the_middle_of_a_rung(tmp_path: Path) -> None:
    asked = search(tmp_path, "hyperband", space_of("lr", "epochs"), random_state=1)
    first = [asked.ask(f"t{count}") for count in range(9)]
    for count in range(5):
        asked.tell(f"t{count}", float(count))
    again = search(tmp_path, "hyperband", space_of("lr", "epochs"), random_state=1)
    assert again.ask("early") is None
    for count in range(5, 9):
        again.tell(f"t{count}", float(count))
    promoted = again.ask("t9")
    assert promoted
    assert first[0]
    assert promoted == {**first[0], "epochs": "3"}


def test_hyperband_promotes_no_equal_twice_when_resumed(tmp_path: Path) -> None:
    asked = search(tmp_path, "hyperband", space_of("lr", "epochs"), random_state=1)
    for count in range(9):
        asked.ask(f"t{count}")
    for count in (1, 0, *range(2, 9)):  # equals are promoted in the order in which they ended
        asked.tell(f"t{count}", 0.5)
    promoted = [asked.ask("t9")]
    again = search(tmp_path, "hyperband", space_of("lr", "epochs"), random_state=1)
    promoted += [again.ask("t10"), again.ask("t11")]
    assert len({point["lr"] for point in promoted if point}) == 3


@pytest.mark.parametrize("algorithm", ["hyperband", "asha"])
@pytest.mark.parametrize(
    "resource",
    [
        whole("epochs", min="1", max="4"),
        whole("epochs", min="4", max="81", step="2"),
        double("epochs", min="1", max="9"),
        {"name": "epochs", "parameterType": "discrete", "feasibleSpace": {"list": ["1", "2"]}},
    ],
)
def test_a_resource_is_a_whole_number_within_the_algorithms(
    resource: dict[str, Any], algorithm: str, tmp_path: Path
) -> None:
    space = read_space([double("lr", min="0.1", max="1"), resource])
    found = set()
    for count in range(20):
        asked = search(
            tmp_path, algorithm, space, random_state=1
        )  # begun anew each time, as after a restart
        point = asked.ask(f"t{count}")
        assert point
        found.add(point["epochs"])
        asked.tell(f"t{count}", float(count))
    assert found == {"1", "3", "9"}


def test_an_unfinished_last_line_of_a_journal_is_dropped(tmp_path: Path) -> None:
    first = search(tmp_path, "random", space_of("lr"))
    first.ask("t0")
    first.tell("t0", 1.0)
    with (tmp_path / JOURNAL).open("ab") as file:  # a full disk leaves this
        file.write(b'{"op_code":5,"wor')
    for count in (1, 2):
        again = search(tmp_path, "random", space_of("lr"))
        again.ask(f"t{count}")
        again.tell(f"t{count}", 1.0)


@pytest.mark.parametrize("algorithm", ["grid", "hyperband"])
def test_a_point_that_never_became_a_trial_is_given_again(algorithm: str, tmp_path: Path) -> None:
    space, settings = (
        space_of("units", "batch", "epochs"),
        {"r_l": 9.0, "resource_name": "epochs", "random_state": 1},
    )
    settings = settings if algorithm == "hyperband" else {}
    first = Search(space, algorithm, settings, maximize=False, directory=tmp_path, name="study")
    points = [first.ask(f"t{count}") for count in range(3)]
    begun = [
        PastTrial(trial=f"t{count}", point=points[count], value=None, running=True)
        for count in range(2)
    ]  # the engine was killed before it could create t2
    for _ in range(2):  # the second process was stopped before it asked
        again = Search(
            space,
            algorithm,
            settings,
            maximize=False,
            directory=tmp_path,
            name="study",
            begun=begun,
        )
    assert again.ask("t3") == points[2]


@pytest.mark.parametrize("algorithm", ["random", "tpe", "grid", "hyperband", "asha", "sobol"])
def test_a_search_goes_on_from_trials_alone(algorithm: str, tmp_path: Path) -> None:
    space, settings = (
        space_of("units", "batch", "epochs"),
        {"r_l": 9.0, "resource_name": "epochs", "random_state": 1},
    )
    settings = settings if algorithm in ("hyperband", "asha") else {"random_state": 1}
    first = Search(
        space, algorithm, settings, maximize=False, directory=tmp_path / "a", name="study"
    )
    points = [first.ask(f"t{count}") for count in range(4)]
    for count in range(3):
        first.tell(f"t{count}", float(count) if count < 2 else None)  # the third failed
    whole = Search(
        space, algorithm, settings, maximize=False, directory=tmp_path / "a", name="study",
        begun=(begun := [
            PastTrial(trial=f"t{count}", point=point, value=float(count) if count < 2 else None, running=count == 3)
            for count, point in enumerate(points) if point
        ]),
    )  # fmt: skip
    lost = Search(
        space,
        algorithm,
        settings,
        maximize=False,
        directory=tmp_path / "b",
        name="study",
        begun=begun,
    )
    assert [lost.ask(f"n{count}") for count in range(3)] == [
        whole.ask(f"n{count}") for count in range(3)
    ]
    lost.tell("t3", 0.5)


def test_asha_promotes_without_waiting_for_a_whole_rung(tmp_path: Path) -> None:
    asked = search(tmp_path, "asha", space_of("lr", "epochs"), random_state=1)
    points = {}
    for count in range(3):
        points[count] = asked.ask(f"t{count}")
    waiting = asked.ask("t3")  # never told: nobody waits for it
    assert waiting
    assert waiting["epochs"] == "1"
    for count, value in enumerate((0.3, 0.1, 0.2)):
        asked.tell(f"t{count}", value)
    promoted = asked.ask("t4")
    assert points[1]
    assert promoted == {**points[1], "epochs": "3"}
    following = asked.ask("t5")
    assert following
    assert following["epochs"] == "1", "a third of three is promoted once"


def test_asha_gives_no_more_epochs_to_a_trial_that_failed(tmp_path: Path) -> None:
    asked = search(tmp_path, "asha", space_of("lr", "epochs"), random_state=1)
    for count in range(3):
        asked.ask(f"t{count}")
        asked.tell(f"t{count}", None)
    following = asked.ask("t3")
    assert following
    assert following["epochs"] == "1"


def test_log_scales_spread_and_bells_gather(tmp_path: Path) -> None:
    asked = search(tmp_path, "random", space_of("lr", "drop", "decay"), random_state=1)
    points = [asked.ask(f"t{count}") for count in range(300)]
    decades = Counter(math.floor(math.log10(float(point["lr"]))) for point in points if point)
    assert all(decades[decade] > 60 for decade in (-3, -2, -1))
    middle = sum(0.3 <= float(point["drop"]) <= 0.7 for point in points if point)
    assert middle > 200
    logs = sorted(math.log10(float(point["decay"])) for point in points if point)
    assert logs[150] == pytest.approx(-1, abs=0.1)


@pytest.mark.parametrize("algorithm", ["cmaes", "sobol", "hyperband", "bayesianoptimization"])
def test_a_log_scale_is_honored_where_katib_ignores_it(algorithm: str, tmp_path: Path) -> None:
    asked = search(tmp_path, algorithm, space_of("lr", "gain", "epochs"), random_state=1)
    points = [asked.ask(f"t{count}") for count in range(9)]
    small = sum(float(point["lr"]) < 0.1 for point in points if point)
    assert small >= 4, "two decades of three; evenly it would be one point of ten"


@pytest.mark.parametrize(
    "algorithm", ["random", "cmaes", "sobol", "hyperband", "bayesianoptimization"]
)
def test_a_linear_scale_is_linear_even_where_katib_takes_logarithms(
    algorithm: str, tmp_path: Path
) -> None:
    linear = read_space([double("lr", min="0.001", max="1"), *EVERYTHING[2:5]])
    asked = search(tmp_path, algorithm, linear, random_state=1)
    points = [asked.ask(f"t{count}") for count in range(9)]
    assert len(linear) == 4
    assert sum(float(point["lr"]) >= 0.1 for point in points if point) >= 6


def test_sobol_begins_in_the_middle_of_the_space(tmp_path: Path) -> None:
    asked = search(tmp_path, "sobol", space_of("lr", "units"))
    first = asked.ask("t0")
    assert first
    assert float(first["lr"]) == pytest.approx(math.sqrt(0.001))
    assert first["units"] == "18"


@pytest.mark.parametrize("name", ["decay", "drop"])
def test_a_bell_never_leaves_its_bounds(name: str) -> None:
    (parameter,) = space_of(name)
    for quantile in (0.0, 1e-9, 0.25, 0.5, 0.9, 1.0):
        value = parameter.from_quantile(quantile)
        assert parameter.low <= value <= parameter.high
        assert parameter.to_quantile(value) == pytest.approx(quantile, abs=1e-6)
        assert inside(
            parameter,
            Columns([parameter]).decode({f"{parameter.name} quantile": quantile})[parameter.name],
        )


@pytest.mark.parametrize(
    ("name", "outside", "inside"),
    [
        ("epochs", "2", "3"),
        ("gain", "0.15", "0.2"),
        ("gain", "0.34", "0.3"),
        ("units", "4.4", "32"),
        ("lr", "2", "1"),
    ],
)
def test_a_value_between_the_steps_is_none_of_the_space(
    name: str, outside: str, inside: str, tmp_path: Path
) -> None:
    space = space_of(name)
    with pytest.raises(ValueError, match=outside):
        encode(space[0], outside)
    known = [PastTrial(trial="other", point={name: inside}, value=1.0)]
    Search(space, "tpe", {}, maximize=False, directory=tmp_path, name="study", earlier=known)


def test_a_condition_is_tried_at_both_ends_and_between() -> None:
    (units,) = space_of("units")
    at_most = Premise(name="units", sign="<=", values=("10",))
    assert units.probes([at_most]) == ["4", "5", "9", "10", "11", "31", "32"]


@pytest.mark.parametrize(("given", "read"), [("0", None), ("0.25", 0.25), ("1", None)])
def test_the_share_of_good_trials_lies_between_0_and_1(given: str, read: float | None) -> None:
    assert KNOWN["tpe"].settings["gamma"].read(given) == read


def test_optuna_opens_the_study_as_it_is(tmp_path: Path) -> None:
    import optuna

    asked = search(tmp_path, "tpe", space_of("lr", "optimizer"), random_state=1)
    for count in range(3):
        asked.ask(f"sweep-{count}")
        asked.tell(f"sweep-{count}", float(count) if count else None)
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / JOURNAL))
    )
    study = optuna.load_study(study_name="study", storage=storage)
    assert study.direction is optuna.study.StudyDirection.MINIMIZE
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert study.best_trial.user_attrs["trial"] == "sweep-1"
    assert set(study.best_params) == {"lr", "optimizer"}


def test_a_good_algorithm_finds_the_good_corner(tmp_path: Path) -> None:
    asked = search(tmp_path, "tpe", space_of("lr", "optimizer"), random_state=3)
    values = []
    for count in range(40):
        point = asked.ask(f"t{count}")
        assert point
        values.append(abs(math.log10(float(point["lr"])) + 2) + (point["optimizer"] == "sgd"))
        asked.tell(f"t{count}", values[-1])
    assert sum(values[20:]) / 20 < sum(values[:10]) / 10 / 2
