"""A home with a registry and sweeps, and the pages over it: in this process, and in a real browser."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from handmade import SHAPES, TABLE, rows_model, shapes_model
from sweep_manifests import job, space, write_experiment

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.models import open_registry
from podium.ui.app import Pages
from podium.ui.house import House

TOKEN = "open-sesame"

PROGRAM = """
import pathlib, sys, time
x, name, seconds = float(sys.argv[1]), sys.argv[2], float(sys.argv[3])
for epoch in range(1, 4):
    time.sleep(seconds)
    print(f"loss={(x - 0.5) ** 2 + 1 / epoch}", flush=True)
"""

LOADING = "Failed to load resource"
"""What a browser says of an answer that is an error, or of a server that ended: tests ask for both."""

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


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
    house = House(ClusterSpec.of(None), None, None)
    pages = Pages(house, TOKEN)
    config = uvicorn.Config(
        pages.app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1
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
    house.dashboards.close()
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


@contextmanager
def running(*words: str) -> Iterator[Shown]:
    command = [
        sys.executable,
        "-c",
        "from podium.cli import main; main()",
        "ui",
        "--port",
        "0",
        *words,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr
    line = process.stderr.readline()
    found = re.search(r"look at (http://\S+)", line)
    assert found, line + process.stderr.read()
    try:
        yield Shown(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, 143)
        process.stderr.close()


@pytest.fixture
def shown(home: Path) -> Iterator[Shown]:
    """`podium ui` of the test's own home."""
    with running() as pages:
        yield pages


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a window; skipped where Debian's chromium or another one is not installed.

    No longer than a module: while it is there an event loop runs in this thread, and other tests begin their own.
    """
    if CHROMIUM is None:
        pytest.skip("needs chromium (apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """A fresh window; whatever its script throws or its policy refuses fails the test."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "console",
        lambda said: (
            troubles.append(said.text)
            if said.type == "error" and LOADING not in said.text
            else None
        ),
    )
    yield page
    context.close()
    assert troubles == []


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
