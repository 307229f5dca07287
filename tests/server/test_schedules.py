"""Schedules as code: planned, applied once, pinned."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from kfp_server import KfpServer, KfpWorld
from test_versions import HELLO

from podium.cli import app
from podium.errors import InvalidInput, NotFound
from podium.kfp import schedule_files
from podium.kfp.client import Server
from podium.kfp.schedule_files import Schedule
from podium.kfp.schedules import Change, Schedules
from podium.kfp.versions import ServerPipelines

NIGHTLY = "name: nightly\npipeline: hello-world\ncron: 0 0 3 * * *\nparameters: {rounds: 5}\n"


@pytest.fixture
def nightly() -> Schedule:
    """A schedule of an uploaded pipeline."""
    return Schedule(
        name="nightly", pipeline="hello-world", cron="0 0 3 * * *", parameters={"rounds": 5}
    )


def applied(server: Server, schedule: Schedule) -> str:
    (change,) = Schedules(server).plan([schedule])
    Schedules(server).apply([change], "podium")
    return change.action


def test_applying_twice_changes_nothing_the_second_time(
    server: Server, world: KfpWorld, nightly: Schedule
) -> None:
    version = ServerPipelines(server).upload(HELLO)
    assert applied(server, nightly) == "create"
    assert applied(server, nightly) == "keep"
    (there,) = world.recurring.values()
    assert there["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * *"}}
    assert there["no_catchup"] is True
    assert there["max_concurrency"] == 1
    assert there["pipeline_version_reference"]["pipeline_version_id"] == version.id


def test_latest_is_pinned_and_a_newer_version_is_drift(
    server: Server, world: KfpWorld, nightly: Schedule
) -> None:
    first = ServerPipelines(server).upload(HELLO)
    applied(server, nightly)
    second = ServerPipelines(server).upload(HELLO.replace("3", "4"))
    (change,) = Schedules(server).plan([nightly])
    assert change.action == "replace"
    assert change.differences == (f"version: {first.name} -> {second.name}",)
    Schedules(server).apply([change], "podium")
    (there,) = world.recurring.values()
    assert there["pipeline_version_reference"]["pipeline_version_id"] == second.id


def test_a_named_version_stays_whatever_is_uploaded(server: Server) -> None:
    first = ServerPipelines(server).upload(HELLO)
    ServerPipelines(server).upload(HELLO.replace("3", "4"))
    pinned = Schedule(name="nightly", pipeline="hello-world", cron="@daily", version=first.name)
    assert applied(server, pinned) == "create"
    assert applied(server, pinned) == "keep"


def test_each_difference_is_shown(server: Server, nightly: Schedule) -> None:
    ServerPipelines(server).upload(HELLO)
    applied(server, nightly)
    changed = Schedule(
        name="nightly",
        pipeline="hello-world",
        cron="0 0 4 * * *",
        parameters={"rounds": 6},
        max_concurrency=2,
    )
    (change,) = Schedules(server).plan([changed])
    assert change.differences == (
        "cron: 0 0 3 * * * -> 0 0 4 * * *",
        "rounds: 5 -> 6",
        "max_concurrency: 1 -> 2",
    )


def test_another_service_account_is_drift(server: Server, nightly: Schedule) -> None:
    ServerPipelines(server).upload(HELLO)
    applied(server, nightly)
    named = Schedule(
        name="nightly",
        pipeline="hello-world",
        cron=nightly.cron,
        parameters={"rounds": 5},
        service_account="s",
    )
    (change,) = Schedules(server).plan([named])
    assert change.differences == ("service_account: pipeline-runner -> s",)
    Schedules(server).apply([change], "podium")
    assert applied(server, named) == "keep"


def test_a_paused_schedule_is_resumed_not_made_anew(
    server: Server, world: KfpWorld, nightly: Schedule
) -> None:
    ServerPipelines(server).upload(HELLO)
    applied(server, nightly)
    (before,) = world.recurring
    Schedules(server).pause(nightly.name)
    assert applied(server, nightly) == "resume"
    assert list(world.recurring) == [before]
    assert world.recurring[before]["status"] == "ENABLED"


def test_two_of_one_name_become_one(server: Server, world: KfpWorld, nightly: Schedule) -> None:
    version = ServerPipelines(server).upload(HELLO)
    change = Change(
        schedule=nightly, version=version, parameters=nightly.parameters, action="create"
    )
    Schedules(server).apply([change], "podium")
    Schedules(server).apply([change], "podium")  # as somebody else who planned at that time
    ((first, there),) = world.recurring.items()
    world.recurring["other"] = {**there, "recurring_run_id": "other"}
    assert applied(server, nightly) == "replace"
    assert len(world.recurring) == 1
    assert not world.recurring.keys() & {first, "other"}


def test_a_parameter_the_version_lacks_is_refused(server: Server, world: KfpWorld) -> None:
    ServerPipelines(server).upload(HELLO)
    for wrong in ({"round": 5}, {"rounds": "5"}):
        with pytest.raises(InvalidInput):
            Schedules(server).plan(
                [Schedule(name="x", pipeline="hello-world", cron="@daily", parameters=wrong)],
            )
    with pytest.raises(NotFound):
        Schedules(server).plan([Schedule(name="x", pipeline="none", cron="@daily")])
    assert not world.recurring


def test_a_list_of_lists_is_a_parameter_like_others(tmp_path: Path) -> None:
    file = tmp_path / "right.yaml"
    file.write_text("name: x\npipeline: y\ncron: '@daily'\nparameters: {pairs: [[1, 2]]}\n")
    (schedule,) = schedule_files.load([file])
    assert schedule.parameters == {"pairs": [[1, 2]]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\npipeline: y\ncron: 0 3 * * *\n", "five of a crontab"),
        ("name: x\npipeline: y\n", "the schedule has no cron"),
        (
            "name: x\npipeline: y\ncron: '@daily'\nmax_concurency: 2\n",
            "a schedule has no field 'max_concurency'",
        ),
        ("name: x\npipeline: y\ncron: '@daily'\nmax_concurrency: 11\n", "max_concurrency <= 10"),
        ("name: x\npipeline: y\ncron: '@daily'\ncatchup: 'no'\n", "catchup is bool"),
        (
            "name: x\npipeline: y\ncron: '@daily'\nparameters: {day: '[[ScheduledTime]]'}\n",
            "do not substitute",
        ),
        ("- 1\n", "must hold a schedule"),
        ("{", "not readable as YAML"),
        ("schedules: []\n", "no schedule in"),
        ("schedules: []\ncron: '@daily'\n", "cron stands beside the list of schedules"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=said) as caught:
        schedule_files.load([file])
    assert "wrong.yaml" in caught.value.message


def test_the_projects_own_schedules_can_be_read() -> None:
    found = schedule_files.load([Path(__file__).parents[2] / "schedules"])
    assert {schedule.pipeline for schedule in found} == {"tune-and-promote", "train-and-promote"}
    assert not any(schedule.enabled for schedule in found)


def test_the_commands_work_from_upload_to_delete(kfp: KfpServer, tmp_path: Path) -> None:
    pipeline, folder = tmp_path / "hello.yaml", tmp_path / "schedules"
    folder.mkdir()
    pipeline.write_text(HELLO)
    (folder / "nightly.yaml").write_text(NIGHTLY)

    def podium(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--host", kfp.host], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "uploaded" in podium("upload", str(pipeline))
    assert "unchanged" in podium("upload", str(pipeline))
    (planned,) = json.loads(podium("schedule", "plan", str(folder), "--json"))
    assert planned["action"] == "create"
    assert len(planned["next"]) == 5
    assert podium("schedule", "plan", str(folder)).startswith("create   nightly  hello-world v1-")
    (folder / "nightly.yaml").write_text(f"{NIGHTLY}enabled: false\n")
    (planned,) = json.loads(podium("schedule", "plan", str(folder), "--json"))
    assert planned["next"] == []
    assert (
        podium("schedule", "plan", str(folder)).splitlines()[-1]
        == "         paused: it does not fire"
    )
    (folder / "nightly.yaml").write_text(NIGHTLY)
    podium("schedule", "apply", str(folder))
    assert podium("schedule", "apply", str(folder)).startswith("keep ")
    paused = CliRunner().invoke(app, ["schedule", "pause", "nightly", "--host", kfp.host])
    assert (paused.exit_code, paused.stderr) == (0, "nightly paused\n")
    assert "paused" in podium("schedule", "list")
    podium("schedule", "delete", "nightly")
    assert json.loads(podium("schedule", "list", "--json")) == []
    assert json.loads(podium("submit", "hello_world", "rounds=2", "--json"))["state"] == "SUBMITTED"
