"""Trials that report through TensorBoard's event files."""

from pathlib import Path

import pytest
from test_experiment_engine import experiment, run

from podium.sweeps.local import LocalSweeps

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


@pytest.mark.parametrize("metric", ["validation/loss", "loss"])
def test_scalars_of_event_files_are_a_trials_metrics(metric: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    collector = {
        "collector": {"kind": "TensorFlowEvent"},
        "source": {"fileSystemPath": {"path": "/events", "kind": "Directory"}},
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
    assert [float(metrics[fold]) for fold in ("min", "max", "latest")] == pytest.approx([min(0.25, x), max(0.5, x), x])
