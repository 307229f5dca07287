"""``podium doctor`` as a user calls it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_doctor_manifests import GOOD, PYTORCHJOB

Doctor = Callable[..., Any]


@pytest.fixture
def doctor(typed: Callable[..., Any]) -> Doctor:
    """Type `podium doctor`."""
    return lambda *words, **given: typed("doctor", *words, **given)


@pytest.fixture
def reports(doctor: Doctor) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Type it with --json; gives the exit code and the reports."""

    def run(*words: str, given: str = "") -> tuple[int, list[dict[str, Any]]]:
        done = doctor(*words, "--json", given=given)
        return done.returncode, json.loads(done.stdout)["reports"]

    return run


def test_a_compiled_pipeline_is_refused_by_name(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "# PIPELINE DEFINITION\npipelineInfo:\n  name: mine\nroot: {}\n"
    )
    done = doctor(str(tmp_path / "pipeline.yaml"))
    assert done.returncode == 2
    assert "pipeline.yaml is a compiled pipeline, which the doctor has no rules for" in done.stderr


def test_a_failing_log_says_why_and_exits_with_1(doctor: Doctor, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("epoch 1\naccuracy: 0.9\n")
    done = doctor(str(log), "--metric", "accuracy", "--objective", "maximize")
    assert done.returncode == 1
    assert "`accuracy: 0.9` is not name=value" in done.stdout
    assert "line 2 · colon-for-equals" in done.stdout
    assert "hint: print accuracy=0.9 with an equals sign" in done.stdout
    assert "\x1b" not in done.stdout, "no color in a pipe"
    assert not done.stderr


def test_a_log_from_stdin_that_is_well_exits_with_0(reports: Callable[..., Any]) -> None:
    code, (report,) = reports("-", "--metric", "loss", given="loss=0.5\n")
    assert code == 0
    assert (report["verdict"], report["lines"], report["type"]) == ("pass", 1, "minimize")


def test_an_experiment_says_how_the_log_is_read(
    reports: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(GOOD)
    line = "2026-01-02T03:04:05Z accuracy=0.5 loss=nan\n"
    code, (report,) = reports("-", "--experiment", str(tmp_path / "sweep.yaml"), given=line)
    assert code == 0
    assert [row["strategy"] for row in report["stored"]] == ["max", "min"]
    assert [row["latest"] for row in report["stored"]] == ["0.5", "unavailable"], (
        "its pattern asks for a digit"
    )


def test_options_overrule_the_experiment(reports: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(GOOD)
    options = ["--metric", "f1", "--strategy", "latest", "--pattern", r"(\w+): ([\d.]+)"]
    _, (report,) = reports(
        "-", "--experiment", str(tmp_path / "sweep.yaml"), *options, given="f1: 0.5\n"
    )
    assert (report["objective"], report["stored"][0]["value"]) == ("f1", 0.5)
    assert report["stored"][0]["strategy"] == "latest"


def test_a_manifest_of_several_objects_gives_a_report_each(
    doctor: Doctor, reports: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"{GOOD}\n---\n{PYTORCHJOB}")
    code, found = reports(str(file))
    assert code == 0
    assert [report["kind"] for report in found] == ["Experiment", "PyTorchJob"]
    assert doctor(str(file)).returncode == 0


def test_our_own_manifests_have_no_warnings(reports: Callable[..., Any]) -> None:
    files = sorted(map(str, (Path(__file__).parents[2] / "experiments").glob("*.yaml")))
    code, found = reports(*files)
    assert (code, len(found)) == (0, len(files))
    assert {report["verdict"] for report in found} == {"pass"}


def test_a_manifest_is_recognized_by_its_content(reports: Callable[..., Any]) -> None:
    code, (report,) = reports("-", given=GOOD)
    assert (code, report["kind"]) == (0, "Experiment")


def test_a_command_after_two_dashes_is_run(doctor: Doctor) -> None:
    done = doctor("--metric", "loss", "--json", "--", "echo", "--metric", "accuracy=1")
    (report,) = json.loads(done.stdout)["reports"]
    assert done.returncode == 1
    assert (report["kind"], report["subject"], report["exit"]) == (
        "command",
        "echo --metric accuracy=1",
        0,
    )
    assert "objective-missing" in [finding["rule"] for finding in report["findings"]]
    assert "running" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "there is nothing to examine"),
        (("/no/such/file",), "/no/such/file cannot be read"),
        (("-", "--pattern", "("), "Go regular expression"),
        (("-", "--experiment", "no-such"), "no-such"),
        (("--seconds", "0", "--", "true"), "seconds > 0"),
    ],
)
def test_a_mistake_is_reported_without_a_traceback(
    doctor: Doctor, arguments: tuple[str, ...], said: str
) -> None:
    done = doctor(*arguments, given="loss=1\n")
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_without_a_cluster_the_namespace_cannot_be_examined(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    done = doctor("--namespace", "team")
    assert done.returncode == 1
    assert "no cluster is configured" in done.stderr
