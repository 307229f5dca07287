"""`podium runs report`: runs, or versions of a model, on one page; and the report of a run with its steps."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from judging import Judge, fitted
from sklearn.linear_model import LogisticRegression

from podium.errors import InvalidInput, NotFound
from podium.models import open_registry
from podium.reports import render
from podium.runner.outcome import outcome_of
from podium.runner.record import RunRecord, StepRecord
from podium.runner.runs import Runs
from podium.training.handover import Evaluation

COMMAND = ("runs", "report")
FIRST, SECOND, FAILED = "20260101-010101-aaaa", "20260102-010101-bbbb", "20260103-010101-cccc"


def finished(
    home: Path,
    name: str,
    lr: str,
    accuracy: float,
    *,
    test: str = "same",
    champion: tuple[str, str | None] | None = None,
) -> None:
    """Leave what a run leaves that has succeeded; its evaluation is a real one with other figures."""
    directory = home / "runs" / name
    evaluation = json.loads((home / "evaluation").read_text())
    evaluation["winner"]["hyperparameters"] = {"lr": lr}
    evaluation["test"]["metrics"]["accuracy"] = accuracy
    evaluation["dataset"]["test_part"] = test
    evaluation["candidates"][0]["epochs"] = [
        {"epoch": at, "accuracy": accuracy * at / 2} for at in (1, 2)
    ]
    decision = {"model_name": "tiny", "version": name, "outcome": "promoted", "rule": "better", "value": accuracy,
                "storage": str(home / "store"), "reasons": [], "metric": {"name": "accuracy"}, "compared_with": None}  # fmt: skip
    if champion:
        decision |= dict(zip(("compared_with", "champion_run"), champion, strict=True))
    for step, file, text in (
        ("evaluate", "evaluation", json.dumps(evaluation)),
        ("promote-best", "decision", json.dumps(decision)),
        ("promote-best", "report", render(asdict(Evaluation.read(home / "evaluation")), decision)),
    ):
        path = directory / "artifacts" / "x" / step / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    steps = {
        "evaluate": StepRecord(title="Evaluate", state="succeeded", started=1.0, seconds=30.0),
        "promote-best": StepRecord(title="Promote", state="succeeded", started=31.0, seconds=10.0),
    }
    RunRecord(
        id=name, pipeline="train_and_promote", directory=directory, steps=steps, state="succeeded",
        parameters={"epochs": 3, "limit": 600, "storage": str(home / "store"), "cluster": str(directory)},
        words=["limit=600", "model_name=my model", "source=https://me:secret@host/data.csv"],
    ).save()  # fmt: skip


@pytest.fixture(scope="module")
def evaluation(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the step evaluate writes of a model that was trained on digits."""
    place = tmp_path_factory.mktemp("evaluated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_RUN_ID", FIRST)
        Judge(tiny_dataset, place, patch).evaluate(
            fitted(tiny_dataset, place / "model", LogisticRegression(C=1e-4))
        )
    return place / "evaluation"


@pytest.fixture
def home(evaluation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with two finished runs and one that failed."""
    shutil.copy(evaluation, tmp_path / "evaluation")
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    finished(tmp_path, FIRST, "0.1", 0.8)
    finished(tmp_path, SECOND, "0.2", 0.9)
    (tmp_path / "runs" / FAILED).mkdir()
    RunRecord(id=FAILED, pipeline="train_and_promote", directory=tmp_path / "runs" / FAILED, state="failed",
              parameters={"epochs": 7}).save()  # fmt: skip
    return tmp_path


def figures(page: str) -> dict[str, Any]:
    return json.loads(re.findall(r'id="figures">(.*?)</script>', page)[0])


def test_runs_are_compared_on_one_page(home: Path, podium: Callable[..., Result]) -> None:
    done = podium(FIRST, SECOND, FAILED, "-o", "compare.html", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "compared": [FIRST, SECOND, FAILED],
        "report": "compare.html",
    }
    page = (home / "compare.html").read_text()
    assert f"Best accuracy on the test part: {SECOND}" in page
    assert "accuracy 0.8000, first champion" in page
    for name in ("storage", "cluster"):
        assert f'<th scope="col" class="n">{name}</th>' not in page
    drawn = figures(page)
    assert [trace["y"] for trace in drawn["curves"]["data"]] == [[0.4, 0.8], [0.45, 0.9]]
    lr = next(each for each in drawn.values() if each["layout"]["xaxis"]["title"]["text"] == "lr")
    assert (lr["data"][0]["x"], lr["data"][0]["y"]) == ([0.1, 0.2], [0.8, 0.9])
    assert [trace["x"] for trace in drawn["steps"]["data"]] == [[30, 30], [10, 10]]
    assert "not all measured on the same test items" not in page


def test_other_test_items_are_pointed_out(home: Path) -> None:
    finished(home, "20260104-010101-dddd", "0.3", 0.95, test="other")
    written = Runs().compare([FIRST, "latest"], home / "new" / "compare.html")
    assert "not all measured on the same test items" in written.read_text()


@pytest.mark.parametrize(("names", "error", "message"), [
    ([FIRST], InvalidInput, f"a comparison needs two runs or more, but got {FIRST}"),
    ([FAILED, "latest"], InvalidInput, f"a comparison needs two runs or more, but got {FAILED}"),
    ([FIRST, "x"], NotFound, "there is no run 'x'"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(
    names: list[str],
    error: type[Exception],
    message: str,
    home: Path,
    podium: Callable[..., Result],
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        raise podium(*names).exception or AssertionError
    assert not (home / "compare.html").exists()


def test_versions_are_compared_with_the_steps_of_their_runs(
    home: Path, podium: Callable[..., Result]
) -> None:
    model = open_registry(home / "store").model("tiny")
    for name, lr, accuracy in ((FIRST, 0.1, 0.8), ("elsewhere", 0.2, 0.7)):
        (home / "metrics.json").write_text(
            json.dumps({"epochs": [{"epoch": 1, "accuracy": accuracy}]})
        )
        metadata = {"run_id": name, "hyperparameters": {"lr": lr}, "metric": {"name": "accuracy", "maximize": True},
                    "metrics": {"accuracy": accuracy}}  # fmt: skip
        model.upload({"metrics.json": home / "metrics.json"}, metadata)
    model.promote(FIRST)
    done = podium("champion", "elsewhere", "--model", "tiny", "--storage", str(home / "store"))
    assert done.exit_code == 0, done.output
    page = (home / "compare.html").read_text()
    assert "<h1>2 versions of tiny</h1>" in page
    assert f"Best accuracy on the test part: {FIRST}" in page
    drawn = figures(page)
    assert [trace["y"] for trace in drawn["curves"]["data"]] == [[0.8], [0.7]]
    assert [trace["y"] for trace in drawn["steps"]["data"]] == [[FIRST], [FIRST]]


def test_a_runs_report_ends_with_its_steps_and_command(home: Path) -> None:
    page = Runs()[FIRST].report.read_text()
    assert "<h2>Steps</h2>" in page
    assert "podium run train_and_promote limit=600 &#39;model_name=my model&#39;" in page
    assert "secret" not in page
    assert page == Runs()[FIRST].report.read_text(), "reading it twice adds nothing"


def report_of(name: str) -> str:
    return Path(outcome_of(Runs()[name].record)["report"]).read_text()


def test_a_report_links_to_that_of_the_champion(home: Path) -> None:
    report_of(FIRST)
    finished(home, SECOND, "0.2", 0.9, champion=("v7", FIRST))
    page = report_of(SECOND)
    (link,) = re.findall(r'<a href="(.*?)">its report</a>', page)
    assert (home / "runs" / SECOND / link).resolve() == home / "runs" / FIRST / "report.html"
    assert f"the champion v7, which the run {FIRST} made:" in page
    assert "podium models show tiny v7" not in page


@pytest.mark.parametrize(
    "made", [FAILED, "20250101-010101-dddd", None, "../runs", "..", f"../runs/{FIRST}"]
)
def test_a_champion_without_a_report_here_has_a_command(home: Path, made: str | None) -> None:
    report_of(FIRST)
    finished(home, SECOND, "0.2", 0.9, champion=("v7", made))
    page = report_of(SECOND)
    assert "<a href" not in page
    assert f"<code>podium models show tiny v7 --storage {home}/store</code>" in page
    assert ("which the run" in page) == bool(made)
