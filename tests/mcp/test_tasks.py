"""Tasks that a language model was given with llms.txt and the tools of `podium mcp` alone, replayed on real runs.

A file of tasks/ holds the question, the calls that the model made, and what it said between them. ``{3.trials}`` stands
for a value of the answer of call 3, and ``{best.value}`` in ``must_contain`` for one that the library knows.
"""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import podium
from podium.api.cluster_spec import ClusterSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TASKS = sorted((Path(__file__).parent / "tasks").glob("*.yaml"))
BIN = Path(sys.executable).parent

FIT = """
import argparse
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=float, default=1.0)
parser.add_argument("--ridge", type=float, default=1e-3)
options = parser.parse_args()
data, rng = np.load("data.npz"), np.random.default_rng(1)
x, y = data["x"], data["y"]
f = np.cos(x @ rng.normal(0, options.width, (x.shape[1], 100)) + rng.uniform(0, 6.28, 100))
w = np.linalg.solve(f[:800].T @ f[:800] + options.ridge * np.eye(100), f[:800].T @ y[:800])
error = f @ w - y
print(f"train_rmse={np.sqrt(np.mean(error[:800] ** 2)):.4f}")
print(f"rmse={np.sqrt(np.mean(error[800:] ** 2)):.4f}")
"""


def environment(project: Path) -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    home = str(project / "podium-work")
    return {**os.environ, "PODIUM_HOME": home, "OMP_NUM_THREADS": "1", "PATH": path}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two runs, of which the second was promoted by hand, and a sweep of eight trials."""
    folder = tmp_path_factory.mktemp("tasks")

    def typed(line: str, place: Path) -> None:
        done = subprocess.run(
            shlex.split(line), cwd=place, env=environment(place), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    typed("podium init pen --from blank", folder)
    place = folder / "pen"
    (place / "fit.py").write_text(FIT)
    typed("python make_data.py", place)
    typed("podium run max_trials=2", place)
    typed("podium run max_trials=1 seed=2", place)
    sweep = "podium tune fit.py --width 0.2,0.6,1.0,3.0 --ridge 1e-4,1e-2"
    typed(f"{sweep} --algorithm grid --objective min:rmse --trials 8 --name grid", place)
    return place


@pytest.fixture
def scene(project: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The facts of the project, as the library has them; the second run's version is champion."""
    for name, value in environment(project).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    first, second = podium.runs().all
    model, trials = podium.registry()["pen"], podium.open_sweep("grid").results
    if model.champion.version != second.id:
        model.promote(second.id, reason="a wider model was wished")
    return {
        "folder": str(project),
        "first": first.id,
        "second": second.id,
        "first_rmse": first.metrics["rmse"],
        "second_rmse": second.metrics["rmse"],
        "champion": model.champion.version,
        "grid": podium.open_sweep("grid").best.to_json(),
        "seventh": trials[6].to_json(),  # by the order in which they started
    }


def at(value: Any, path: str) -> Any:
    """Return a value below another: ``leaderboard.number=7.parameters.width``."""
    for key in path.split("."):
        name, equals, wanted = key.partition("=")
        if equals:
            (value,) = (each for each in value if str(each[name]) == wanted)
        else:
            value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def filled(value: Any, known: Callable[[str], Any]) -> Any:
    """Return a value with what stands in braces replaced, the innermost first."""
    if isinstance(value, dict):
        return {name: filled(part, known) for name, part in value.items()}
    if isinstance(value, list):
        return [filled(part, known) for part in value]
    while isinstance(value, str) and (found := re.search(r"(?<!\$)\{([^{}]+)\}", value)):
        value = value.replace(found[0], str(known(found[1])))
    return value


class Replay:
    """A model's calls, asked of a server once more; answers by the number of the call."""

    def __init__(self) -> None:
        from podium.mcp.server import make_server  # seconds of CPU, for whoever collects the tests

        self.server = make_server(ClusterSpec.of(None), None, allow_changes=True)
        self.answers: list[Any] = []

    def known(self, path: str) -> Any:
        number, _, below = path.partition(".")
        return at(self.answers[int(number)], below)

    def call(self, tool: str, arguments: dict[str, Any], until: dict[str, Any]) -> None:
        given, end = filled(arguments, self.known), time.monotonic() + 240
        answer = self.ask(tool, given)
        while any(answer[name] != value for name, value in until.items()):
            assert time.monotonic() < end, answer
            time.sleep(0.2)
            answer = self.ask(tool, given)
        self.answers.append(answer)

    def ask(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        from mcp import Client

        async def asked() -> Any:
            async with Client(self.server) as client:
                offered = {each.name: each for each in (await client.list_tools()).tools}
                assert given.keys() <= offered[tool].input_schema["properties"].keys()
                return await client.call_tool(tool, given)

        answer = asyncio.run(asked())
        assert not answer.is_error, answer.content[0].text
        return dict(answer.structured_content)


@pytest.mark.parametrize("file", TASKS, ids=lambda file: file.stem)
def test_a_model_does_the_task_with_its_tools(file: Path, scene: dict[str, Any]) -> None:
    task, replay = yaml.safe_load(file.read_text()), Replay()

    def fact(path: str) -> Any:
        name, _, below = path.partition(".")
        return (
            at(podium.open_sweep("fit").best.to_json(), below)
            if name == "best"
            else at(scene, path)
        )

    for call in task["calls"]:
        if "tool" in call:
            replay.call(call["tool"], call["arguments"], call.get("until", {}))
            continue
        said = filled(call["says"], replay.known)
        for wanted in filled(call["must_contain"], fact):
            assert wanted in said
        replay.answers.append(said)
    if "champion_is" in task:
        assert podium.registry()["pen"].champion.version == filled(task["champion_is"], fact)
    if "user_types" in task:
        answers(filled(task["user_types"], replay.known))


def answers(command: str) -> None:
    """Check that a command of the user's shell starts a server, and that it answers with the champion."""
    process = subprocess.Popen(
        [*shlex.split(command), "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    try:
        lines = iter(process.stderr.readline, "")
        url = next(match[1] for line in lines if (match := re.search(r"listening on (\S+)", line)))
        tensor = {"name": "x", "shape": [1, 6], "datatype": "FP32", "data": [0.5] * 6}
        answer = httpx.post(f"{url}/models/pen/infer", json={"inputs": [tensor]}, timeout=240)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model_version"] == podium.registry()["pen"].champion.version
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) in (0, 143)
        process.stderr.close()
