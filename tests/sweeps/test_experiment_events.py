"""Trials that report through TensorBoard's event files."""

import sys
import threading
from pathlib import Path, PurePosixPath

import pytest
from test_experiment_engine import experiment, run

from podium.errors import Failed
from podium.manifests.shell import named_folder
from podium.metrics import kept_readings
from podium.sweeps.local import LocalSweeps
from podium.sweeps.print_file import _print_events

WRITER = """
import sys
from pathlib import Path
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[2] + "/validation")
for step, loss in enumerate((0.5, 0.25, float(sys.argv[1])), 1):
    summary = Summary(value=[Summary.Value(tag="loss", simple_value=loss)])
    writer.add_event(Event(wall_time=1767225600 + step, step=step, summary=summary))
writer.close()
"""


@pytest.mark.parametrize(
    ("metric", "path"),
    [("validation/loss", "/events"), ("loss", "/events"), ("loss", "/events/validation")],
)
def test_scalars_of_event_files_are_a_trials_metrics(
    metric: str, path: str, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    collector = {
        "collector": {"kind": "TensorFlowEvent"},
        "source": {"fileSystemPath": {"path": path, "kind": "Directory"}},
    }
    objective = {"type": "minimize", "objectiveMetricName": metric}
    manifest = experiment(
        WRITER,
        words=("${trialParameters.x}", "/events"),
        maxTrialCount=1,
        objective=objective,
        metricsCollectorSpec=collector,
    )
    with LocalSweeps(tmp_path, fork_server=False) as cluster:
        found, (trial,) = run(cluster, manifest)
    assert found["status"]["trialsSucceeded"] == 1
    (metrics,) = trial["status"]["observation"]["metrics"]
    x = float(trial["spec"]["parameterAssignments"][0]["value"])
    assert metrics["name"] == metric
    assert [float(metrics[fold]) for fold in ("min", "max", "latest")] == pytest.approx(
        [min(0.25, x), max(0.5, x), x]
    )


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["--log=/logs/test"], "/logs/test"),
        (["--log=/logs"], "/logs"),
        (["sh", "-c", "write /logs/ now"], "/logs"),
        (["--log=/logs/train"], "/logs/test"),
        (["--log=/logs.d", "--data=/data/logs"], "/logs/test"),
        (["/"], "/logs/test"),
    ],
)
def test_the_folder_that_a_command_names_is_found(words: list[str], folder: str) -> None:
    assert str(named_folder(PurePosixPath("/logs/test"), words)) == folder


def test_a_sidecar_without_tensorboard_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_accumulator", None)
    ended = threading.Event()
    ended.set()
    _print_events(tmp_path, ended, ["loss"])
    with pytest.raises(Failed, match="needs the package tensorboard"):
        list(kept_readings(capsys.readouterr().out.splitlines(), ["loss"]))
