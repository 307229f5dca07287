"""Before and after an upgrade: what schedules run and what the registry holds, beside what this podium knows."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kfp_server import KfpServer, KfpWorld
from test_versions import HELLO

from podium.cli import app
from podium.kfp.client import Server
from podium.kfp.compiling import compile_pipeline
from podium.kfp.schedule_files import Schedule
from podium.kfp.schedules import Schedules
from podium.kfp.versions import PipelineVersion, ServerPipelines
from podium.models import open_registry
from podium.models.document import seal, unseal


@pytest.fixture
def look(kfp: KfpServer, tmp_path: Path) -> "Look":
    return Look(kfp, tmp_path / "store")


class Look:
    """The command, over a server and a storage."""

    def __init__(self, kfp: KfpServer, storage: Path) -> None:
        self.kfp, self.storage = kfp, storage

    def __call__(self, *words: str) -> Result:
        given = ["--check", "--storage", str(self.storage), "--host", self.kfp.host, *words]
        return CliRunner().invoke(app, ["upgrade", *given])


def schedule(server: Server, version: PipelineVersion) -> None:
    nightly = Schedule(
        name="nightly", pipeline=version.pipeline, cron="@daily", version=version.name
    )
    (change,) = Schedules(server).plan([nightly])
    Schedules(server).apply([change], "podium")


def old_pipeline() -> str:
    """Compile a pipeline as a podium did whose evaluation knew no code."""
    compiled = compile_pipeline("train_and_promote", steps_image="host/podium-steps:0.0.9")
    assert "podium.steps.evaluate import" in compiled
    return compiled.replace("podium.steps.evaluate import", "podium.evaluation import")


def test_a_schedule_of_this_podiums_steps_needs_nothing(look: Look, server: Server) -> None:
    version = ServerPipelines(server).upload(
        compile_pipeline("train_and_promote", ["epochs=7"], steps_image="host/podium-steps:7"),
    )
    schedule(server, version)
    done = look()
    assert done.exit_code == 0
    reported = (
        f"nightly: train-and-promote {version.name}: this podium's steps, in host/podium-steps:7"
    )
    assert reported in done.output
    assert "to do" not in done.output


def test_a_schedule_of_another_podiums_steps_is_named(look: Look, server: Server) -> None:
    old = ServerPipelines(server).upload(old_pipeline())
    schedule(server, old)
    done = look()
    assert done.exit_code == 1
    assert (
        f"train-and-promote {old.name}: another podium's steps, in host/podium-steps:0.0.9"
        in done.output
    )
    assert "to do: podium upload train-and-promote, then podium schedule apply" in done.output
    new = ServerPipelines(server).upload(compile_pipeline("train_and_promote"))
    done = look()
    assert f"{old.name}, newest {new.name}: another podium's steps" in done.output
    assert "to do: podium schedule apply" in done.output


def test_a_version_that_is_gone_and_a_foreign_pipeline(
    look: Look, server: Server, world: KfpWorld
) -> None:
    version = ServerPipelines(server).upload(HELLO)
    schedule(server, version)
    assert "not podium's pipeline" in look().output
    (there,) = world.recurring.values()
    there["pipeline_version_reference"]["pipeline_version_id"] = "gone"
    done = look("--json")
    (row,) = json.loads(done.output)["schedules"]
    assert (done.exit_code, row["version"], row["advice"] != "") == (1, "", True)


def test_a_model_that_a_newer_podium_wrote_is_named(look: Look, tmp_path: Path) -> None:
    model = open_registry(str(tmp_path / "store")).model("mnist")
    (tmp_path / "model.onnx").write_bytes(b"weights")
    model.upload({"model.onnx": tmp_path / "model.onnx"}, version="v1", metadata={})
    assert "1 model, no findings" in look().output
    metadata = next((tmp_path / "store").rglob("metadata.json"))
    document = unseal(metadata.read_bytes(), "metadata.json") | {"format": "podium.model/2"}
    metadata.write_bytes(seal(document))
    done = look()
    assert done.exit_code == 1
    assert "has the unknown format 'podium.model/2'" in done.output
