"""A home with a registry and sweeps, and the pages over it: in this process, and in a real browser."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from handmade import SHAPES, TABLE, rows_model, shapes_model
from pages import running
from sweep_manifests import job, space, write_experiment

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.models import open_registry
from podium.ui.app import Pages
from podium.ui.sources import Sources

TOKEN = "open-sesame"

PROGRAM = """
import pathlib, sys, time
x, name, seconds = float(sys.argv[1]), sys.argv[2], float(sys.argv[3])
for epoch in range(1, 4):
    time.sleep(seconds)
    print(f"loss={(x - 0.5) ** 2 + 1 / epoch}", flush=True)
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """An Experiment over x = 0, 0.5, 1, whose trials print a loss three times, so many seconds apart."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def write(name: str = "parabola", seconds: object = 0.0, **spec: Any) -> dict[str, Any]:
        command = [
            "python",
            str(program),
            "${trialParameters.x}",
            "${trialParameters.own}",
            str(seconds),
        ]
        parameters = [
            {"name": "x", "reference": "x"},
            {"name": "own", "reference": "${trialSpec.Name}"},
        ]
        given = {
            "algorithm": {"algorithmName": "grid"},
            "maxTrialCount": 3,
            "resumePolicy": "LongRunning",
            **spec,
        }
        return write_experiment(
            job(command), name=name, parameters=[space("x", min="0", max="1", step="0.5")],
            template={"trialParameters": parameters, "retain": True}, **given,
        )  # fmt: skip

    return write


@pytest.fixture
def models(home: Path) -> None:
    """A model of pictures with two versions, and one of rows."""
    registry = open_registry(None)
    for name, graph, described in (
        ("shapes", shapes_model(), SHAPES),
        ("rows", rows_model(), TABLE),
    ):
        files: dict[str, Path | bytes] = {
            "model.onnx": graph,
            "preprocessing.json": json.dumps(described).encode(),
        }
        for version in ("v1", "v2"):
            registry.model(name).upload(files, {"run_id": version, "metrics": {"accuracy": 0.5}})
        registry.model(name).set_champion("v1", {"reason": "the first"}, expect=None)


@pytest.fixture
def stranger(home: Path) -> Iterator[httpx.Client]:
    """Asks the pages, which a server in this process answers with, without their token."""
    sources = Sources(ClusterSpec.of(None), None, None)
    pages = Pages(sources, TOKEN)
    config = uvicorn.Config(
        pages.app,
        host="127.0.0.1",
        port=0,
        log_config=None,  # tests see what it logs
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    server, listening = uvicorn.Server(config), config.bind_socket()
    listening.listen()  # who comes before the server has begun waits
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    with httpx.Client(
        base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60, follow_redirects=True
    ) as client:
        yield client
    server.should_exit = True
    thread.join()
    sources.dashboards.close()
    listening.close()


@pytest.fixture
def visitor(stranger: httpx.Client) -> httpx.Client:
    """Has opened the address with the token."""
    assert stranger.get(f"/?token={TOKEN}").status_code == 200
    return stranger


class Shown:
    """`podium ui` in a process of its own.

    Args:
        url: With its token.
    """

    def __init__(self, url: str) -> None:
        self.url, (self.base, self.token) = url, url.split("/?token=")


@pytest.fixture
def shown(home: Path) -> Iterator[Shown]:
    """`podium ui` of the test's own home."""
    with running() as url:
        yield Shown(url)


@pytest.fixture
def begin() -> Iterator[Callable[..., podium.Sweep]]:
    """Begin sweeps in the background, which end with the test."""
    begun: list[podium.Sweep] = []

    def sweep(manifest: dict[str, Any]) -> podium.Sweep:
        begun.append(podium.sweep(manifest, wait=False))
        return begun[-1]

    yield sweep
    for each in begun:
        each.close()
