"""A noun shows the same facts in the shell, in Python, to `podium mcp` and on the page."""

import json
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.cli import app
from podium.mcp.look import Look
from podium.runner.record import Annotations, RunRecord, StepRecord


def shell(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plain(value: Any) -> Any:
    """Return what a reader of JSON gets."""
    return json.loads(json.dumps(value))


def page(visitor: httpx.Client, path: str) -> str:
    answer = visitor.get(path)
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


def part(whole: dict[str, Any], of: dict[str, Any]) -> dict[str, Any]:
    return {name: whole[name] for name in of}


@pytest.fixture
def look(home: Path) -> Look:
    """Tools of `podium mcp`."""
    return Look(ClusterSpec.of(None), None)


@pytest.fixture
def sweep(home: Path) -> podium.Sweep:
    """A sweep of two trials that has ended."""
    Path("train.py").write_text(
        "import sys\nx = float(sys.argv[1].removeprefix('--x='))\nprint(f'loss={(x - 0.5) ** 2}')\n"
    )
    space = {"x": [0.0, 0.5]}
    return podium.tune(
        "train.py", space, objective="min:loss", algorithm="grid", trials=2, name="parabola"
    )


def test_a_run_is_the_same_everywhere(home: Path, look: Look, visitor: httpx.Client) -> None:
    directory = home / "runs" / "20260102-010101-bbbb"
    (directory / "logs").mkdir(parents=True)
    (directory / "logs" / "train.log").write_text("ValueError: no such column\n")
    steps = {
        "train": StepRecord(title="Train", state="failed", seconds=2.0),
        "promote": StepRecord(title="Promote"),
    }
    record = RunRecord(id=directory.name, pipeline="own.py", directory=directory, steps=steps)
    record.state, record.parameters = "failed", {"lr": 0.5}
    record.save()
    Annotations.edit(directory, lambda written: written.noted("the better one").tagged(["kept"]))
    facts = plain(podium.runs()["latest"].to_json())
    assert facts["result"] == 'ValueError: no such column, in "Train"'
    assert [step["seconds"] for step in facts["steps"].values()] == [2.0, None]

    (listed,) = shell("runs", "list")
    assert listed == facts | {"bytes": listed["bytes"]}
    assert part(shell("runs", "show", "latest"), facts) == facts
    assert plain(look.show_run("latest")) == facts
    (entry,) = plain(look.list_runs()["runs"])
    assert entry == part(facts, entry)
    pytest.importorskip("pandas")
    row = podium.runs().frame.to_dict("records")[0]
    same = ("run", "subject", "state", "began", "seconds", "result", "note")
    assert {name: row[name] for name in same} == {name: facts[name] for name in same}
    for shown in (page(visitor, "/runs"), unescape(podium.runs()._repr_html_())):
        for name in ("run", "subject", "state", "result"):
            assert facts[name] in shown


def test_a_sweep_is_the_same_everywhere(
    look: Look, sweep: podium.Sweep, visitor: httpx.Client
) -> None:
    facts = plain(sweep.to_json())
    assert (facts["state"], facts["counts"], facts["best"]) == ("succeeded", {"succeeded": 2}, 0.0)
    assert shell("runs", "list") == [facts]
    assert shell("experiment", "list") == [facts]
    assert part(shell("experiment", "status", "parabola"), facts) == facts
    assert plain(look.list_sweeps()["sweeps"]) == [facts]
    assert part(plain(look.show_sweep("parabola")), facts) == facts
    shown = page(visitor, "/sweeps")
    for name in ("sweep", "state", "metric", "algorithm"):
        assert facts[name] in shown


def test_a_trial_is_the_same_everywhere(
    look: Look, sweep: podium.Sweep, visitor: httpx.Client
) -> None:
    facts = plain(sweep.best_trial.to_json())
    assert (facts["parameters"], facts["value"]) == ({"x": "0.5"}, 0.0)
    assert part(shell("experiment", "best", "parabola"), facts) == facts
    assert part(shell("experiment", "trials", "parabola")[0], facts) == facts
    assert part(plain(look.show_sweep("parabola")["leaderboard"][0]), facts) == facts
    shown = page(visitor, "/sweeps/parabola")
    for told in (facts["name"], facts["state"].lower(), facts["parameters"]["x"]):
        assert told in shown


@pytest.mark.usefixtures("models")
def test_a_model_is_the_same_everywhere(look: Look, visitor: httpx.Client) -> None:
    model = podium.registry()["shapes"]
    facts = plain(model.overview().to_json())
    assert facts in shell("models", "list")
    assert facts in plain(look.list_models()["models"])
    versions = plain(model.versions.to_json())
    assert shell("models", "list", "shapes") == versions
    shown = plain(look.show_model("shapes", version="v1"))
    assert part(shown, versions) == {**versions, "versions": versions["versions"]}
    history = [plain(record.to_json()) for record in model.records()]
    assert shell("models", "history", "shapes") == history == shown["history"]
    for told in (page(visitor, "/models"), unescape(podium.registry()._repr_html_())):
        assert facts["name"] in told
        assert facts["champion"] in told


@pytest.mark.usefixtures("models")
def test_a_version_is_the_same_everywhere(look: Look, visitor: httpx.Client) -> None:
    version = podium.registry()["shapes"].champion
    facts = plain(version.to_json())
    assert facts in shell("models", "list", "shapes")["versions"]
    assert part(plain(look.show_model("shapes", version="v1"))["version"], facts) == facts
    text = CliRunner().invoke(app, ["models", "show", "shapes"]).output
    for shown in (page(visitor, "/models/shapes/versions/v1"), version._repr_html_(), text):
        assert "accuracy" in shown
        assert "0.5" in shown


def test_a_job_is_the_same_everywhere(home: Path, visitor: httpx.Client) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "python", "command": ["python", "-c", "print('hello')"]},
    ]}}  # fmt: skip
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hello"},
                "spec": {"template": template}}  # fmt: skip
    job = podium.run_job(manifest)
    facts = plain(job.to_json())
    assert (facts["state"], facts["progress"]) == ("Succeeded", "Succeeded: pod-0 succeeded")
    assert shell("job", "list") == [facts]
    assert part(shell("job", "status", "hello"), facts) == facts
    (replica,) = facts["replicas"]
    listed, shown = page(visitor, "/jobs"), page(visitor, "/jobs/Job/hello")
    assert facts["progress"] in listed
    for told in (shown, job._repr_html_()):
        assert replica["replica"] in told


def test_a_dataset_is_the_same_everywhere(tiny_dataset: Path) -> None:
    data = podium.load_dataset(tiny_dataset)
    facts = plain(data.to_json())
    inspected = shell("data", "inspect", str(tiny_dataset))
    measured = ("uri", "parts")
    assert {name: value for name, value in inspected.items() if name not in measured} == {
        name: value for name, value in facts.items() if name not in measured
    }
    assert {name: inspected["parts"][name]["count"] for name in facts["parts"]} == {
        name: part["count"] for name, part in facts["parts"].items()
    }
    for told in (facts["name"], facts["kind"], *facts["parts"]):
        assert told in data._repr_html_()
