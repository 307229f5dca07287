"""A sweep within a budget: what fits, what is stopped, and how it ends; the sweeps are real processes."""

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sweep_manifests import job, write_experiment

import podium
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, Trial, check
from podium.manifests.options import annotation, forecast, read_settings
from podium.manifests.options.budget import Budget, Spending
from podium.manifests.rules import RUNNERS

pytestmark = pytest.mark.whole

T = TypeVar("T")

PROGRAM = """
import sys, time
x, before, after = float(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
time.sleep(before)
print(f"loss={x}", flush=True)
time.sleep(after)
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """An Experiment whose trials sleep, print a loss and sleep again."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def write(before: float = 0.0, after: float = 0.0, **spec: Any) -> dict[str, Any]:
        command = ["python", str(program), "${trialParameters.x}", str(before), str(after)]
        return write_experiment(job(command), name="sweep", **{"maxFailedTrialCount": 1, **spec})

    return write


def budgeted(given: dict[str, Any]) -> Experiment:
    manifest = write_experiment(
        job(["true", "${trialParameters.x}"]), maxTrialCount=60, parallelTrialCount=2
    )
    manifest["metadata"]["annotations"] = annotation(given)
    return Experiment.parse(manifest)


class Clock:
    """A clock that stands where it is put."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def at(self, now: float, look: Callable[[], T]) -> T:
        self.now = now
        return look()


def trial(
    name: str, start: float | None = None, end: float | None = None, phase: str = "Succeeded"
) -> Trial:
    """A trial of one pod that ran between two seconds of the epoch, or begins now."""
    stamps = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in (start or 0, end or 0)]
    begun = {} if start is None else {"startTime": stamps[0]}
    status: dict[str, Any] = {**begun, "conditions": [{"type": "Running", "status": "True"}]}
    if end is not None:
        status |= {"completionTime": stamps[1], "conditions": [{"type": phase, "status": "True"}]}
    run = job(["true"])
    spec = {"objective": {"type": "minimize", "objectiveMetricName": "loss"}, "runSpec": run}
    return Trial(
        manifest={"kind": "Trial", "metadata": {"name": name}, "spec": spec, "status": status}
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("1.5 h", 5400), ("45s", 45), ("1d", 86400)],
)
def test_a_budget_of_time_is_a_duration(text: str, seconds: float) -> None:
    budget = Budget.of({"max_time": text})
    assert budget
    assert budget.seconds == seconds


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.5, "0.5 s"),
        (59, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (7080, "1 h 58 min"),
        (7200, "2 h"),
    ],
)
def test_a_duration_is_written_as_people_say_it(seconds: float, said: str) -> None:
    assert str(Budget(seconds=seconds)) == said


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_time": "soon"}, "max_time is a duration above 0, not 'soon'"),
        ({"max_time": "90"}, "max_time is a duration above 0, not '90'"),
        ({"max_time": "0s"}, "max_time is a duration above 0, not '0s'"),
        ({"max_time": ["1h"]}, "max_time is one value, but got"),
        ({"max_cost": 20}, "max_cost means nothing without price"),
        ({"price": 2}, "price means nothing without max_cost"),
        ({"max_cost": "much", "price": 2}, "max_cost is a number, but got 'much'"),
        ({"max_cost": 20, "price": "nan"}, "price is a number above 0, not nan"),
        ({"max_tim": "2h"}, "a sweep has no setting 'max_tim'"),
    ],
)
def test_a_budget_that_says_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check(budgeted(given))


def test_katib_is_not_given_a_budget() -> None:
    assert check(budgeted({"max_time": "2h"}))
    with pytest.raises(
        InvalidInput, match="only podium's own engine keeps within a budget"
    ) as refused:
        check(budgeted({"max_time": "2h"}), RUNNERS)
    assert "leave out --max-time and --max-cost" in (refused.value.hint or "")


def test_a_pool_is_not_given_a_budget() -> None:
    from podium.manifests.experiment.pool import refuse_what_pools_lack

    with pytest.raises(InvalidInput, match="no budget can be kept"):
        refuse_what_pools_lack(budgeted({"max_time": "2h", "pool": 2}))


def test_what_is_asked_stands_in_one_annotation() -> None:
    asked = read_settings({"max_time": 90, "max_cost": 4.5, "price": None, "constraints": []})
    assert asked == {"max_time": "90s", "max_cost": 4.5}
    assert annotation(asked) == {"podium.dev/sweep": "max_time: 90s\nmax_cost: 4.5\n"}


def test_a_forecast_counts_what_fits() -> None:
    ended = [trial("a", 0, 300), trial("b", 0, 320), trial("c", 0, 900), trial("d", 0, 1, "Failed")]
    said = "fit into the budget of 2 h (a trial takes 5 min 20 s, 2 at a time)"
    assert (
        forecast(budgeted({"max_time": "2h"}), ended) == f"forecast: about 44 of 60 trials {said}"
    )
    assert forecast(budgeted({"max_time": "1d"}), ended).startswith(
        "forecast: all of 60 trials fit "
    )
    assert "about 11 of 60" in forecast(budgeted({"max_cost": 2, "price": 2}), ended)
    assert forecast(budgeted({}), ended) == forecast(budgeted({"max_time": "2h"}), []) == ""


def test_a_trial_begins_only_if_it_would_end_in_time() -> None:
    clock = Clock(1000)
    spending = Spending(Budget(seconds=100), clock)
    spending.trial_begins(trial("a"))
    spending.trial_begins(trial("b"))
    assert clock.at(1099, spending.has_room), "nobody knows yet how long a trial takes"
    clock.at(1031, lambda: spending.trial_ended(trial("a", 1000, 1030)))  # looked at a second later
    assert clock.at(1070, spending.has_room)
    assert not clock.at(1071, spending.has_room)
    assert clock.at(1060, lambda: spending.end(2, 60))[1].endswith(
        "used: 1 min of 1 min 40 s; 2 of 60 trials"
    )
    assert not clock.at(1105, spending.stops_trials)
    assert clock.at(1106, spending.stops_trials) == "the budget of 1 min 40 s is used up"


def test_a_cost_counts_what_running_trials_will_take() -> None:
    clock = Clock(1000)
    spending = Spending(Budget(cost=1.0, price=36.0), clock)  # 100 seconds of pods
    spending.trial_begins(trial("a"))
    clock.at(1030, lambda: spending.trial_ended(trial("a", 1000, 1030)))
    spending.trial_begins(trial("b"))
    assert clock.at(1031, spending.has_room), "30 + 30 + 30"
    spending.trial_begins(trial("c"))
    assert not clock.at(1032, spending.has_room)
    assert clock.at(1040, lambda: spending.end(3, None))[1].endswith(
        "used: a cost of 0.49 of 1; 3 trials"
    )


def test_a_trial_of_several_pods_costs_as_many() -> None:
    clock = Clock(1000)
    spending = Spending(Budget(cost=1.0, price=36.0), clock)  # 100 seconds of pods
    three = trial("a", 1000, 1020)
    replica = {"replicas": 1, "template": three.workload.replicas[0].pod.manifest}
    roles = {"Master": replica, "Worker": {**replica, "replicas": 2}}
    run = {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": roles}}
    manifest = {**three.manifest, "spec": {**three.manifest["spec"], "runSpec": run}}
    spending.begin([Trial(manifest=manifest)])
    assert "used: a cost of 0.6 of 1" in spending.end(1, None)[1]


def test_a_time_that_two_trials_share_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(9000)
    monkeypatch.setattr(time, "time", clock)  # a trial's age is a matter of the wall clock
    began = clock.now
    spending = Spending(Budget(seconds=100), clock)
    spending.trial_begins(trial("a", int(began)))
    clock.now = began + 50
    spending.trial_ended(trial("a", int(began), int(began) + 50))
    spending.trial_begins(trial("b", int(began) - 20))  # its record says earlier than a's end
    clock.now = began + 60
    assert "used: 1 min of " in spending.end(2, 60)[1]


def test_pauses_between_trials_use_no_time() -> None:
    spending = Spending(Budget(seconds=100), Clock(9000))
    spending.begin(
        [trial("b", 1010, 1030), trial("a", 1000, 1020), trial("c", 5000, 5010), trial("d", 5000)]
    )
    assert "used: 40 s of " in spending.end(3, 60)[1]


def test_a_step_of_the_wall_clock_uses_no_budget(
    experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wall(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=steps[0])

    steps = [0]
    monkeypatch.setattr("podium.manifests.conditions.datetime", Wall)
    sweep = podium.sweep(
        experiment(before=1.0, maxTrialCount=4, parallelTrialCount=1), max_time="1h", wait=False
    )
    while "Running" not in {trial.phase for trial in sweep.cluster.trials(sweep.name)}:
        time.sleep(0.05)
    steps[0] = 1
    sweep.wait()
    assert (sweep.status, len(sweep.results)) == ("Succeeded", 4)
    assert sweep.experiment.state.reason != "ExperimentBudgetReached"
    assert max(trial.seconds or 0.0 for trial in sweep.cluster.trials(sweep.name)) < 600


def test_a_sweep_ends_with_its_budget(
    experiment: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = podium.sweep(experiment(maxTrialCount=500, parallelTrialCount=2), max_time="6s")
    state = sweep.experiment.state
    assert (sweep.status, state.reason) == ("Succeeded", "ExperimentBudgetReached")
    count = len(sweep.results)
    assert 2 <= count < 500
    assert f" of 6 s; {count} of 500 trials" in state.message
    assert "Failed" not in sweep.finished.values()
    said = capsys.readouterr().err
    assert said.count("forecast: about ") == 1
    assert state.message in said
    again = podium.sweep(
        experiment(maxTrialCount=500, parallelTrialCount=2), max_time="2s", wait=False
    )
    again.stop()
    assert "fit into the budget of 2 s" in (said := capsys.readouterr().err)
    assert ", as in sweep\n" in said


def test_trials_end_with_the_budget_and_what_they_reported(experiment: Callable[..., Any]) -> None:
    begun = time.monotonic()
    sweep = podium.sweep(experiment(after=300.0, maxTrialCount=4, parallelTrialCount=2), max_time=8)
    assert time.monotonic() - begun < 200
    assert sweep.status == "Succeeded"
    assert [(trial.phase, trial.value is not None) for trial in sweep.results] == [
        ("EarlyStopped", True)
    ] * 2
    assert "the budget of 8 s is used up" in sweep.results[0].message
    assert sweep.best.value == min(trial.value or 0 for trial in sweep.results)


def test_trials_without_a_result_are_no_failure_then(experiment: Callable[..., Any]) -> None:
    sweep = podium.sweep(
        experiment(before=300.0, maxTrialCount=4, parallelTrialCount=2), max_time=1
    )
    assert (sweep.status, sweep.experiment.state.reason) == ("Succeeded", "ExperimentBudgetReached")
    assert set(sweep.finished.values()) == {"MetricsUnavailable"}


def test_a_sweep_ends_with_its_cost(experiment: Callable[..., Any]) -> None:
    sweep = podium.sweep(experiment(after=0.2, maxTrialCount=500), max_cost=3, price=3600)
    assert sweep.experiment.state.reason == "ExperimentBudgetReached"
    assert " of 3; " in sweep.experiment.state.message
    assert 1 <= len(sweep.results) <= 15, "each costs at least 0.2"


def test_a_resumed_sweep_has_what_is_left(experiment: Callable[..., Any]) -> None:
    sweep = podium.sweep(experiment(after=0.5, maxTrialCount=500), max_time="10s", wait=False)
    while not sweep.finished:
        time.sleep(0.1)
    sweep.stop()
    before = sum(trial.seconds or 0.0 for trial in sweep.results if trial.is_good)
    assert 0.5 <= before < 10
    sweep.resume()
    assert sweep.experiment.state.reason == "ExperimentBudgetReached"
    (used,) = re.findall(r"Budget used: (\S+) s of 10 s", sweep.experiment.state.message)
    assert float(used) == pytest.approx(
        sum(trial.seconds or 0.0 for trial in sweep.results), abs=0.3
    )


def test_a_used_budget_can_be_raised(experiment: Callable[..., Any]) -> None:
    sweep = podium.sweep(experiment(after=0.2, maxTrialCount=500), max_cost=3, price=3600)
    first = {trial.name for trial in sweep.results}
    with pytest.raises(InvalidInput, match=r"sweep has ended: .* of 3; ") as caught:
        sweep.resume(600)
    assert caught.value.hint == "go on with a higher --max-time or --max-cost"
    for less in (
        {"max_cost": 2},
        {"max_time": "1s"},
        {"price": 7200},
        {"max_cost": 6, "price": 7200},
    ):
        with pytest.raises(InvalidInput, match=r"sweep has ended: .* of 3; "):
            sweep.resume(**less)
    assert " of 3; " in sweep.experiment.state.message
    with pytest.raises(InvalidInput, match="has ended: Experiment has succeeded because") as caught:
        sweep.add_trial({"x": 0.5})
    command = sweep.cluster.store.resume_command("sweep")  # with --dir, if it is not the usual one
    assert f"{command} with a higher" in (caught.value.hint or "")
    sweep.resume(max_cost=5)
    assert sweep.experiment.state.reason == "ExperimentBudgetReached"
    assert " of 5; " in sweep.experiment.state.message
    assert first < {trial.name for trial in sweep.results}
    # A trial that runs when the budget ends is stopped a moment later, so a little more than 5.
    assert sum(trial.seconds or 0.0 for trial in sweep.results) < 5 + 2, (
        "what was used before counts: with a budget of its own it would be nearly 3 + 5"
    )
    with pytest.raises(InvalidInput, match="max_time is a duration above 0, not 'soon'"):
        sweep.resume(max_time="soon")
    assert " of 5; " in sweep.experiment.state.message, "a refused change changes nothing"


def test_a_resumed_sweep_may_get_a_cost(experiment: Callable[..., Any]) -> None:
    sweep = podium.sweep(experiment(after=0.2, maxTrialCount=2, resumePolicy="LongRunning"))
    with pytest.raises(InvalidInput, match="means nothing without") as caught:
        sweep.resume(500, max_cost=3)
    assert "--price" in (caught.value.hint or "")
    sweep.resume(500, max_cost=3, price=3600)
    assert " of 3; " in sweep.experiment.state.message


@pytest.mark.parametrize("seconds", [0.25, 90, 1_000_000, 1234567.5])
def test_seconds_are_written_in_full(seconds: float) -> None:
    budget = Budget.of(read_settings({"max_time": seconds}))
    assert budget
    assert budget.seconds == seconds


def test_a_sweep_that_fits_ends_as_without_a_budget(experiment: Callable[..., Any]) -> None:
    sweep = podium.sweep(experiment(), max_time="2h", max_cost=100, price=1)
    assert sweep.experiment.state.reason == "ExperimentMaxTrialsReached"
