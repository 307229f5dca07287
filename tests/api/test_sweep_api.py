"""`podium.sweep` and the Sweep it returns, with real processes."""

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import podium
from podium.api import sweep as module
from podium.api.experiments import _at_home, changed
from podium.data import artifact, artifact_files
from podium.data.schema import Column
from podium.errors import Failed, InvalidInput, NotFound, PodiumError
from podium.manifests.experiment import Experiment
from podium.manifests.sdk import to_sdk


@pytest.fixture(scope="module")
def swept(
    parabola: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[podium.Sweep]:
    """A finished sweep over x = 0, 0.5, 1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_HOME", str(tmp_path_factory.mktemp("home")))
        yield podium.sweep(parabola)


def with_seconds(manifest: dict[str, Any], seconds: str) -> dict[str, Any]:
    """Let each trial take longer."""
    changed = copy.deepcopy(manifest)
    job = changed["spec"]["trialTemplate"]["trialSpec"]["spec"]
    job["template"]["spec"]["containers"][0]["command"][-1] = seconds
    return changed


def test_the_best_trial_has_its_values_and_model(swept: podium.Sweep) -> None:
    best = swept.best
    assert (best.parameters, best.metrics, best.value) == ({"x": 0.5}, {"loss": 0.0}, 0.0)
    assert best.model is not None
    assert Path(best.model, "model.onnx").read_text() == "weights"


def test_trials_are_a_data_frame_best_first(swept: podium.Sweep) -> None:
    frame = swept.trials
    assert list(frame.columns) == ["trial", "state", "x", "loss", "seconds", "model"]
    assert frame["loss"].tolist() == [0.0, 0.25, 0.25]
    assert frame["x"].dtype == float


def test_without_pandas_the_error_says_what_to_install(
    swept: podium.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        PodiumError, match=r"needs pandas\nhint: pip install 'podium-ml\[notebook\]'"
    ):
        swept.trials  # noqa: B018
    assert "<table>" in swept._repr_html_()


def test_a_sweep_shows_itself_as_a_table(swept: podium.Sweep) -> None:
    html = swept._repr_html_()
    assert html.count("<tr>") == 4
    assert f"<b>{swept.best.name}</b>" in html
    assert repr(swept) == "<Sweep parabola: Succeeded, 3 trials, best 0>"


def test_logs_are_those_of_the_best_trial(swept: podium.Sweep) -> None:
    assert repr(swept.logs()) == "loss=0.0"
    with pytest.raises(NotFound, match="parabola has no trial 'nothing'"):
        swept.logs("nothing")


def test_figures_show_every_trial(swept: podium.Sweep) -> None:
    assert sorted(swept.plot.history().data[1].y) == [0.0, 0.25, 0.25]
    assert swept.plot.parallel().layout.xaxis.ticktext == ("x", "loss")
    with pytest.raises(InvalidInput, match="needs 10 trials with a result, but there are 3"):
        swept.plot.importance()


def test_one_trial_is_enough_for_its_figures(parabola: dict[str, Any], home: Path) -> None:
    manifest = copy.deepcopy(parabola)
    manifest["spec"] |= {"maxTrialCount": 1, "parallelTrialCount": 1}
    with podium.sweep(manifest) as swept:
        assert len(swept.plot.history().data[1].y) == 1
        assert swept.plot.parallel().layout.xaxis.ticktext == ("x", "loss")


def test_an_output_needs_a_template_of_trials(parabola: dict[str, Any]) -> None:
    manifest = copy.deepcopy(parabola)
    manifest["spec"]["trialTemplate"]["trialParameters"] = []
    assert changed(manifest, output="/models").template.workload.manifest
    del manifest["spec"]["trialTemplate"]
    with pytest.raises(InvalidInput, match=r"an output needs a spec\.trialTemplate"):
        changed(manifest, output="/models")


def test_the_same_experiment_is_read_from_any_source(
    parabola: dict[str, Any], tmp_path: Path, home: Path, swept: podium.Sweep
) -> None:
    file = tmp_path / "parabola.yaml"
    file.write_text(yaml.safe_dump(parabola))
    read = Experiment.parse(parabola)
    for source in (file, str(file), file.read_text(), read, to_sdk(parabola)):
        assert module.experiments.read(source).spec == read.spec
    assert swept.to_sdk().spec.max_trial_count == 3


def test_counts_go_by_the_names_of_the_pipelines_too(parabola: dict[str, Any], home: Path) -> None:
    begun = podium.sweep(parabola, max_trials=2, parallel_trials=1)
    assert begun.experiment.limits.parallel == 1
    assert len(begun.results) == 2


def test_a_sweep_goes_on_with_more_trials(parabola: dict[str, Any], home: Path) -> None:
    sweep = podium.sweep(parabola, trials=1)
    (first,) = sweep.results
    again = sweep.resume(trials=3).results
    assert again[0].ended == first.ended
    assert sorted(trial.assignments["x"] for trial in again) == ["0.0", "0.5", "1.0"]


def test_a_stopped_sweep_goes_on_without_repeating_trials(
    parabola: dict[str, Any], home: Path
) -> None:
    sweep = podium.sweep(with_seconds(parabola, "0.3"), wait=False)
    assert sweep.stop().status == "Stopped"
    before = {trial.name: trial.ended for trial in sweep.results if trial.is_good}
    again = podium.open_sweep("parabola").resume()
    assert again.status == "Succeeded"
    assert before.items() <= {trial.name: trial.ended for trial in again.results}.items()


def test_a_with_block_keeps_the_cluster_of_an_ended_sweep(
    parabola: dict[str, Any], home: Path
) -> None:
    with podium.sweep(parabola, wait=False) as sweep:
        cluster = sweep.cluster
        sweep.session.join()
        assert sweep.cluster is cluster
        assert sweep.status == "Succeeded"
    assert sweep.cluster is not cluster
    sweep.close()


def test_a_failed_sweep_says_what_its_trial_said(parabola: dict[str, Any], home: Path) -> None:
    with pytest.raises(Failed, match=r"could not convert string to float: 'soon'"):
        podium.sweep(with_seconds(parabola, "soon"), max_failed_trials=1)
    assert podium.open_sweep("parabola").status == "Failed"


def test_a_broken_rule_leaves_nothing(parabola: dict[str, Any], home: Path) -> None:
    with pytest.raises(InvalidInput, match="max_trials"):
        podium.sweep(parabola, trials=0)
    with pytest.raises(NotFound, match="parabola"):
        podium.open_sweep("parabola")


def test_a_training_that_left_no_model_can_be_shown(tiny_dataset: Path, home: Path) -> None:
    words = ["python", "-c", "print('accuracy=0.5')"]
    training = podium.train(str(tiny_dataset), command=words, wait=False)
    with pytest.raises(NotFound):
        training.wait()
    assert repr(training) == f"<training {training.name}: Succeeded, no metrics>"
    assert training.name in training._repr_html_()


@pytest.mark.whole
def test_what_runs_in_the_background_is_stopped_with_python(tiny_dataset: Path, home: Path) -> None:
    code = f"""
import podium, time
words = ["python", "-c", "import time; print('accuracy=0.5', flush=True); time.sleep(600)"]
sweep = podium.tune(words, {{"x": [1, 2]}}, trials=2, name="long", wait=False)
training = podium.train({str(tiny_dataset)!r}, command=words, wait=False)
while not training.metrics or not any(trial.phase == "Running" for trial in sweep.results):
    time.sleep(0.02)
"""
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)
    sweep = podium.open_sweep("long")
    assert sweep.status == "Stopped"
    (job,) = [stored.manifest for stored in sweep.cluster.list("PyTorchJob")]
    assert "was stopped" in json.dumps(job["status"])


@pytest.mark.whole
def test_podiums_trainer_alone_searches_the_error_of_numbers(
    parabola: dict[str, Any], tmp_path: Path, home: Path
) -> None:
    part = artifact.Split(
        inputs={"table": np.ones((4, 2), np.float32)}, target=np.array([0.5, 1.5, 1.0, 2.0])
    )
    columns = tuple(Column(name=name, kind="number") for name in ("x", "y"))
    artifact_files.write(
        tmp_path / "rows", dict.fromkeys(("train", "validation", "test"), part), name="rows", kind="regression",
        inputs={"table": artifact.InputDescription(meaning="table", columns=columns)}, target_name="price",
        preprocessing={}, source="typed", split="given",
    )  # fmt: skip
    own = copy.deepcopy(parabola)
    own["spec"]["objective"]["objectiveMetricName"] = "accuracy"
    for experiment, metric in (("random", "rmse"), (own, "accuracy")):
        with podium.sweep(experiment, data=tmp_path / "rows", wait=False) as begun:
            begun.stop()
            assert begun.experiment.objective.metric == metric


def test_podiums_trainer_reads_and_writes_below_the_home(home: Path) -> None:
    (home / "data/mnist").mkdir(parents=True)
    (home / "data/mnist/dataset.json").touch()
    own = "${trialParameters.trial}"
    mine = {f"--data={home}/data/mnist", f"--output={home}/trials/{own}"}
    asked = {"data": "/data", "output": "/models"}
    for written, given, places in (
        ({}, {}, mine),
        (asked, asked, {"--data=/data", f"--output=/models/{own}"}),
        (asked, {}, {"--data=/data", f"--output=/models/{own}"}),  # as its author wrote them
    ):
        there = _at_home(
            changed("random", data=written.get("data"), output=written.get("output")),
            home,
            data=given.get("data"),
            output=given.get("output"),
        )
        words = [
            word for _, container in there.template.primary_containers() for word in container.words
        ]
        assert {word for word in words if word.startswith(("--data=", "--output="))} == places
