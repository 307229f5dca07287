"""`podium experiment` as a user types it."""

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console
from sweep_manifests import job, space, write_experiment

from podium.cli import app, main
from podium.cli.experiment import experiment
from podium.cli.live import ExperimentView
from podium.errors import InvalidInput
from podium.manifests.experiment import Experiment, bundled, load
from podium.manifests.experiment.build import with_pods_retained
from podium.manifests.pod_security import violations, with_pod_deadlines, with_pod_defaults
from podium.sweeps.local import LocalSweeps

PODIUM = [sys.executable, "-c", "from podium.cli import main; main()"]
PROGRAM = """
import pathlib, sys, time
print('loss=' + sys.argv[1], flush=True)
time.sleep(float(sys.argv[2]))
for output in sys.argv[4:]:
    place = pathlib.Path(output.partition("=")[2])
    place.mkdir(parents=True)
    (place / "metrics.json").write_text("{}")
    (place / "model.onnx").write_text(7000 * "w")
sys.exit(int(sys.argv[3]))
"""


class Done(NamedTuple):
    """What a command printed."""

    stdout: str
    stderr: str


@pytest.fixture
def podium(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Type a command that ends with a given exit code."""

    def run(*words: str, code: int = 0) -> Done:
        monkeypatch.setattr("sys.argv", ["podium", "experiment", *words])
        ended: str | int | None = 0
        try:
            main()
        except SystemExit as end:
            ended = end.code
        printed = capsys.readouterr()
        assert (ended or 0) == code, printed
        assert "Traceback" not in printed.err
        return Done(printed.out, printed.err)

    return run


@pytest.fixture
def manifest(tmp_path: Path) -> Any:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def write(
        name: str = "sweep", *, most: int = 2, seconds: str = "0", code: str = "0", **spec: Any
    ) -> str:
        command = ["python", "-IS", str(program), "${trialParameters.lr}", seconds, code]
        given = {
            "maxTrialCount": most,
            "parallelTrialCount": 2,
            "resumePolicy": "LongRunning",
            **spec,
        }
        document = write_experiment(
            job(command), name=name, parameters=[space("lr", min="0.1", max="1")], **given
        )
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


def test_a_sweep_from_a_file_ends_with_its_best_trial(podium: Any, manifest: Any) -> None:
    path = manifest()
    ran = podium("run", path, "--json", "--max-trials", "3", "--no-fork-server")
    found = json.loads(ran.stdout)
    assert found["experiment"] == "sweep"
    assert found["value"] == pytest.approx(float(found["parameters"]["lr"]))
    said = [line.split()[3:5] for line in ran.stderr.splitlines() if line.startswith("[")]
    for row in (rows := json.loads(podium("trials", "sweep", "--json").stdout)):
        ended = [state for name, state in said if name == row["name"]]
        assert ended == ["Running", "Succeeded"], "a log hears of both, however short the trial was"
    assert [row["value"] for row in rows] == sorted(row["value"] for row in rows)
    assert rows[0]["name"] == found["name"]
    assert json.loads(podium("best", "sweep", "--json").stdout)["name"] == found["name"]
    assert f"best trial: {found['name']}" in podium("best", "sweep").stdout
    assert found["name"] in podium("trials", "sweep").stdout.splitlines()[1]
    assert "Succeeded, 3 trials (3 succeeded)" in podium("status", "sweep").stdout
    (row,) = json.loads(podium("list", "--json").stdout)
    assert (row["sweep"], row["state"], row["trials"]) == ("sweep", "succeeded", 3)
    assert "ExperimentMaxTrialsReached" in podium("status", "sweep", "--json").stdout


def test_an_experiment_may_leave_its_name_to_the_cluster(
    podium: Any, manifest: Any, tmp_path: Path
) -> None:
    document = yaml.safe_load(Path(manifest()).read_text())
    document["metadata"] = {"generateName": "night-"}
    (path := tmp_path / "nameless.yaml").write_text(yaml.safe_dump(document))
    found = json.loads(podium("run", str(path), "--json").stdout)
    assert re.fullmatch("night-[a-z0-9]{5}", found["experiment"])
    assert json.loads(podium("best", found["experiment"], "--json").stdout)["name"] == found["name"]
    assert yaml.safe_load(podium("render", str(path)).stdout)["metadata"] == {
        "generateName": "night-"
    }


def test_a_terminals_table_keeps_the_best_trial_in_sight(
    podium: Any, manifest: Any, tmp_path: Path
) -> None:
    podium("run", manifest(most=27), "--parallel-trials", "9", "--no-fork-server")
    best = json.loads(podium("best", "sweep", "--json").stdout)
    with LocalSweeps(tmp_path / "podium-home" / "cluster") as cluster:
        view = ExperimentView(cluster, "sweep", {})
        view.look()
        drawn: dict[int, str] = {}
        for width in (80, 50, 40):
            console = Console(width=width, height=40, file=(file := io.StringIO()))
            console.print(view)
            drawn[width] = file.getvalue()
        Console(width=80, height=12, file=(low := io.StringIO())).print(view)
    assert len(low.getvalue().splitlines()) <= 11
    assert best["name"] in low.getvalue()
    assert all("…" not in text and best["name"] in text for text in drawn.values()), (
        "columns go, no cell is cut"
    )
    assert "too narrow for lr)" in drawn[50].replace("\n", " ")
    assert "STATE" in drawn[40].partition("TRIAL")[0]
    lines = drawn[80].splitlines()
    assert lines[0].startswith("sweep: 27 trials")
    assert lines[1].split() == ["TRIAL", "STATE", "lr", "loss", "SECONDS"]
    rows = [line.split() for line in lines[2:]]
    assert 24 <= len(rows) <= 25, "of earlier trials only the best is shown"
    assert [row[1:3] for row in rows if row[1] == best["name"]] == [[best["name"], "Succeeded"]]
    assert {row[0] for row in rows} == {"✓"}


def test_a_finished_sweep_goes_on_and_used_names_get_numbers(podium: Any, manifest: Any) -> None:
    path = manifest()
    podium("run", path, "--no-fork-server")
    resumed = podium("resume", "sweep", "--max-trials", "3", "--no-fork-server")
    assert resumed.stderr.count(" Succeeded loss=") == 1, "what was told before is not told again"
    assert len(json.loads(podium("trials", "sweep", "--json").stdout)) == 3
    refused = podium("resume", "sweep", "--max-trials", "2", code=2)
    assert "maxTrialCount must be above" in refused.stderr
    assert "Experiment sweep-2," in podium("run", path, "--no-fork-server").stderr
    assert json.loads(podium("delete", "sweep", "--json").stdout) == {
        "experiment": "sweep",
        "deleted": True,
    }
    assert [row["sweep"] for row in json.loads(podium("list", "--json").stdout)] == ["sweep-2"]


def test_a_sweep_whose_trials_all_fail_ends_badly(podium: Any, manifest: Any) -> None:
    ran = podium("run", manifest(code="3"), "--no-fork-server", code=1)
    assert "no trial of sweep has a result" in ran.stderr
    assert "hint:" in ran.stderr
    assert "sweep: Failed," in podium("status", "sweep").stdout


def test_an_image_without_its_directory_is_refused(podium: Any, manifest: Any) -> None:
    assert (
        "--image-dir takes IMAGE=DIR, not"
        in podium("run", manifest(), "--image-dir", "python", code=2).stderr
    )


@pytest.mark.parametrize("given", ["python", "python=", "=run"])
def test_an_entrypoint_without_its_command_is_refused(
    podium: Any, manifest: Any, given: str
) -> None:
    assert (
        "--entrypoint takes IMAGE=COMMAND, not"
        in podium("run", manifest(), "--entrypoint", given, code=2).stderr
    )


def test_an_entrypoint_with_half_a_quote_is_refused(podium: Any, manifest: Any) -> None:
    refused = podium("run", manifest(), "--entrypoint", "python=run 'it", code=2).stderr
    assert 'not a command line: "run \'it" (No closing quotation)' in refused


def test_a_sweep_that_reaches_its_limit_of_failures_ends_badly(podium: Any, manifest: Any) -> None:
    ran = podium(
        "run",
        manifest(code="3", maxFailedTrialCount=1, maxTrialCounts=1),
        "--no-fork-server",
        code=1,
    )
    assert "warning: spec.maxTrialCounts: spec has no field maxTrialCounts" in ran.stderr
    assert "hint: did you mean maxTrialCount?" in ran.stderr
    assert "max failed count has reached" in ran.stderr


def test_a_failed_sweep_shows_a_trials_last_lines(
    podium: Any, manifest: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = podium("run", manifest(code="3", maxFailedTrialCount=1), "--no-fork-server", code=1)
    words = re.search(r"hint: podium (job logs sweep-\w+) ", ran.stderr)
    assert words
    assert re.search(r"^  \| loss=[0-9.]+$", ran.stderr, re.MULTILINE)
    monkeypatch.setattr("sys.argv", ["podium", *words[1].split()])
    main()
    assert capsys.readouterr().out.startswith("loss=")


@pytest.mark.parametrize(
    ("how", "code"),
    [("stop", 1), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_running_sweep_can_be_stopped_and_resumed(
    how: Any, code: int, podium: Any, manifest: Any
) -> None:
    path = manifest(seconds="1.5")
    words = [*PODIUM, "experiment", "run", path, "--no-fork-server"]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert running.stderr
    for line in running.stderr:
        if " Running " in line:
            break
    if how == "stop":
        assert json.loads(podium("stop", "sweep", "--json").stdout) == {
            "experiment": "sweep",
            "stopping": True,
        }
    else:
        running.send_signal(how)
    began = time.monotonic()
    said = running.communicate(timeout=30)[1]
    assert running.returncode == code, said
    assert time.monotonic() - began < 15
    assert "Traceback" not in said
    assert "podium experiment resume sweep" in said
    assert "sweep: Stopped" in podium("status", "sweep").stdout
    podium("resume", "sweep", "--no-fork-server")
    assert len(json.loads(podium("trials", "sweep", "--json").stdout)) == 2


def test_weights_go_when_asked_and_the_next_sweep_starts_warm(
    podium: Any, manifest: Any, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    podium("run", manifest(), "--output", str(models), "--no-fork-server")
    best = json.loads(podium("best", "sweep", "--json").stdout)["name"]
    reported = podium("keep", "sweep", "--best", "1").stdout
    assert f"kept: {best}" in reported
    assert "weights of 1 trial, 7.0 kB; nothing deleted, say --delete" in reported
    assert len(list(models.rglob("*.onnx"))) == 2
    done = json.loads(podium("keep", "sweep", "--best", "1", "--delete", "--json").stdout)
    assert (done["deleted"], done["kept"], len(done["removed"])) == (True, [best], 1)
    assert [path.parent.name for path in models.rglob("*.onnx")] == [best]
    assert len(list(models.rglob("metrics.json"))) == 2
    assert len(json.loads(podium("trials", "sweep", "--json").stdout)) == 2
    path = manifest("next", most=1, algorithm={"algorithmName": "tpe"}, parallelTrialCount=1)
    ran = podium("run", path, "--warm-start", "sweep", "--no-fork-server")
    assert "warm start: from sweep\n" in ran.stderr
    assert "no Experiment nobody" in podium("run", path, "--warm-start", "nobody", code=1).stderr
    rendered = load(podium("render", path, "--warm-start", "a", "--warm-start", "b").stdout)
    assert rendered["metadata"]["annotations"] == {"podium.dev/sweep": "warm_start:\n- a\n- b\n"}


def test_rendered_trials_reach_their_bucket_by_reference(podium: Any) -> None:
    done = podium(
        "render",
        "random",
        "--data",
        "s3://b/mnist",
        "--output",
        "s3://b/trials",
        "--secret",
        "keys",
    )
    assert "ConfigMap podium-storage, keys from Secret keys" in done.stderr
    assert "&id" not in done.stdout  # no YAML anchors: people read it
    template = load(done.stdout)["spec"]["trialTemplate"]["trialSpec"]["spec"][
        "pytorchReplicaSpecs"
    ]
    for role in ("Master", "Worker"):
        (container,) = template[role]["template"]["spec"]["containers"]
        assert [entry["name"] for entry in container["env"]] == [
            "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        ]  # fmt: skip
        assert all("value" not in entry for entry in container["env"])


def test_rendered_trials_without_a_bucket_get_no_keys(podium: Any) -> None:
    done = podium("render", "random", "--data", "/data", "--output", "/models")
    assert "AWS_" not in done.stdout


def test_render_prints_a_manifest_that_is_valid_as_it_stands(podium: Any) -> None:
    printed = podium(
        "render", "random", "--image", "mine:1", "--data", "s3://b/mnist", "--output", "s3://b/trials",
        "--set", "epochs=2", "--max-trials", "9", "--workers", "3", "--name", "mine",
    ).stdout  # fmt: skip
    made = load(printed)
    spec = made["spec"]
    replicas = spec["trialTemplate"]["trialSpec"]["spec"]["pytorchReplicaSpecs"]
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert (made["metadata"]["name"], spec["maxTrialCount"], replicas["Worker"]["replicas"]) == (
        "mine",
        9,
        3,
    )
    assert container["image"] == "mine:1"
    assert {
        "--data=s3://b/mnist",
        "--epochs=2",
        "--output=s3://b/trials/${trialParameters.trial}",
    } <= set(container["args"])
    as_json = json.loads(podium("render", "random", "--json").stdout)
    for role in as_json["spec"]["trialTemplate"]["trialSpec"]["spec"][
        "pytorchReplicaSpecs"
    ].values():
        del role["template"]["spec"]["containers"][0]["env"]  # how its trials reach s3://podium
    as_expected = with_pods_retained(
        with_pod_deadlines(with_pod_defaults(Experiment.load("random")))
    )
    assert as_json == as_expected.manifest
    kept = podium("render", "random", "--resume-policy", "LongRunning").stdout
    assert load(kept)["spec"]["resumePolicy"] == "LongRunning"


def test_rendered_trials_fit_a_restricted_namespace(podium: Any) -> None:
    rendered = podium("render", "random-job", "--data", "/data", "--output", "/models").stdout
    assert "&id" not in rendered
    (replica,) = Experiment.parse(load(rendered)).template.workload.replicas
    assert not list(violations(replica.pod))


@pytest.mark.parametrize("name", bundled())
def test_every_bundled_experiment_ends_on_katib(name: str, podium: Any) -> None:
    spec = load(podium("render", name).stdout)["spec"]
    assert spec["resumePolicy"] == "Never", "Katib would keep a search service for good"
    assert spec["maxTrialCount"]
    assert spec["maxFailedTrialCount"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["hyperband", "--max-trials", "22"],
            "Katib's hyperband stops answering after the first 9 trials",
        ),
        (["asha"], "asha runs on this machine only"),
        (["no-retain"], "early stopping without retain: true"),
    ],
)
def test_render_refuses_what_katib_never_ends(
    words: list[str], says: str, podium: Any, tmp_path: Path
) -> None:
    asha, stopping = load("hyperband"), load("medianstop")
    asha["spec"]["algorithm"]["algorithmName"] = "asha"
    del stopping["spec"]["trialTemplate"]["retain"]
    for name, manifest in (("asha", asha), ("no-retain", stopping)):
        (tmp_path / name).write_text(yaml.safe_dump(manifest))
    source = words[0] if words[0] in bundled() else str(tmp_path / words[0])
    done = podium("render", source, *words[1:], code=2)
    assert says in done.stderr
    assert "hint: " in done.stderr
    assert not done.stdout


def test_experiments_of_one_file_run_one_after_the_other(podium: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('loss=1.5')")
    manifests = [
        write_experiment(
            job(["python", str(program), "${trialParameters.x}"]), name=name, maxTrialCount=1
        )
        for name in ("first", "second")
    ]
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump_all(manifests))
    done = podium("run", str(path), "--json")
    decoder, text, names = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        names.append(value["experiment"])
        text = text[end:].strip()
    assert names == ["first", "second"]
    refused = podium("run", str(path), "--name", "mine", code=2).stderr
    assert "both.yaml holds 2 Experiments, which --name would give one name" in refused


def test_a_detached_sweep_notifies_nobody(podium: Any) -> None:
    refused = podium("run", "random", "--detach", "--notify", "cat", code=2).stderr
    assert "--detach returns before the end that --notify reports" in refused


def test_a_job_given_to_the_wrong_command_names_the_right(podium: Any, tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {}\n"
    )
    for command in ("run", "render"):
        reported = podium(command, str(path), code=2).stderr
        assert f"{path} must hold an Experiment, but holds a PyTorchJob" in reported
        assert f"hint: podium job run {path}" in reported


def test_every_command_can_print_json() -> None:
    for command in experiment.commands.values():
        assert "--json" in [word for option in command.params for word in option.opts], command.name


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (["run", "randon"], "did you mean random?", 2),
        (["run", "random"], "podium data prepare", 2),
        (["run", "no-such-file.yaml"], "no file and no bundled experiment", 2),
        (["render", "random", "--set", "epochs"], "--set takes FLAG=VALUE, not", 2),
        (["render", "random", "--max-trials", "0"], "max_trials >= 1", 2),
        (["status", "nobody"], "no Experiment nobody", 1),
        (["best", "nobody"], "no Experiment nobody", 1),
        (["trials", "nobody"], "no Experiment nobody", 1),
        (["stop", "nobody"], "no Experiment nobody", 1),
        (["resume", "nobody"], "no Experiment nobody", 1),
        (["delete", "nobody"], "no Experiment nobody", 1),
        (["keep", "nobody", "--best", "3"], "no Experiment nobody", 1),
        (["keep", "nobody", "--best", "0"], "x>=1", 2),
    ],
)
def test_mistakes_are_reported_in_two_lines_with_a_hint(
    words: list[str], says: str, code: int, podium: Any
) -> None:
    done = podium(*words, code=code)
    assert says in done.stderr
    assert done.stdout == ""


def test_a_value_that_katibs_shell_would_run_is_warned_about(
    podium: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = load("random-job")
    manifest["metadata"]["name"] = "shell"
    values = ["$(touch ran)", "plain", "a;touch ran", "`touch ran`"]
    manifest["spec"] |= {
        "parameters": [
            {"name": "x", "parameterType": "categorical", "feasibleSpace": {"list": values}}
        ],
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "maxTrialCount": 1,
        "parallelTrialCount": 1,
        "maxFailedTrialCount": 1,
    }
    template = manifest["spec"]["trialTemplate"]
    template["trialParameters"] = [{"name": "x", "reference": "x"}]
    (container,) = template["trialSpec"]["spec"]["template"]["spec"]["containers"]
    container["command"] = ["echo", "loss=1", "--x=${trialParameters.x}"]
    container.pop("args", None)
    file = tmp_path / "shell.yaml"
    file.write_text(yaml.safe_dump(manifest))
    warned = podium("run", str(file), "--dir", str(tmp_path / "cluster")).stderr
    assert (
        "warning: on a cluster '$(touch ran)', 'a;touch ran', '`touch ran`' of parameter x"
        in warned
    )
    assert "hint: write '${trialParameters.x}' with single quotes" in warned
    assert not (tmp_path / "ran").exists()
    container["command"][2] = "'--x=${trialParameters.x}'"
    file.write_text(yaml.safe_dump(manifest))
    assert "warning" not in podium("run", str(file), "--dir", str(tmp_path / "cluster")).stderr


def test_a_flag_that_the_trainer_does_not_know_is_refused() -> None:
    rendered = CliRunner().invoke(app, ["experiment", "render", "tpe", "--set", "netwrk=fast"])
    assert isinstance(rendered.exception, InvalidInput)
    assert (
        "podium's trainer refuses its flags: unrecognized arguments: --netwrk=fast"
        in rendered.exception.message
    )
    for flag in ("network=fast", "model=fast"):
        assert (
            CliRunner().invoke(app, ["experiment", "render", "tpe", "--set", flag]).exit_code == 0
        )


def test_rendered_trials_keep_their_pods_unless_asked_otherwise(tmp_path: Path) -> None:
    rendered = CliRunner().invoke(app, ["experiment", "render", "tpe"])
    assert yaml.safe_load(rendered.stdout)["spec"]["trialTemplate"]["retain"] is True
    assert "trials keep their pods" in rendered.stderr
    (tmp_path / "tpe.yaml").write_text(rendered.stdout.replace("retain: true", "retain: false"))
    again = CliRunner().invoke(app, ["experiment", "render", str(tmp_path / "tpe.yaml")])
    assert yaml.safe_load(again.stdout)["spec"]["trialTemplate"]["retain"] is False


def test_render_warns_where_katib_cannot_end_what_it_stops() -> None:
    rendered = CliRunner().invoke(app, ["experiment", "render", "medianstop"])
    assert "Katib stops only trials that run as its collector's user" in rendered.stderr
    assert "set runAsUser in the securityContext of the trial's pod" in rendered.stderr
    plain = CliRunner().invoke(app, ["experiment", "render", "random"])
    assert "warning" not in plain.stderr


def test_rendered_numbers_of_other_networks_stay_texts(podium: Any) -> None:
    """5e-05 is text for PyYAML and a number for kubectl."""
    rendered = podium("render", "random", "--set", "model=mlp").stdout
    assert Experiment.parse(load(rendered)).space[0].low == pytest.approx(5e-05)
