"""Logs, event files and commands of Experiments whose collector does not read the output."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from test_doctor_manifests import GOOD

from podium.cli.doctor import doctor
from podium.errors import InvalidInput, PodiumError

PRINTS = "print('accuracy=0.9', flush=True)"
WRITES = "import sys, time; open(sys.argv[1], 'w').write('accuracy=0.9\\n'); time.sleep(1.1)"
EVENTS = """
import sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step, value in enumerate((0.5, 0.75), 1):
    summary = Summary(value=[Summary.Value(tag="accuracy", simple_value=value)])
    writer.add_event(Event(wall_time=1767225600 + step, step=step, summary=summary))
writer.close()
time.sleep(1.1)  # a program that ends sooner gets a warning
"""


def sweep(folder: Path, collector: str, **place: str) -> str:
    """Write an Experiment with another collector; return its path."""
    manifest = yaml.safe_load(GOOD)
    collecting: dict[str, Any] = {"collector": {"kind": collector}}
    if place:
        collecting["source"] = {"fileSystemPath": place}
    manifest["spec"]["metricsCollectorSpec"] = collecting
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump(manifest))
    return str(file)


def program(folder: Path, text: str) -> str:
    """Write a program; return its path."""
    (folder / "train.py").write_text(text)
    return str(folder / "train.py")


def report_of(*arguments: str) -> dict[str, Any]:
    """Run the doctor; return its one report, the worst finding by rule."""
    done = CliRunner().invoke(doctor, ["--json", *arguments])
    assert not done.exception or isinstance(done.exception, SystemExit), done.exception
    (report,) = json.loads(done.stdout[done.stdout.index("{") :])["reports"]
    return {
        **report,
        "findings": {finding["rule"]: finding for finding in reversed(report["findings"])},
    }


def value(report: dict[str, Any]) -> Any:
    """Return the objective as Katib would store it."""
    return report["stored"][0]["value"]


def run_with(experiment: str, *words: str) -> dict[str, Any]:
    """Run a command as a trial of an Experiment."""
    return report_of("--experiment", experiment, "--", shlex.quote(sys.executable), *words)


def test_a_command_that_only_prints_fails_a_file_collector(tmp_path: Path) -> None:
    experiment = sweep(tmp_path, "File", path="/out/metrics.log", kind="File", format="TEXT")
    report = run_with(experiment, program(tmp_path, PRINTS), "/out/metrics.log")
    assert "wrote nothing to /out/metrics.log" in report["findings"]["metrics-not-written"]["what"]
    assert (report["verdict"], value(report)) == ("fail", None)


def test_the_file_a_command_writes_is_read(tmp_path: Path) -> None:
    experiment = sweep(tmp_path, "File", path="/out/metrics.log", kind="File", format="TEXT")
    report = run_with(experiment, program(tmp_path, WRITES), "/out/metrics.log")
    assert value(report) == 0.9
    assert "1>" not in report["commands"]["it"][2], "Katib redirects nothing for a File collector"
    assert {"metrics-not-written", "objective-missing"}.isdisjoint(report["findings"])


def test_a_file_at_its_real_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.log"
    experiment = sweep(tmp_path, "File", path=str(path), kind="File", format="TEXT")
    assert (
        value(
            run_with(experiment, program(tmp_path, WRITES.replace("sys.argv[1]", repr(str(path)))))
        )
        == 0.9
    )


def test_json_in_the_file_of_a_command_is_read(tmp_path: Path) -> None:
    experiment = sweep(tmp_path, "File", path="/out/m.json", kind="File", format="JSON")
    text = "import sys; open(sys.argv[1], 'w').write('{\"accuracy\": \"0.9\"}\\n')"
    assert value(run_with(experiment, program(tmp_path, text), "/out/m.json")) == 0.9


@pytest.mark.parametrize(
    ("name", "rules"), [("train.log", {"another-file-collected"}), ("metrics.log", set())]
)
def test_a_log_must_be_the_file_katib_reads(name: str, rules: set[str], tmp_path: Path) -> None:
    experiment = sweep(tmp_path, "File", path="/out/metrics.log", kind="File", format="TEXT")
    (tmp_path / name).write_text("2026-01-02T03:04:05Z accuracy=0.9 loss=0.1\n")
    assert set(report_of(str(tmp_path / name), "--experiment", experiment)["findings"]) == rules


def test_a_collector_that_reads_no_log_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("2026-01-02T03:04:05Z accuracy=0.9 loss=0.1\n")
    report = report_of(str(tmp_path / "train.log"), "--experiment", sweep(tmp_path, "Push"))
    assert report["findings"]["log-not-collected"]["level"] == "warn"


def test_event_files_are_read_as_katib_reads_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    experiment = sweep(tmp_path, "TensorFlowEvent", path="/out/events", kind="Directory")
    report = run_with(experiment, program(tmp_path, EVENTS), "/out/events")
    assert (value(report), report["verdict"]) == (0.75, "pass"), report
    assert (
        report["findings"]["scalar-missing"]["what"]
        == "no event file holds loss; they hold accuracy"
    )


def test_printed_metrics_fail_a_collector_of_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    experiment = sweep(tmp_path, "TensorFlowEvent", path="/out/events", kind="Directory")
    (tmp_path / "train.log").write_text("accuracy=0.9\n")
    for report in (
        report_of(str(tmp_path / "train.log"), "--experiment", experiment),
        run_with(experiment, program(tmp_path, PRINTS), "/out/events"),
    ):
        assert report["findings"]["scalar-missing"]["level"] == "fail"
        assert "no event file holds accuracy" in report["findings"]["scalar-missing"]["what"]


def test_a_directory_without_events_fails(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    experiment = sweep(tmp_path, "TensorFlowEvent", path="/out/events", kind="Directory")
    (tmp_path / "empty").mkdir()
    assert report_of(str(tmp_path / "empty"), "--experiment", experiment)["verdict"] == "fail"
    with pytest.raises(InvalidInput, match="path of event files"):
        CliRunner().invoke(
            doctor, [str(tmp_path / "none"), "--experiment", experiment], catch_exceptions=False
        )


def test_event_files_are_examined_beside_a_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    experiment = sweep(tmp_path, "TensorFlowEvent", path="/out/events", kind="Directory")
    (tmp_path / "events").mkdir()
    words = [str(tmp_path / "events"), "--experiment", experiment, "--namespace", "team"]
    with pytest.raises(PodiumError, match="no cluster is configured"):  # the files were read
        CliRunner().invoke(doctor, words, catch_exceptions=False)
