"""`podium runs` for a server's runs, and what a schedule's change means for a run in flight."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kfp_server import KfpServer, KfpWorld
from test_versions import HELLO, details

from podium.cli import app
from podium.errors import Conflict, InvalidInput, NotFound, PodiumError
from podium.kfp.client import Server
from podium.kfp.runs import ServerRuns
from podium.kfp.schedule_files import Schedule
from podium.kfp.schedules import Schedules
from podium.kfp.versions import ServerPipelines

NIGHTLY = Schedule(
    name="nightly", pipeline="hello-world", cron="0 0 3 * * *", parameters={"rounds": 5}
)


@pytest.fixture(autouse=True)
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without runs of its own."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))


@pytest.fixture
def three(server: Server, world: KfpWorld) -> list[str]:
    """Ids of a run that succeeded, one that failed at its training and one in flight."""
    version = ServerPipelines(server).upload(HELLO)
    ids = [
        ServerRuns(server)
        .submit(version, [f"rounds={n}"], group="podium", name=f"hello {n}")
        .run_id
        for n in (1, 2, 3)
    ]
    world.runs[ids[0]] |= {"state": "SUCCEEDED", "finished_at": "2026-01-01T00:01:30Z"}
    world.runs[ids[1]] |= {"state": "FAILED", "finished_at": "2026-01-01T00:00:20Z",
                           "run_details": details(prepare="SUCCEEDED", train="FAILED")}  # fmt: skip
    world.runs[ids[2]] |= {
        "state": "RUNNING",
        "finished_at": "1970-01-01T00:00:00Z",
    }  # as 2.0.5 says it
    return ids


def podium(kfp: KfpServer, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--host", kfp.host])


def test_a_servers_runs_are_listed_as_those_here(kfp: KfpServer, three: list[str]) -> None:
    rows = json.loads(podium(kfp, "runs", "list", "--json").stdout)
    assert [row["run"] for row in rows] == three
    assert [row["state"] for row in rows] == ["succeeded", "failed", "running"]
    assert [row["pipeline"] for row in rows] == ["hello-world"] * 3
    assert rows[0]["seconds"] == 90
    assert rows[2]["seconds"] > 90
    text = podium(kfp, "runs", "list").stdout
    assert "failed at train" in text
    assert [
        row["run"]
        for row in json.loads(podium(kfp, "runs", "list", "--last", "1", "--json").stdout)
    ] == three[2:]


def test_a_run_of_the_server_is_shown_with_its_steps(kfp: KfpServer, three: list[str]) -> None:
    shown = podium(kfp, "runs", "show", three[1]).stdout
    assert (
        f"run {three[1]} of hello-world: failed, began 2026-01-01 00:00 UTC, took 20.0 s" in shown
    )
    assert "  rounds=2\n" in shown
    assert "failed at train" in shown
    assert f"run {three[2]} of" in podium(kfp, "runs", "show", "latest").stdout
    assert isinstance(podium(kfp, "runs", "show", "run-").exception, InvalidInput)
    assert isinstance(podium(kfp, "runs", "show", "none").exception, NotFound)


def test_the_steps_of_a_run_are_shown_as_they_began(
    kfp: KfpServer, world: KfpWorld, three: list[str]
) -> None:
    began = {"upload": 9, "evaluate": None, "prepare": 1, "train": 5}
    tasks = [
        {"display_name": name, "state": "RUNNING"}
        | ({"start_time": f"2026-01-01T00:00:{at:02}Z"} if at else {})
        for name, at in began.items()
    ]
    world.runs[three[2]]["run_details"] = {"task_details": tasks}
    shown = json.loads(podium(kfp, "runs", "show", three[2], "--json").stdout)
    assert list(shown["steps"]) == ["prepare", "train", "upload", "evaluate"]


def test_a_run_in_flight_is_stopped_once(kfp: KfpServer, world: KfpWorld, three: list[str]) -> None:
    assert "is being cancelled" in podium(kfp, "runs", "stop", three[2]).stderr
    assert world.runs[three[2]]["state"] == "CANCELING"
    assert f"run {three[0]} is over: succeeded" in podium(kfp, "runs", "stop", three[0]).stderr
    assert world.requests.count(f"POST runs/{three[0]}:terminate") == 0


@pytest.fixture
def in_flight(server: Server, world: KfpWorld) -> str:
    """Id of the run that the schedule's recurring run has started."""
    ServerPipelines(server).upload(HELLO)
    (change,) = Schedules(server).plan([NIGHTLY])
    Schedules(server).apply([change], "podium")
    (recurring,) = world.recurring
    _, started = world.run({"display_name": "nightly 1", "recurring_run_id": recurring})
    started["state"] = "RUNNING"
    return str(started["run_id"])


CHANGED = "name: nightly\npipeline: hello-world\ncron: 0 0 4 * * *\nparameters: {rounds: 6}\n"


def test_a_changed_schedule_waits_for_its_run(
    kfp: KfpServer, world: KfpWorld, in_flight: str, tmp_path: Any
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(CHANGED)
    planned = podium(kfp, "schedule", "plan", str(file)).stdout
    assert "rounds: 5 -> 6" in planned
    assert f"run {in_flight} is in flight" in planned
    before = dict(world.recurring)
    error = podium(kfp, "schedule", "apply", str(file)).exception
    assert isinstance(error, Conflict)
    assert f"a run in flight, {in_flight}" in error.message
    assert f"podium schedule apply {file} --now" in str(error.hint)
    assert world.recurring == before
    assert podium(kfp, "schedule", "apply", str(file), "--now").exit_code == 0
    assert world.runs[in_flight]["state"] == "CANCELING"
    (left,) = world.recurring.values()
    assert left["trigger"] == {"cron_schedule": {"cron": "0 0 4 * * *"}}


def test_a_deleted_schedule_waits_for_its_run(
    kfp: KfpServer, world: KfpWorld, in_flight: str
) -> None:
    error = podium(kfp, "schedule", "delete", "nightly").exception
    assert isinstance(error, Conflict)
    assert "podium schedule delete nightly --now" in str(error.hint)
    assert len(world.recurring) == 1
    world.runs[in_flight]["state"] = "SUCCEEDED"
    assert podium(kfp, "schedule", "delete", "nightly").exit_code == 0
    assert world.recurring == {}
    assert f"POST runs/{in_flight}:terminate" not in world.requests


def test_a_refused_change_leaves_the_old_schedule(
    server: Server, world: KfpWorld, in_flight: str
) -> None:
    (change,) = Schedules(server).plan(
        [Schedule(name="nightly", pipeline="hello-world", cron="0 0 4 * * *")]
    )
    before = dict(world.recurring)
    world.recur = lambda body: (500, {"message": "no room"})  # type: ignore[method-assign]
    with pytest.raises(Exception, match="no room"):
        Schedules(server).apply([change], "podium")
    assert world.recurring == before


@pytest.mark.parametrize("of", ["run", "schedule"])
@pytest.mark.parametrize(
    ("rule", "said", "hint"),
    [
        (
            "refused_account",
            "the server does not allow the service account steps",
            "an administrator adds it to the names that are allowed: "
            "kubectl -n kubeflow set env deployment/ml-pipeline ALLOWEDSERVICEACCOUNTS=NAMES,steps",
        ),
        (
            "account_of_others",
            "ann@example.com may not use the service account steps in namespace team-a",
            "a Role there has to grant the verb use, see docs/cluster-teams.md; try it with: "
            "kubectl -n team-a auth can-i use serviceaccounts/steps --as ann@example.com",
        ),
    ],
)
def test_a_refused_service_account_is_named(
    server: Server, world: KfpWorld, rule: str, said: str, hint: str, of: str
) -> None:
    version = ServerPipelines(server).upload(HELLO)
    setattr(world, rule, "steps")
    (change,) = Schedules(server).plan([replace(NIGHTLY, service_account="steps")])
    runs, schedules = ServerRuns(server), Schedules(server)
    doing, send = {
        "run": ("run hello-world", partial(runs.submit, version, [], group="podium", service_account="steps")),
        "schedule": ("create schedule nightly", partial(schedules.apply, [change], "podium")),
    }[of]  # fmt: skip
    with pytest.raises(PodiumError) as refused:
        send()
    assert refused.value.message == f"cannot {doing}: {said}"
    assert refused.value.hint == hint
    assert not world.runs
    assert not world.recurring
    setattr(world, rule, "")
    send()
    assert world.runs or world.recurring
