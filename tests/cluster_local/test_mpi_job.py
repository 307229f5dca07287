"""MPIJobs: a launcher whose mpirun starts the Workers' processes on this machine."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import SEEDED, write_experiment
from trainjobs import trainjob

from podium.errors import InvalidInput
from podium.manifests.conditions import status_of
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

MPIRUN = [
    "mpirun",
    "--allow-run-as-root",
    "-bind-to",
    "none",
    "-map-by",
    "slot",
    "-x",
    "PATH",
    "-mca",
    "pml",
    "ob1",
]
SHOW = "import os; print(os.environ['OMPI_COMM_WORLD_RANK'], os.environ['OMPI_COMM_WORLD_SIZE'], os.environ.get('SHARED'))"

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")


def mpijob(*command: str, ranks: int = 2, workers: int = 2, slots: int = 1) -> dict[str, Any]:
    """Write an MPIJob as Katib's example does: the Workers have no command."""
    launcher = {
        "name": "mpi-launcher",
        "image": "python",
        "command": [*MPIRUN, "-np", str(ranks), *command],
    }
    worker = {
        "name": "mpi-worker",
        "image": "python",
        "env": [{"name": "SHARED", "value": "yes"}],
    }
    specs = {
        "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
        "Worker": {"replicas": workers, "template": {"spec": {"containers": [worker]}}},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "job"},
        "spec": {"slotsPerWorker": slots, "cleanPodPolicy": "Running", "mpiReplicaSpecs": specs},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster") as there:
        yield there


def run(cluster: LocalSweeps, manifest: dict[str, Any]) -> dict[str, Any]:
    cluster.create(typed(manifest))
    *_, last = cluster.watch("MPIJob", "job", timeout=120)
    return last.manifest


def test_ranks_of_the_launcher_fill_the_workers_slots(cluster: LocalSweeps) -> None:
    last = run(cluster, mpijob(sys.executable, "-c", SHOW, ranks=4, slots=2))
    assert status_of(last).phase == "Succeeded", list(cluster.logs("MPIJob", "job"))
    assert sorted(cluster.logs("MPIJob", "job")) == [f"{rank} 4 yes" for rank in range(4)]
    assert last["status"]["replicaStatuses"]["Launcher"]["succeeded"] == 1


def test_more_ranks_than_slots_fail_the_job(cluster: LocalSweeps) -> None:
    last = run(cluster, mpijob(sys.executable, "-c", SHOW, ranks=3))
    assert status_of(last).phase == "Failed"
    assert "not enough slots" in " ".join(cluster.logs("MPIJob", "job"))


def test_a_hostfile_that_the_command_names_is_found(cluster: LocalSweeps) -> None:
    last = run(cluster, mpijob("--hostfile", "/etc/mpi/hostfile", sys.executable, "-c", SHOW))
    assert status_of(last).phase == "Succeeded", list(cluster.logs("MPIJob", "job"))


def trainjob_of(runtime: str, *command: str, **trainer: Any) -> dict[str, Any]:
    """Write a TrainJob whose command is that of Kubeflow's SDK for such a runtime."""
    root = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    env = [{"name": name, "value": "1"} for name in root]
    words = ["mpirun", "--hostfile", "/etc/mpi/hostfile", *command]
    given = {"image": "any", "command": words, "env": env, **trainer}
    return trainjob(spec={"runtimeRef": {"name": runtime}, "trainer": given}, name="job")


SHOW_ALL = (
    "import os; print(*(os.environ.get(name) for name in ('OMPI_COMM_WORLD_SIZE', 'PET_NNODES')))"
)


@pytest.mark.parametrize(
    ("runtime", "nodes", "processes", "ranks"),
    [
        ("deepspeed-distributed", 3, 1, 3),
        ("deepspeed-distributed", None, None, 2),
        ("mlx-distributed", 1, 2, 4),
        ("our-mpi", 2, 2, 4),
    ],
)
def test_a_trainjob_of_an_mpi_runtime_runs_its_launcher(
    cluster: LocalSweeps, runtime: str, nodes: int | None, processes: int | None, ranks: int
) -> None:
    counts = {"numNodes": nodes, "numProcPerNode": processes}
    given = {name: count for name, count in counts.items() if count}
    code = shlex.join([sys.executable, "-c", SHOW_ALL])
    cluster.create(typed(trainjob_of(runtime, "bash", "-c", code, **given)))
    *_, last = cluster.watch("TrainJob", "job", timeout=120)
    log = list(cluster.logs("TrainJob", "job"))
    assert status_of(last.manifest).phase == "Succeeded", log
    assert log == [f"{ranks} None"] * ranks
    assert last.manifest["status"]["jobsStatus"][0]["name"] == "launcher"
    assert [replica.name for replica in cluster.replicas("TrainJob", "job")] == ["launcher-0"]


def shown_by_the_sdk(word: str) -> None:
    import os

    print(word, os.environ["OMPI_COMM_WORLD_SIZE"])


def test_a_function_that_kubeflows_sdk_wraps_runs(cluster: LocalSweeps) -> None:
    sdk = pytest.importorskip("kubeflow.trainer.backends.kubernetes.utils")
    from kubeflow.trainer.constants import constants
    from kubeflow.trainer.types import types

    trainer = types.RuntimeTrainer(types.TrainerType.CUSTOM_TRAINER, "mpi", "any")
    trainer.set_command(constants.MPI_COMMAND)
    runtime = types.Runtime("our-mpi", trainer, types.RuntimeKind.CLUSTER_TRAINING_RUNTIME)
    command = sdk.get_command_using_train_func(
        runtime, shown_by_the_sdk, {"word": "seen"}, [], None
    )
    cluster.create(typed(trainjob_of("our-mpi", command=command)))
    *_, last = cluster.watch("TrainJob", "job", timeout=120)
    assert status_of(last.manifest).phase == "Succeeded", list(cluster.logs("TrainJob", "job"))
    assert list(cluster.logs("TrainJob", "job")) == ["seen 1"]


def test_variables_of_trainers_mpi_are_not_for_the_user(cluster: LocalSweeps) -> None:
    own = [{"name": "OMPI_MCA_orte_set_default_slots", "value": "9"}]
    with pytest.raises(InvalidInput, match="must not be a variable that Trainer sets"):
        cluster.create(typed(trainjob_of("deepspeed-distributed", "true", env=own)))


def test_a_trial_may_be_a_trainjob_with_mpi(cluster: LocalSweeps, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print('loss=' + sys.argv[1], flush=True)")
    words = ["-np", "1", sys.executable, str(tmp_path / "train.py"), "${trialParameters.x}"]
    trial = trainjob_of("deepspeed-distributed", *words)
    template = {"primaryPodLabels": {"jobset.sigs.k8s.io/replicatedjob-name": "launcher"}}
    del trial["metadata"]
    manifest = write_experiment(trial, container="node", template=template, algorithm=SEEDED)
    cluster.create(typed(manifest))
    *_, last = cluster.watch("Experiment", "e", timeout=120)
    assert last.manifest["status"]["trialsSucceeded"] == 2, json.dumps(last.manifest["status"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Launcher": None}, "mpiReplicaSpecs.Launcher: must be given"),
        ({"Chief": {"template": {}}}, "must be a Launcher or a Worker"),
    ],
)
def test_an_mpijob_is_refused_as_by_the_operator(
    change: dict[str, Any], said: str, cluster: LocalSweeps
) -> None:
    manifest = mpijob("true")
    specs = manifest["spec"]["mpiReplicaSpecs"] | change
    kept = {role: spec for role, spec in specs.items() if spec}
    manifest["spec"]["mpiReplicaSpecs"] = kept
    with pytest.raises(InvalidInput) as refused:
        cluster.create(typed(manifest))
    assert said in str(refused.value)


@pytest.mark.parametrize("slots", [-1, 0, "x", 1.5])
def test_slots_of_a_worker_are_a_number_above_zero(slots: Any, cluster: LocalSweeps) -> None:
    manifest = mpijob("true")
    manifest["spec"]["slotsPerWorker"] = slots
    with pytest.raises(InvalidInput, match=r"spec\.slotsPerWorker: .*must") as refused:
        cluster.create(typed(manifest))
    assert refused.value.hint


def test_katibs_mpijob_example_tunes_another_trainer(cluster: LocalSweeps, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\n"
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '0': print('loss=' + sys.argv[1], flush=True)\n"
    )
    trial = mpijob(sys.executable, str(tmp_path / "train.py"), "${trialParameters.x}")
    del trial["metadata"]
    template = {
        "primaryPodLabels": {"mpi-job-role": "launcher"},
        "successCondition": 'status.conditions.#(type=="Succeeded")#|#(status=="True")#',
        "failureCondition": 'status.conditions.#(type=="Failed")#|#(status=="True")#',
    }
    manifest = write_experiment(
        trial, container="mpi-launcher", template=template, algorithm=SEEDED
    )
    cluster.create(typed(manifest))
    *_, last = cluster.watch("Experiment", "e", timeout=120)
    assert last.manifest["status"]["trialsSucceeded"] == 2, json.dumps(last.manifest["status"])
