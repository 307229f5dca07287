"""`podium submit --wait --notify` with a server of Kubeflow Pipelines and a webhook, both over real HTTP."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kfp_server import KfpServer, KfpWorld
from webhooks import webhook

from podium.cli import app
from podium.errors import Failed, InvalidInput

PIPELINE = """\
from kfp import dsl
from podium.components.prepare_data import prepare_data

@dsl.pipeline(name="own")
def own(limit: int = 0):
    prepare_data(limit=limit)
"""


def tasks(**states: str) -> dict[str, Any]:
    return {
        "task_details": [{"display_name": name, "state": state} for name, state in states.items()]
    }


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pipeline's file."""
    (tmp_path / "own.py").write_text(PIPELINE)
    return str(tmp_path / "own.py")


def submit(kfp: KfpServer, file: str, *words: str) -> tuple[Result, list[Any]]:
    """Submit; return what the command ended with, and what the webhook got."""
    with webhook() as (url, bodies):
        done = CliRunner().invoke(
            app, ["submit", file, "--host", kfp.host, *words, "--notify", url]
        )
    return done, [body for _, body in bodies]


def test_the_webhook_hears_of_a_run_that_succeeded(
    kfp: KfpServer, world: KfpWorld, file: str
) -> None:
    world.script = [
        {"state": "RUNNING", "run_details": tasks(prepare="RUNNING")},
        {"state": "SUCCEEDED", "run_details": tasks(prepare="SUCCEEDED")},
    ]
    done, bodies = submit(kfp, file, "--wait")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("SUCCEEDED\n")
    (run,) = world.runs
    assert bodies == [{
        "text": f"podium: run {run} of own succeeded", "event": "end", "run": run, "pipeline": "own",
        "status": "succeeded", "model": None, "version": None, "metrics": {},
        "report": f"{kfp.host}/#/runs/details/{run}",
    }]  # fmt: skip


def test_the_webhook_hears_which_task_failed(kfp: KfpServer, world: KfpWorld, file: str) -> None:
    world.script = [{"state": "FAILED", "run_details": tasks(prepare="SUCCEEDED", train="FAILED")}]
    done, (body,) = submit(kfp, file, "--wait")
    assert isinstance(done.exception, Failed)
    (run,) = world.runs
    assert (body["event"], body["status"], body["run"]) == ("failure", "failed", run)
    assert body["text"] == f"podium: run {run} of own failed: run {run} failed at train"


def test_notifying_without_waiting_is_refused_before_a_run_starts(
    kfp: KfpServer, world: KfpWorld, file: str
) -> None:
    done, bodies = submit(kfp, file)
    assert isinstance(done.exception, InvalidInput)
    assert (world.runs, bodies) == ({}, [])


def test_a_timeout_without_waiting_is_refused(kfp: KfpServer, world: KfpWorld, file: str) -> None:
    done = CliRunner().invoke(app, ["submit", file, "--host", kfp.host, "--timeout", "5"])
    assert str(done.exception).startswith("--timeout needs --wait")
    assert world.runs == {}
