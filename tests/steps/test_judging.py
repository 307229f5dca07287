"""evaluate, upload_model and promote on real, small models."""

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import score
from s3servers import KEYS, Application, moto

from podium.data import artifact
from podium.data.validated import Validated
from podium.errors import Conflict, InvalidInput, NotFound
from podium.models import Version, open_registry
from podium.models.document import name_for
from podium.prediction import ModelDirectory
from podium.prediction.predictor import PREPROCESSING
from podium.scoring import find_metric
from podium.steps.evaluate import (
    PREDICTIONS,
    TARGET,
    _Candidate,
    _EvaluationResult,
    evaluate,
    per_class,
)
from podium.steps.process import current_run
from podium.steps.promote import _PromoteResult, promote
from podium.steps.upload_model import upload_model
from podium.storage import connect, transfer
from podium.training.identity import RunIdentity, StepContext, code_version
from podium.training.origin import Origin
from podium.training.predict_job import PredictJobs
from podium.training.target import LaunchTarget

RUN = "20260102-030405-abcd"


def step(tmp_path: Path) -> StepContext:
    return StepContext(current_run, lambda: str(tmp_path / "store"))


def jobs(tmp_path: Path) -> PredictJobs:
    target = LaunchTarget(cluster=f"local://{tmp_path}/cluster")
    return PredictJobs(step=step(tmp_path), target=target)


def judge(
    data: Path, tmp_path: Path, *models: Path, trials: Path | None = None
) -> _EvaluationResult:
    uris = [str(model) for model in models]
    return evaluate(
        step(tmp_path),
        data,
        uris,
        tmp_path / "evaluation",
        tmp_path / "predictions",
        jobs=jobs(tmp_path),
        trials=trials,
    )


@pytest.fixture
def judged(
    tiny_dataset: Path, candidates: dict[str, Path], sweep_table: Path, tmp_path: Path
) -> tuple[_EvaluationResult, dict[str, Any]]:
    found = judge(
        tiny_dataset, tmp_path, candidates["weak"], candidates["strong"], trials=sweep_table
    )
    return found, json.loads((tmp_path / "evaluation").read_text())


def uploaded(tmp_path: Path, evaluation: str = "evaluation", *, winner: str = "strong") -> str:
    model = str(tmp_path / "candidates" / winner)
    return upload_model(
        step(tmp_path), model, tmp_path / "predictions", tmp_path / evaluation, model_name="tiny"
    )


def stored(tmp_path: Path) -> Version:
    """Upload what was evaluated and read the version."""
    return open_registry(tmp_path / "store").model("tiny").version(uploaded(tmp_path))


def test_a_model_that_nobody_named_is_called_as_its_dataset(
    judged: object, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(model_name: str = "") -> dict[str, Any]:
        files = (tmp_path / "predictions", tmp_path / "evaluation")
        winner = str(tmp_path / "candidates/strong")
        version = upload_model(step(tmp_path), winner, *files, model_name=model_name)
        promote(
            step(tmp_path), tiny_dataset, files[1], tmp_path / "decision", tmp_path / "report.html",
            version=version, model_name=model_name, jobs=jobs(tmp_path),
        )  # fmt: skip
        decision: dict[str, Any] = json.loads((tmp_path / "decision").read_text())
        return decision

    assert run("digits")["model_name"] == "digits"
    assert "new model" not in capsys.readouterr().out
    assert run()["model_name"] == "tiny"
    assert "model_name=digits challenges its champion" in capsys.readouterr().out
    assert name_for("Kunden (März).2026") == "Kunden-M-rz-.2026"
    assert name_for("客户") == "model"
    assert name_for("sales_2026-11-27") == name_for("20261128 sales") == "sales", "day after day"
    assert name_for("2026-11-27") == "2026-11-27"
    assert name_for("sales 2026-11-27T10:20") == name_for("sales_2026_11") == "sales"
    assert name_for("part-200001") == "part-200001", "a number is no month"


def test_folds_that_kept_classes_alone_are_judged_on_validation(
    tiny_dataset: Path,
    candidates: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = candidates["strong"]
    trained = json.loads((model / "metrics.json").read_text())
    (model / "metrics.json").write_text(json.dumps({**trained, "folds": [{}, {}]}))
    part = artifact.load(tiny_dataset, "validation")
    classes = np.asarray(part.target, np.int64)
    folds = np.arange(len(classes)) % 2
    Validated(target=classes, predictions=classes, folds=folds).write(connect(str(model)))
    candidate = _Candidate.open(str(model), artifact.describe(tiny_dataset), jobs(tmp_path))
    by_classes = candidate.judged(part, find_metric("accuracy"), tune=False)
    assert by_classes.scores.metrics["accuracy"] == 1
    found = candidate.judged(part, find_metric("log_loss"), tune=False)
    assert found.scores.metrics["log_loss"] > 0
    assert "left no probabilities of its folds" in capsys.readouterr().out


def challenge(
    data: Path, tmp_path: Path, version: str, rule: str = "better"
) -> tuple[_PromoteResult, dict[str, Any]]:
    ended = promote(
        step(tmp_path), data, tmp_path / "evaluation", tmp_path / "decision", tmp_path / "report.html", version=version,
        model_name="tiny", rule=rule, jobs=jobs(tmp_path),
    )  # fmt: skip
    return ended, json.loads((tmp_path / "decision").read_text())


def test_the_candidate_that_is_better_on_the_validation_part_wins(
    judged: tuple[_EvaluationResult, dict[str, Any]],
) -> None:
    _, reported = judged
    assert reported["winner"]["name"] == "train-1"
    by_name = {
        candidate["name"]: candidate["validation"]["metrics"]["accuracy"]
        for candidate in reported["candidates"]
    }
    assert by_name["train-1"] > by_name["sweep-1-aaaa"]
    assert "against" in reported["winner"]["why"]


def test_the_order_of_the_candidates_does_not_matter(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path
) -> None:
    judge(tiny_dataset, tmp_path, candidates["strong"], candidates["weak"])
    assert json.loads((tmp_path / "evaluation").read_text())["winner"]["name"] == "train-1"


def test_between_equals_the_first_named_wins(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path
) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(candidates["strong"], twin)
    origin = json.loads((twin / "origin.json").read_text())
    (twin / "origin.json").write_text(json.dumps({**origin, "name": "twin", "uri": str(twin)}))
    judge(tiny_dataset, tmp_path, twin, candidates["strong"])
    reported = json.loads((tmp_path / "evaluation").read_text())
    assert reported["winner"]["name"] == "twin"
    assert reported["winner"]["why"].endswith("so the one listed first")


def test_the_test_part_is_opened_once_for_the_winner(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.scoring import OnnxModel
    from podium.steps import evaluate

    opened: list[str] = []
    load = artifact.load
    for room in (artifact, evaluate):
        monkeypatch.setattr(
            room, "load", lambda uri, part: (opened.append(part), load(uri, part))[1]
        )
    monkeypatch.setattr(
        evaluate, "OnnxModel", lambda model: (opened.append(str(model)), OnnxModel(model))[1]
    )
    judge(tiny_dataset, tmp_path, candidates["weak"], candidates["strong"])
    weak, strong = "sweep-1-aaaa/model.onnx", "train-1/model.onnx"
    assert ["/".join(name.split("/")[-2:]) for name in opened] == [
        "validation",
        weak,
        strong,
        "test",
        strong,
    ]


def test_a_version_says_how_its_inputs_were_made(
    judged: Any, tiny_dataset: Path, tmp_path: Path
) -> None:
    version = stored(tmp_path)
    written = json.loads(version.read(PREPROCESSING))
    info = artifact.describe(tiny_dataset)
    assert written == {**info.preprocessing, "target": "label", "classes": list(info.classes)}


def test_what_a_model_says_of_its_inputs_is_kept(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path
) -> None:
    (candidates["strong"] / PREPROCESSING).write_text('{"kind": "own"}')
    judge(tiny_dataset, tmp_path, candidates["strong"])
    version = stored(tmp_path)
    assert version.read(PREPROCESSING) == b'{"kind": "own"}'


def test_what_is_reported_is_what_the_models_bytes_do(
    judged: tuple[_EvaluationResult, dict[str, Any]],
    tiny_dataset: Path,
    candidates: dict[str, Path],
    tmp_path: Path,
) -> None:
    found, reported = judged
    model = candidates["strong"] / "model.onnx"
    assert found.winner == reported["winner"]["uri"] == str(candidates["strong"])
    assert reported["winner"]["files"]["model.onnx"] == sha256(model.read_bytes()).hexdigest()
    part = artifact.load(tiny_dataset, "test")
    again = score(model, part.inputs, part.target, classes=10)
    assert (
        found.metrics["accuracy"]
        == reported["test"]["metrics"]["accuracy"]
        == again.metrics["accuracy"]
    )
    assert np.array_equal(np.load(tmp_path / "predictions" / PREDICTIONS), again.predictions)
    assert np.array_equal(np.load(tmp_path / "predictions" / TARGET), part.target)
    assert sum(map(sum, found.confusion)) == 100


def test_a_checkpoint_never_goes_forward(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path
) -> None:
    (candidates["strong"] / "checkpoint.pt").write_bytes(b"pickle")
    judge(tiny_dataset, tmp_path, candidates["strong"])
    assert not any("checkpoint" in file for file in stored(tmp_path).files)


def test_a_model_changed_after_its_evaluation_is_not_uploaded(
    judged: object, candidates: dict[str, Path], tmp_path: Path
) -> None:
    with (candidates["strong"] / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(Conflict, match=r"model.safetensors under .* changed after the evaluation"):
        uploaded(tmp_path)
    assert not (tmp_path / "store").exists()


def test_an_evaluation_holds_data_and_versions(
    judged: tuple[_EvaluationResult, dict[str, Any]],
) -> None:
    _, reported = judged
    parts = {part["name"]: part for part in reported["data"]["parts"]}
    assert list(parts) == ["train", "validation", "test"]
    for name, part in parts.items():
        assert sum(part["class_counts"]) == part["items"] == reported["dataset"]["counts"][name]
        assert part["target"] == []
    assert reported["evaluated_with"]["numpy"] == np.__version__
    assert reported["evaluated_with"]["podium"] == code_version()


def test_a_file_written_again_with_the_same_bytes_is_uploaded(
    judged: object, candidates: dict[str, Path], tmp_path: Path
) -> None:
    model = candidates["strong"] / "model.onnx"
    content = model.read_bytes()
    model.write_bytes(content)
    assert stored(tmp_path).read("model.onnx") == content


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is downloaded from an S3 server that the environment names."""
    keys: list[str] = []

    def counting(application: Application) -> Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "GET":
                keys.append(environ["PATH_INFO"])
            return application(environ, start_response)

        return call

    with moto(around=counting) as url:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        yield keys


@pytest.mark.parametrize(("padding", "expected"), [(0, 3), (9 << 20, 2)], ids=["small", "large"])
def test_a_model_is_read_no_more_often_than_needed(
    tiny_dataset: Path,
    candidates: dict[str, Path],
    tmp_path: Path,
    reads: list[str],
    padding: int,
    expected: int,
) -> None:
    import onnx

    file = candidates["strong"] / "model.onnx"
    graph = onnx.load(file)
    graph.doc_string = "x" * padding
    onnx.save(graph, file)
    bucket = connect(f"s3://podium-reads-{padding}", create=True)
    uri = bucket.join("strong")
    transfer.put(candidates["strong"], connect(uri))
    replace(Origin.read(ModelDirectory(candidates["strong"])), uri=uri).write(ModelDirectory(uri))
    there = StepContext.of(RunIdentity(id="20260102-030405-abcd"), bucket.url)
    evaluate(
        there,
        tiny_dataset,
        [uri],
        tmp_path / "evaluation",
        tmp_path / "predictions",
        jobs=jobs(tmp_path),
    )
    written = (tmp_path / "predictions", tmp_path / "evaluation")
    version = upload_model(there, uri, *written, model_name="tiny")
    # The validation part, the test part, and what is small again for its checksum: the server copies what is large.
    assert [key.endswith("model.onnx") for key in reads].count(True) == expected
    assert (
        open_registry(bucket.url).model("tiny").version(version).read("model.onnx")
        == file.read_bytes()
    )

    connect(uri).put("model.onnx", file.read_bytes()[:-1] + b"y")
    with pytest.raises(Conflict, match=r"model.onnx under .* changed after the evaluation"):
        upload_model(there, uri, *written, model_name="again")


def test_only_what_was_evaluated_is_uploaded(
    judged: object, candidates: dict[str, Path], tmp_path: Path
) -> None:
    (candidates["strong"] / "late.bin").write_bytes(b"late")
    assert "late.bin" not in stored(tmp_path).files


def test_a_candidate_trained_on_other_data_is_refused(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path
) -> None:
    file = candidates["weak"] / "metrics.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "dataset": "0" * 64}))
    with pytest.raises(InvalidInput, match="but is evaluated on"):
        judge(tiny_dataset, tmp_path, candidates["weak"])


def test_precision_recall_and_f1_follow_from_the_confusion_matrix() -> None:
    rows = [asdict(row) for row in per_class([[8, 2, 0], [1, 9, 0], [0, 0, 0]], ["a", "b", "c"])]
    assert rows[0] == {"name": "a", "precision": 8 / 9, "recall": 0.8, "f1": 16 / 19, "items": 10}
    assert rows[2] == {"name": "c", "precision": None, "recall": None, "f1": None, "items": 0}


def test_a_version_says_how_it_came_about(
    judged: tuple[_EvaluationResult, dict[str, Any]], tmp_path: Path
) -> None:
    version = stored(tmp_path)
    assert version.version == RUN
    assert set(version.files) >= {
        "model.onnx",
        "model.safetensors",
        "metrics.json",
        "origin.json",
        PREDICTIONS,
    }
    reported = version.metadata
    assert reported["hyperparameters"] == {"lr": "1.0"}
    assert reported["metrics"]["accuracy"] == judged[0].metrics["accuracy"]
    assert reported["dataset"]["digest"] == judged[1]["dataset"]["digest"]
    assert reported["origin"]["name"] == "train-1"
    assert reported["image"] == "trainer:1"
    assert reported["code_version"] == code_version()
    assert {"run_id", "metrics", "report", "dataset", "origin", "environment"} <= set(reported)


def test_uploading_twice_makes_one_version(judged: object, tmp_path: Path) -> None:
    assert uploaded(tmp_path) == uploaded(tmp_path)
    assert len(open_registry(tmp_path / "store").model("tiny").versions) == 1


def test_the_first_version_becomes_champion_once(
    judged: object, tiny_dataset: Path, tmp_path: Path
) -> None:
    version = uploaded(tmp_path)
    first, reported = challenge(tiny_dataset, tmp_path, version)
    assert (first.outcome, reported["champion"], reported["compared_with"]) == (
        "promoted",
        version,
        None,
    )
    again, reported = challenge(tiny_dataset, tmp_path, version)
    assert (again.outcome, reported["champion"]) == ("promoted", version)
    model = open_registry(tmp_path / "store").model("tiny")
    assert len(model.records()) == 1
    assert model.find_champion().version == version  # type: ignore[union-attr]


def test_a_weaker_challenger_leaves_the_champion_where_it_is(
    judged: object,
    tiny_dataset: Path,
    candidates: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    champion = uploaded(tmp_path)
    challenge(tiny_dataset, tmp_path, champion)
    monkeypatch.setenv("PODIUM_RUN_ID", "20260203-040506-beef")
    judge(tiny_dataset, tmp_path, candidates["weak"])
    ended, reported = challenge(tiny_dataset, tmp_path, uploaded(tmp_path, winner="weak"))
    assert ended.outcome == "kept"
    assert reported["champion"] == reported["compared_with"] == champion
    assert reported["champion_run"] == RUN
    page = (tmp_path / "report.html").read_text()
    assert f"It was compared with the champion {champion}, which the run {RUN} made:" in page
    assert (
        f"<code>podium models show tiny {champion} --storage {reported['storage']}</code>" in page
    )
    assert any(reason.startswith("no: better than the champion") for reason in reported["reasons"])
    assert reported["value"] < reported["champion_value"]


def test_a_champion_of_other_images_is_evaluated_on_ours(
    judged: object, tiny_dataset: Path, tmp_path: Path
) -> None:
    """Its stored predictions belong to other pictures: comparing with them would be comparing noise."""
    reported = json.loads((tmp_path / "evaluation").read_text())
    (tmp_path / "other").write_text(
        json.dumps({**reported, "dataset": {**reported["dataset"], "test_digest": "0" * 64}})
    )
    np.save(tmp_path / "predictions" / PREDICTIONS, np.zeros(100, np.uint8))
    version = uploaded(tmp_path, "other")
    _, decision = challenge(tiny_dataset, tmp_path, version)
    assert decision["value"] == reported["test"]["metrics"]["accuracy"]


def test_a_rule_that_cannot_be_read_changes_nothing(
    judged: object, tiny_dataset: Path, tmp_path: Path
) -> None:
    version = uploaded(tmp_path)
    with pytest.raises(InvalidInput, match="'bettr' is not a criterion"):
        challenge(tiny_dataset, tmp_path, version, rule="bettr")
    assert open_registry(tmp_path / "store").model("tiny").find_champion() is None
    assert not (tmp_path / "decision").exists()


def test_promoting_a_missing_version_names_those_there_are(
    judged: object, tiny_dataset: Path, tmp_path: Path
) -> None:
    version = uploaded(tmp_path)
    with pytest.raises(NotFound) as caught:
        challenge(tiny_dataset, tmp_path, "other")
    assert version in (caught.value.hint or "")


def test_a_choice_that_differs_from_katibs_is_reported(
    judged: tuple[_EvaluationResult, dict[str, Any]], tiny_dataset: Path, tmp_path: Path
) -> None:
    challenge(tiny_dataset, tmp_path, uploaded(tmp_path))
    page = (tmp_path / "report.html").read_text().replace("&#39;", "'")
    assert "algorithm random<br>Katib's currentOptimalTrial is another</p>" in page


@pytest.mark.parametrize("file", ["metrics.json", "origin.json"])
def test_a_candidates_field_of_another_type_is_named(
    file: str, tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path
) -> None:
    path = candidates["weak"] / file
    whole = json.loads(path.read_text())
    for name in (
        ("epoch", "dataset", "epochs") if file == "metrics.json" else ("name", "hyperparameters")
    ):
        path.write_text(json.dumps({**whole, name: [[7]]}))
        with pytest.raises(InvalidInput, match=rf"{file}: {name}(\[0\])? must be"):
            judge(tiny_dataset, tmp_path, candidates["weak"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("test", "metrics"), {"accuracy": "high"}), (("winner",), 5), (("candidates", 0, "validation"), None),
        (("dataset", "classes"), "0123456789"), (("test", "confusion"), [["many"]]), (("sweep", "trials"), {}),
    ],
)  # fmt: skip
def test_an_evaluations_field_of_another_type_is_named(
    tmp_path: Path,
    judged: tuple[_EvaluationResult, dict[str, Any]],
    path: tuple[Any, ...],
    value: Any,
) -> None:
    holder = document = judged[1]
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    (tmp_path / "evaluation").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=f"evaluation.*{path[0]}"):
        uploaded(tmp_path)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("of", ["winner", "candidates"])
def test_an_evaluations_missing_field_is_named(
    of: str, tmp_path: Path, judged: tuple[_EvaluationResult, dict[str, Any]]
) -> None:
    document = judged[1]
    where = "winner" if of == "winner" else "candidates[0]"
    for name in ("hyperparameters", "experiment", "image", "code", "install_requirements"):
        changed = json.loads(json.dumps(document))
        del (changed["winner"] if of == "winner" else changed["candidates"][0])[name]
        (tmp_path / "evaluation").write_text(json.dumps(changed))
        with pytest.raises(InvalidInput, match=re.escape(f"evaluation has no {where}.{name}")):
            uploaded(tmp_path)


def test_a_winner_that_is_not_a_candidate_is_refused(
    judged: tuple[_EvaluationResult, dict[str, Any]], tmp_path: Path
) -> None:
    document = judged[1]
    document["winner"]["uri"] = "elsewhere"
    (tmp_path / "evaluation").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=r"evaluation: .*is not one of the candidates"):
        uploaded(tmp_path)


@pytest.fixture
def measured_table(sweep_table: Path) -> Path:
    """The table of a sweep whose trials report their latency, too; the weak candidate is one of them."""
    table = json.loads(sweep_table.read_text())
    for number, row in enumerate(table["trials"]):
        folds = {"min": f"{number + 1}.5", "max": "99", "latest": f"{number + 10}"}
        row["metrics"] = {
            "ms": folds,
            "accuracy": {"min": "0.1", "max": "0.9", "latest": "unavailable"},
        }
    table["trials"][5]["name"], table["strategies"] = (
        "sweep-1-aaaa",
        {"accuracy": "max", "ms": "latest"},
    )
    sweep_table.write_text(json.dumps(table))
    return sweep_table


@pytest.mark.parametrize(("winner", "trial", "latency"), [("weak", 5, 15.0), ("strong", 0, 10.0)])
def test_a_version_has_the_metrics_of_its_trial(
    tiny_dataset: Path, candidates: dict[str, Path], measured_table: Path, tmp_path: Path, winner: str, trial: int,
    latency: float,
) -> None:  # fmt: skip
    judge(tiny_dataset, tmp_path, candidates[winner], trials=measured_table)
    version = (
        open_registry(tmp_path / "store").model("tiny").version(uploaded(tmp_path, winner=winner))
    )
    name = json.loads(measured_table.read_text())["trials"][trial]["name"]
    assert version.facts.trial.name == name, (
        "of a training the best trial's, whose hyperparameters it has"
    )
    assert version.facts.trial.metrics == {"ms": latency, "accuracy": 0.9}
    assert "ms" not in version.facts.metrics
    assert version.facts.metrics["accuracy"] != 0.9


@pytest.mark.parametrize(
    ("rule", "outcome", "reason"),
    [("trial.ms<=10", "promoted", "ok: ms 10 of its trial .* keeps trial.ms<=10"),
     ("better,trial.ms<10", "kept", "no: ms 10 of its trial .* breaks trial.ms<10"),
     ("trial.mb<10", "kept", "no: its trial .* has no mb \\(trial.mb<10\\)")],
)  # fmt: skip
def test_the_promotion_holds_a_bound_of_the_trial(
    tiny_dataset: Path, candidates: dict[str, Path], measured_table: Path, tmp_path: Path, rule: str, outcome: str,
    reason: str,
) -> None:  # fmt: skip
    judge(tiny_dataset, tmp_path, candidates["strong"], trials=measured_table)
    ended, decision = challenge(tiny_dataset, tmp_path, uploaded(tmp_path), rule)
    assert ended.outcome == outcome
    assert any(re.fullmatch(reason, said) for said in decision["reasons"]), decision["reasons"]
    assert (open_registry(tmp_path / "store").model("tiny").find_champion() is not None) == (
        outcome == "promoted"
    )


def test_a_version_without_a_sweep_keeps_no_bound(
    tiny_dataset: Path, candidates: dict[str, Path], tmp_path: Path
) -> None:
    judge(tiny_dataset, tmp_path, candidates["strong"])
    ended, decision = challenge(tiny_dataset, tmp_path, uploaded(tmp_path), "trial.ms<=20")
    assert ended.outcome == "kept"
    assert (
        decision["reasons"][0] == "no: the version, which is of no trial, has no ms (trial.ms<=20)"
    )
