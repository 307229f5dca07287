"""`podium job`: any PyTorchJob or Job YAML runs here; the exit code is the job's result."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console
from trainjobs import program

from podium.api.cluster_spec import ClusterSpec
from podium.api.jobs import Job
from podium.api.launched import Session
from podium.cli import app
from podium.cli.live import JobView
from podium.cluster import connect
from podium.cluster.local import controller
from podium.errors import Failed, InvalidInput, PodiumError
from podium.manifests.typed import typed


def batch(script: str, name: str = "job", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "any", "command": ["sh", "-c", script]}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    whole = {"backoffLimit": 0, "template": template} | spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": whole}


def training(script: str, **container: Any) -> dict[str, Any]:
    one = {"name": "pytorch", "image": "any", "command": ["sh", "-c", script]} | container
    template = {"spec": {"containers": [one]}}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": template}
    spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": spec,
    }


@pytest.fixture
def podium(tmp_path: Path) -> Any:
    """Run podium job on documents written to a file."""

    def podium(command: str, *arguments: str, documents: Any = None) -> Result:
        if documents is not None:
            (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all(documents))
            arguments = (str(tmp_path / "jobs.yaml"), *arguments)
        return CliRunner().invoke(
            app, ["job", command, *arguments, "--dir", str(tmp_path / "cluster")]
        )

    return podium


def error_of(result: Result) -> PodiumError:
    assert isinstance(result.exception, PodiumError), result.exception
    return result.exception


def test_the_log_is_data_and_the_rest_is_talk(podium: Any) -> None:
    result = podium("run", documents=[training("echo rank $RANK of $WORLD_SIZE")])
    assert result.exit_code == 0
    assert result.stdout == "rank 0 of 2\n"
    assert "train Succeeded: master-0 succeeded" in result.stderr


def test_a_trainjob_runs_and_is_looked_at_and_deleted(podium: Any) -> None:
    script = "import os; print('node', os.environ['PET_NODE_RANK'], 'of', os.environ['PET_NNODES'])"
    result = podium("run", documents=[program(script, 2)])
    assert result.exit_code == 0
    assert result.stdout == "node 0 of 2\n"
    assert "job Succeeded: node-0 succeeded" in result.stderr
    assert podium("logs", "job", "--replica", "node-1").stdout == "node 1 of 2\n"
    status = json.loads(podium("status", "job", "--json").stdout)
    assert (status["kind"], status["state"]) == ("TrainJob", "Succeeded")
    assert [replica["replica"] for replica in status["replicas"]] == ["node-0", "node-1"]
    assert "TrainJob" in podium("list").stdout
    podium("delete", "job")
    assert json.loads(podium("list", "--json").stdout) == []


def test_a_trainjob_that_fails_says_why(podium: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "BACKOFF", 0.05)
    result = podium("run", documents=[program("import sys; sys.exit('no such optimizer')")])
    assert "jobset failed due to one or more job failures" in error_of(result).message


def test_a_running_trainjob_is_stopped(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with connect(f"local://{directory}") as cluster:
        cluster.create(typed(program("import time; time.sleep(60)", 2)))
        while {replica.phase for replica in cluster.replicas("TrainJob", "job")} != {"Running"}:
            time.sleep(0.05)
        stopped = CliRunner().invoke(
            app, ["job", "stop", "job", "--dir", str(directory)], catch_exceptions=False
        )
        assert stopped.exit_code == 0
        *_, last = (stored.manifest for stored in cluster.watch("TrainJob", "job", timeout=30))
        assert last["status"]["conditions"][-1]["reason"] == "Stopped"
        assert {replica.phase for replica in cluster.replicas("TrainJob", "job")} == {"Stopped"}


def test_all_jobs_of_a_file_run_with_named_lines(podium: Any) -> None:
    result = podium("run", documents=[batch("echo one", "a"), batch("echo two", "b")])
    assert result.exit_code == 0
    assert sorted(result.stdout.splitlines()) == ["[a] one", "[b] two"]


def test_a_failed_job_is_a_failure(podium: Any) -> None:
    result = podium("run", documents=[batch("echo oh no; exit 3")])
    assert isinstance(error_of(result), Failed)
    assert error_of(result).exit_code == 1
    assert "Job has reached the specified backoff limit" in str(result.exception)


def test_without_logs_the_failure_shows_the_last_lines(podium: Any) -> None:
    result = podium("run", "--no-logs", documents=[batch("echo oh no; exit 3")])
    assert result.stdout == ""
    assert "oh no" in str(error_of(result))


def test_json_tells_how_each_job_ended(podium: Any) -> None:
    result = podium("run", "--json", documents=[batch("echo one")])
    (job,) = json.loads(result.stdout)
    assert (job["name"], job["state"]) == ("job", "Succeeded")
    started = job["replicas"][0].pop("started")
    assert job["created"] <= started
    assert Path(job["directory"]).is_dir()
    ended = {
        "replica": "pod-0",
        "phase": "Succeeded",
        "restarts": 0,
        "exitCode": 0,
        "reason": "",
        "node": "",
        "pid": None,
    }
    assert job["replicas"][0] == ended


def test_a_second_run_takes_the_next_free_name(podium: Any) -> None:
    for _ in range(2):
        podium("run", documents=[batch("true")])
    rows = json.loads(podium("list", "--json").stdout)
    assert [row["name"] for row in rows] == ["job", "job-2"]


def test_a_name_is_for_one_job(podium: Any) -> None:
    assert podium("run", "--name", "other", documents=[batch("true")]).exit_code == 0
    (row,) = json.loads(podium("list", "--json").stdout)
    assert row["name"] == "other"
    refused = podium("run", "--name", "third", documents=[batch("true", "a"), batch("true", "b")])
    assert "--name is for one job" in str(error_of(refused))


def test_logs_status_and_delete_work_afterwards(podium: Any, tmp_path: Path) -> None:
    said = (
        tmp_path / "said"
    )  # the master's success ends a worker, whether it has said a word or not
    script = (
        f"until test $RANK = 1 -o -e {said}; do sleep 0.02; done; echo rank $RANK; touch {said}"
    )
    podium("run", documents=[training(script)])
    assert podium("logs", "train").stdout == "rank 0\n"
    assert podium("logs", "train", "--replica", "worker-0", "-f").stdout == "rank 1\n"
    assert "master-0" in podium("status", "train").stdout
    assert (
        json.loads(podium("status", "train", "--json").stdout)["status"]["replicaStatuses"][
            "Master"
        ]["succeeded"]
        == 1
    )
    assert podium("delete", "train").exit_code == 0
    assert "no job train" in str(error_of(podium("status", "train")))


@pytest.mark.parametrize("policy", ["None", "Running"])
def test_a_worker_ended_by_the_masters_success_is_not_running(podium: Any, policy: str) -> None:
    job = training("test $RANK = 0 || sleep 600")
    job["spec"]["runPolicy"] = {"cleanPodPolicy": policy}
    (reported,) = json.loads(podium("run", "--json", documents=[job]).stdout)
    (shown,) = json.loads(podium("list", "--json").stdout)
    assert reported == shown
    assert reported["state"] == "Succeeded"
    assert [(replica["phase"], replica["pid"]) for replica in reported["replicas"]] == [
        ("Succeeded", None),
        ("Stopped", None),
    ]
    assert podium("status", "train").stdout.splitlines()[-1].split()[:2] == ["worker-0", "Stopped"]


@pytest.mark.parametrize("file", ["object.json", "pods.json"])
def test_a_damaged_file_is_named_by_every_command(
    podium: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    for name in ("job", "other"):
        podium("run", documents=[batch("true", name)])
    damaged = tmp_path / "cluster" / "jobs" / "job" / file
    damaged.write_text(damaged.read_text()[:20])
    assert error_of(podium("status", "job")).message == f"{damaged} is damaged"
    assert [row["name"] for row in json.loads(podium("list", "--json").stdout)] == ["other"]
    assert f"Job job is left out: {damaged} is damaged" in caplog.text


def test_ignored_fields_are_named_once(podium: Any) -> None:
    job = training("true", resources={"limits": {"cpu": "1"}}, imagePullPolicy="Always")
    err = podium("run", documents=[job]).stderr
    assert err.count("ignored: containers.imagePullPolicy, containers.resources") == 1


def test_an_image_is_mapped_to_a_directory(podium: Any, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "greeting").write_text("hello\n")
    result = podium(
        "run", "--image", f"any={tmp_path / 'image'}", documents=[batch("cat greeting")]
    )
    assert result.stdout == "hello\n"


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "no object in it"),
        ([batch("true"), {"kind": "ConfigMap"}], "document 2 has kind='ConfigMap'"),
        ([{"kind": "Experiment"}], "podium experiment run"),
        (["text"], "document 1 has kind=None"),
        ([batch("true", suspend=True)], "would wait forever"),
        ([batch("true", name="Job_1")], "metadata.name"),
        ([batch("true") | {"spec": None}], "spec: must be an object"),
        ([batch("true") | {"metadata": None}], "metadata must be an object"),
    ],
)
def test_what_cannot_run_is_refused(podium: Any, documents: Any, words: str) -> None:
    error = error_of(podium("run", documents=documents))
    assert isinstance(error, InvalidInput)
    assert words in str(error)


@pytest.mark.parametrize("content", [b"a: [1\nb: }", b"\xff\xfe\x00"])
def test_what_is_not_yaml_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(content)
    result = CliRunner().invoke(app, ["job", "run", str(tmp_path / "bad.yaml")])
    assert "is not readable as" in str(error_of(result))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_an_interrupt_stops_everything(number: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(
        yaml.safe_dump(training("echo $$ >> ../../pids; sleep 60; true"))
    )
    main = "from podium.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        main,
        "job",
        "run",
        str(tmp_path / "jobs.yaml"),
        "--dir",
        str(tmp_path / "c"),
    ]
    pids = tmp_path / "c/pytorchjobs/train/pids"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as podium:
        deadline = time.monotonic() + 60
        while (
            not (pids.exists() and len(pids.read_text().split()) == 2)
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        os.kill(podium.pid, number)
        _, err = podium.communicate(timeout=60)
    assert podium.returncode == code
    assert b"Traceback" not in err
    deadline = time.monotonic() + 15
    started = pids.read_text().split()
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(started) == 2
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


def test_what_a_killed_process_ran_is_not_shown_as_running(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump(batch("sleep 600")))
    words = [sys.executable, "-c", "from podium.cli import main; main()", "job"]
    place = ["--dir", str(tmp_path / "cluster")]
    with subprocess.Popen(
        [*words, "run", str(tmp_path / "jobs.yaml"), *place], stderr=subprocess.PIPE, text=True
    ) as one:
        assert one.stderr is not None
        while "running" not in one.stderr.readline():
            assert one.poll() is None
        one.kill()
    done = CliRunner().invoke(app, ["job", "status", "job", *place])
    assert done.stdout.startswith("Job job: Failed. Job job was stopped")
    assert done.stdout.splitlines()[-1].split()[:2] == ["pod-0", "Stopped"]


@pytest.mark.parametrize("width", [100, 60, 40])
def test_a_narrow_terminal_keeps_mark_replica_and_state(
    width: int, podium: Any, tmp_path: Path
) -> None:
    podium("run", documents=[training("echo step 7 " + 50 * "loss=0.123 ")])
    with connect(f"local://{tmp_path}/cluster") as cluster:
        view = JobView(
            cluster,
            [Job(Session(ClusterSpec.of(cluster.url), cluster), "PyTorchJob", "train")],
            logs=False,
        )
        view.finish()
        view.look()
        assert not list(view.output())
        console = Console(width=width, file=(file := io.StringIO()))
        console.print(view)
    drawn = file.getvalue()
    assert max(map(len, drawn.splitlines())) <= width
    for replica in ("master-0", "worker-0"):
        (line,) = [line for line in drawn.splitlines() if replica in line]
        ended = (
            ("✓", "Succeeded"),
            ("■", "Stopped"),
        )  # a Worker may be stopped with its Master's end
        assert (line[0], line.split()[2]) in ended[: 1 if replica == "master-0" else 2]
    assert "step 7" in drawn
