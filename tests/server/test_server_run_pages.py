"""The page of a server's run: its steps, and what they left in its storage."""

from pathlib import Path

import pytest
from kfp_server import KfpServer, KfpWorld
from starlette.testclient import TestClient
from test_versions import details

from podium.api.cluster_spec import ClusterSpec
from podium.kfp.client import Server
from podium.training.kept_logs import KeptLogs
from podium.ui.app import Pages
from podium.ui.sources import Sources


@pytest.fixture
def visitor(kfp: KfpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Has opened the pages of a machine without runs of its own and of the server."""
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    sources = Sources(ClusterSpec.of(None), None, lambda: Server(kfp.host))
    client = TestClient(Pages(sources, "secret").app, base_url="http://127.0.0.1")
    assert client.get("/?token=secret").status_code == 200
    return client


def begin(world: KfpWorld, storage: str) -> None:
    """A run of which prepare succeeded and train failed."""
    world.runs["run-1"] = {
        "run_id": "run-1", "display_name": "hello", "state": "FAILED", "created_at": "2026-01-01T00:00:00Z",
        "finished_at": "2026-01-01T00:00:20Z", "runtime_config": {"parameters": {"storage": storage}},
        "run_details": details(prepare="SUCCEEDED", train="FAILED"),
    }  # fmt: skip


def test_the_page_shows_the_log_of_what_failed(
    visitor: TestClient, world: KfpWorld, tmp_path: Path
) -> None:
    storage = f"file://{tmp_path}/store"
    begin(world, storage)
    kept = KeptLogs(storage, "run-1")
    for name, text in (
        ("steps/train", "no memory <b>left</b>\n"),
        ("steps/prepare", "400 train\n"),
        ("train/train/master-0", "epoch 1\n"),
    ):
        kept.keep(name, text)
    page = visitor.get("/server/run-1").text
    assert "no memory &lt;b&gt;left&lt;/b&gt;" in page
    assert "400 train" not in page
    assert f"podium runs logs run-1 steps/train --storage {storage}" in page
    assert "400 train" in visitor.get("/server/run-1?log=steps/prepare").text
    assert "epoch 1" in visitor.get("/server/run-1?log=train/train/master-0").text
    assert visitor.get("/server/run-1?log=steps/absent").status_code == 404


@pytest.mark.parametrize("storage", ["minio://only-pods-reach-it/podium", "nothing://podium"])
def test_a_storage_out_of_reach_leaves_the_rest(
    visitor: TestClient, world: KfpWorld, storage: str
) -> None:
    begin(world, storage)
    page = visitor.get("/server/run-1")
    assert page.status_code == 200
    assert "Its logs are out of reach from here" in page.text
    assert "train" in page.text
