"""Experiments that a real Katib 0.19 ran end here as they ended there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from katibcases import CASES, GOLDEN, experiment_of

from podium.errors import InvalidInput
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

RESUMED = {"e7-longrunning", "e7-fromvolume", "e7-never"}
ALSO = {"e5-no-metric-default-failed": {"trialMetricsUnavailable": 3, "trials": 3}}
"""Counts of the same rule where trials end in another order: here the second and the third between two looks."""

SEARCH_DEPENDS = {
    "c1-medianstop",
    "c1-medianstop-no-retain",
    "c2-medianstop-defaults",
    "c3-medianstop-unparsable",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the programs' directory by a path that a shell leaves as it is, wherever the checkout lies."""
    link = tmp_path_factory.mktemp("cases") / "programs"
    link.symlink_to(GOLDEN / "programs")
    return str(link)


def run(
    cluster: LocalSweeps, manifest: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run an Experiment until none of its trials runs any more."""
    name = cluster.create(typed(manifest)).name
    for _ in cluster.watch("Experiment", name, timeout=90):
        pass
    labels = {"katib.kubeflow.org/experiment": name}
    for trial in [stored.manifest for stored in cluster.list("Trial", labels)]:
        for _ in cluster.watch("Trial", trial["metadata"]["name"], timeout=30):
            pass
    wanted = len(cluster.list("Trial", labels))
    for experiment in cluster.store.changes("Experiment", name, timeout=30):
        status = experiment["status"]
        if (
            not status.get("trialsRunning")
            and not status.get("trialsPending")
            and status.get("trials") == wanted
        ):
            return experiment, [stored.manifest for stored in cluster.list("Trial", labels)]
    raise AssertionError("the counts never followed")


def conditions(status: dict[str, Any]) -> list[str]:
    return [
        f"{condition['type']}={condition['status']} {condition['reason']}"
        for condition in status["conditions"]
    ]


def metrics(observation: dict[str, Any]) -> dict[str, Any]:
    return {
        metric["name"]: {fold: metric.get(fold, "") for fold in ("min", "max", "latest")}
        for metric in observation.get("metrics", [])
    }


def row_of(trial: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Return what an expected row says, as a trial has it."""
    status = trial["status"]
    row: dict[str, Any] = {"conditions": conditions(status)}
    if "parameters" in like:
        row["parameters"] = {
            assignment["name"]: assignment["value"]
            for assignment in trial["spec"]["parameterAssignments"]
        }
    if "metrics" in like:
        row["metrics"] = metrics(status.get("observation") or {})
    if not status.get("completionTime"):
        row["completed"] = False
    if trial["spec"].get("earlyStoppingRules"):
        row["rules"] = len(trial["spec"]["earlyStoppingRules"])
    return row


def check_end(name: str, status: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> None:
    """Hold an Experiment's end beside Katib's: its conditions and counts, and each trial's."""
    expected = CASES[name].get("podium") or CASES[name]["katib"]
    assert conditions(status) == expected["conditions"]
    counts = {field: count for field, count in status.items() if field in expected["counts"]}
    assert counts in (expected["counts"], ALSO.get(name))
    best = status["currentOptimalTrial"]
    assert bool(best.get("bestTrialName")) == bool(expected.get("best"))
    if isinstance(expected.get("best"), dict):
        assert metrics(best["observation"]) == expected["best"]["metrics"]
    for trial in trials:
        rows = [(row_of(trial, like), like) for like in expected.get("trials", [])]
        assert not rows or any(row == like for row, like in rows), rows


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in CASES.items()
        if name not in RESUMED | SEARCH_DEPENDS and "refused" not in case.get("podium", {})
    ],
)
def test_an_experiment_ends_as_it_did_in_katib(name: str, tmp_path: Path, programs: str) -> None:
    case = CASES[name]
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        experiment, trials = run(cluster, experiment_of(case, programs))
    check_end(name, experiment["status"], trials)


@pytest.mark.parametrize("name", sorted(RESUMED))
def test_an_experiment_takes_more_trials_only_where_katibs_did(
    name: str, tmp_path: Path, programs: str
) -> None:
    case = CASES[name]
    more = {"maxTrialCount": case["spec"]["maxTrialCount"] * 2}
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        run(cluster, experiment_of(case, programs))
        assert cluster.join("Experiment", name, 30)
        if name == "e7-never":
            with pytest.raises(InvalidInput, match="resumePolicy"):
                cluster.resume("Experiment", name, more)
        else:
            cluster.resume("Experiment", name, more)
            assert cluster.join("Experiment", name, 60)
        status, trials = (
            cluster.get("Experiment", name).manifest["status"],
            [stored.manifest for stored in cluster.list("Trial")],
        )
    assert conditions(status) == case["katib"]["conditions"]
    assert {field: status.get(field) for field in case["katib"]["counts"]} == case["katib"][
        "counts"
    ]
    assert all(row_of(trial, {}) == case["katib"]["trials"][0] for trial in trials)


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if "refused" in case.get("podium", {})]
)
def test_an_endless_experiment_is_refused_before_it_is_stored(name: str, tmp_path: Path) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        with pytest.raises(InvalidInput) as caught:
            cluster.create(typed(experiment_of(CASES[name])))
        assert CASES[name]["podium"]["refused"] in caught.value.message
        assert caught.value.hint
        assert cluster.list("Experiment") == []


@pytest.mark.parametrize("name", sorted(SEARCH_DEPENDS - {"c3-medianstop-unparsable"}))
def test_early_stopping_follows_katibs_rule_and_shape(
    name: str, tmp_path: Path, programs: str
) -> None:
    case = CASES[name]
    settings = {
        setting["name"]: int(setting["value"])
        for setting in case["spec"]["earlyStopping"].get("algorithmSettings", [])
    }
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        experiment, trials = run(cluster, experiment_of(case, programs))
    maximize = case["spec"]["objective"]["type"] == "maximize"
    shapes = {
        row["conditions"][-1].partition("=")[0]: row
        for row in CASES["c1-medianstop"]["katib"]["trials"]
    }
    stopped = []
    for trial in trials:
        level = float(trial["spec"]["parameterAssignments"][0]["value"])
        for rule in trial["spec"].get("earlyStoppingRules", []):
            assert (rule["comparison"], rule["startStep"]) == (
                "less" if maximize else "greater",
                settings.get("start_step", 4),
            )
            if level < float(rule["value"]) if maximize else level > float(rule["value"]):
                stopped.append(trial["metadata"]["name"])
        shape = shapes["EarlyStopped" if trial["metadata"]["name"] in stopped else "Succeeded"]
        assert conditions(trial["status"]) == shape["conditions"]
        assert ("completionTime" in trial["status"]) == shape.get("completed", True)
        assert metrics(trial["status"]["observation"])["loss"]["latest"] == str(level)
    first = [trial for trial in trials if not trial["spec"].get("earlyStoppingRules")]
    assert len(first) >= settings.get("min_trials_required", 3)
    assert stopped, "the seed gives at least one trial to stop"
    assert experiment["status"]["earlyStoppedTrialList"] == stopped
    assert experiment["status"]["trialsEarlyStopped"] + experiment["status"][
        "trialsSucceeded"
    ] == len(trials)
    assert conditions(experiment["status"])[-1] == "Succeeded=True ExperimentMaxTrialsReached"


def test_a_non_number_under_a_rule_fails_by_line(tmp_path: Path, programs: str) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        experiment, trials = run(
            cluster, experiment_of(CASES["c3-medianstop-unparsable"], programs)
        )
    assert (
        conditions(experiment["status"]) == CASES["c3-medianstop-unparsable"]["katib"]["conditions"]
    )
    for trial in trials:
        ruled = bool(trial["spec"].get("earlyStoppingRules"))
        last = trial["status"]["conditions"][-1]
        assert last["type"] == ("Failed" if ruled else "Succeeded")
        assert ("--metric= has no number" in last["message"]) == ruled
    assert experiment["status"]["trialsFailed"] >= 2


def test_a_goal_ends_the_experiment_but_not_other_trials(tmp_path: Path, programs: str) -> None:
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        cluster.create(typed(experiment_of(CASES["e3-goal-running"], programs)))
        *_, ended = (
            stored.manifest for stored in cluster.watch("Experiment", "e3-goal-running", timeout=60)
        )
        assert conditions(ended["status"])[-1] == "Succeeded=True ExperimentGoalReached"
        assert ended["status"]["trialsRunning"] == 1


def test_every_case_is_used() -> None:
    assert len(CASES) == 53
    assert sum("podium" in case for case in CASES.values()) == 10
