"""PyTorchJobs, Jobs and Experiments as TrainJobs: what is carried over, and a note for each thing that is not."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from katibcases import bases, mutate

from podium.errors import InvalidInput
from podium.files.documents import load_yaml
from podium.manifests.admission import admit
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.migrate import migrate
from podium.manifests.resource import Resource
from podium.manifests.rules import BrokenRules, Violation
from podium.manifests.workload import Workload

ROOT = Path(__file__).parent.parent.parent
OTHERS = ("pytorchjob", "trainjob", "random-trainjob")
EXPERIMENTS = sorted(
    file for file in (ROOT / "experiments").glob("*.yaml") if file.stem not in OTHERS
)


def container(**fields: Any) -> dict[str, Any]:
    return {
        "name": "pytorch",
        "image": "train:1",
        "command": ["python"],
        "args": ["train.py", "--lr=1"],
        **fields,
    }


def pytorchjob(
    workers: int = 2, *, pod: Any = None, spec: Any = None, master: Any = None, **fields: Any
) -> Workload:
    template = {"spec": {"containers": [container(**fields)], **(pod or {})}}
    replicas = {"Master": {"replicas": 1, "template": template, **(master or {})}}
    if workers:
        replicas["Worker"] = {"replicas": workers, "template": template}
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"},
                "spec": {"pytorchReplicaSpecs": replicas, **(spec or {})}}  # fmt: skip
    return Workload.parse(manifest)


def notes(migration: tuple[Resource, list[Violation]]) -> dict[str, str]:
    """Return what is said by the last part of the field."""
    return {note.where.rpartition(".")[2]: note.what for note in migration[1]}


def trainer(migration: tuple[Resource, list[Violation]]) -> dict[str, Any]:
    given: dict[str, Any] = migration[0].manifest["spec"]["trainer"]
    return given


def test_master_and_workers_become_nodes_under_torchrun() -> None:
    migrated = migrate(
        pytorchjob(env=[{"name": "A", "value": "b"}], resources={"requests": {"cpu": "1"}})
    )
    assert migrated[0].manifest == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "numNodes": 3,
                "numProcPerNode": 1,
                "image": "train:1",
                "command": ["torchrun"],
                "args": ["train.py", "--lr=1"],
                "env": [{"name": "A", "value": "b"}],
                "resourcesPerNode": {"requests": {"cpu": "1"}},
            },
        },
    }
    assert "becomes 'torchrun train.py --lr=1'" in notes(migrated)["command"]
    assert "complete when every node is" in notes(migrated)["Master"]


def test_a_single_node_keeps_its_command() -> None:
    migrated = migrate(pytorchjob(0))
    assert (trainer(migrated)["command"], trainer(migrated)["numNodes"]) == (["python"], 1)
    assert "neither RANK nor WORLD_SIZE" in notes(migrated)["command"]


def test_settings_of_pods_go_into_one_runtime_patch() -> None:
    pod = {"nodeSelector": {"gpu": "a100"}, "serviceAccountName": "trainer", "tolerations": [{"operator": "Exists"}],
           "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
           "securityContext": {"runAsNonRoot": True}}  # fmt: skip
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    own = {"volumeMounts": mounts, "securityContext": {"allowPrivilegeEscalation": False}}
    migrated = migrate(pytorchjob(pod=pod, **own))
    (patch,) = migrated[0].manifest["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["template"]["spec"] == {
        **pod,
        "containers": [{"name": "node", **own}],
    }


LEFT_OUT: dict[str, Any] = {
    "ttlSecondsAfterFinished": {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 60}}},
    "backoffLimit": {"spec": {"runPolicy": {"backoffLimit": 3}}},
    "schedulingPolicy": {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}},
    "cleanPodPolicy": {"spec": {"runPolicy": {"cleanPodPolicy": "All"}}},
    "elasticPolicy": {"spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}},
    "restartPolicy": {"master": {"restartPolicy": "ExitCode"}},
    "hostIPC": {"pod": {"hostIPC": True}},
    "automountServiceAccountToken": {"pod": {"automountServiceAccountToken": False}},
    "enableServiceLinks": {"pod": {"enableServiceLinks": False}},
    "priorityClassName": {"pod": {"priorityClassName": "high"}},
    "initContainers[0]": {"pod": {"initContainers": [{"name": "fetch", "image": "busybox:1"}]}},
    "containers[1]": {"pod": {"containers": [container(), {"name": "logs", "image": "fluentd:1"}]}},
    "workingDir": {"workingDir": "/app"},
    "envFrom": {"envFrom": [{"secretRef": {"name": "keys"}}]},
    "imagePullPolicy": {"imagePullPolicy": "Always"},
    "env": {"env": [{"name": "PET_NNODES", "value": "3"}]},
    "ownerReferences": {},
}


@pytest.mark.parametrize("field", LEFT_OUT)
def test_what_a_trainjob_has_no_field_for_is_said(field: str) -> None:
    job = pytorchjob(**LEFT_OUT[field])
    if field == "ownerReferences":
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}
        job = Workload.parse(
            {**job.manifest, "metadata": {"name": "train", "uid": "c", "ownerReferences": [owner]}}
        )
    before, after = notes(migrate(pytorchjob())), notes(migrate(job))
    assert set(after) - set(before) - {"template"} == {field}
    assert field.split("[")[0] not in str(migrate(job)[0].manifest).replace("'containers'", "")


def test_a_field_with_its_default_value_needs_no_note() -> None:
    usual = {"enableServiceLinks": True, "hostNetwork": False, "automountServiceAccountToken": True}
    migrated = migrate(pytorchjob(pod=usual, tty=False))
    assert notes(migrated) == notes(migrate(pytorchjob()))


def test_no_time_to_end_in_stays_none() -> None:
    migrated = migrate(pytorchjob(pod={"terminationGracePeriodSeconds": 0}))
    pod = migrated[0].replicas[0].pod
    assert pod.grace_seconds == 0


def test_another_template_of_the_workers_is_said() -> None:
    other = {
        "spec": {
            "containers": [container(args=["train.py", "--worker"])],
            "nodeSelector": {"gpu": "t4"},
        }
    }
    migrated = migrate(pytorchjob(master={"template": other}))
    assert trainer(migrated)["args"] == ["train.py", "--worker"]
    said = "differs in spec.containers[0].args, spec.nodeSelector: every node gets the Master's"
    assert notes(migrated)["template"] == said


def test_limits_and_waiting_are_carried_over() -> None:
    policy = {
        "activeDeadlineSeconds": 60,
        "suspend": True,
        "managedBy": "kueue.x-k8s.io/multikueue",
    }
    spec = migrate(pytorchjob(spec={"runPolicy": policy}))[0].manifest["spec"]
    assert {name: spec[name] for name in policy} == policy


@pytest.mark.parametrize(
    ("given", "command", "processes"),
    [
        ("2", ["python"], 2),
        ("2", ["torchrun"], 2),
        ("auto", ["torchrun"], None),
        ("auto", ["python"], 1),
    ],
)
def test_processes_of_a_node_are_those_of_a_replica(
    given: str, command: list[str], processes: int | None
) -> None:
    migrated = migrate(pytorchjob(spec={"nprocPerNode": given}, command=command))
    assert trainer(migrated).get("numProcPerNode") == processes
    assert ("nprocPerNode" in notes(migrated)) == (processes is None)


def test_a_command_of_another_kind_is_left_alone() -> None:
    migrated = migrate(pytorchjob(command=["./train.sh"], args=[]))
    assert trainer(migrated)["command"] == ["./train.sh"]
    assert "put torchrun there yourself" in notes(migrated)["command"]


def test_variables_that_trainer_does_not_set_are_named() -> None:
    migrated = migrate(pytorchjob(command=["torchrun", "--node_rank=$(RANK)"]))
    (note,) = [note for note in migrated[1] if note.where.endswith("command[1]")]
    assert "refers to RANK" in note.what
    assert "PET_NODE_RANK" in str(note.hint)


def test_what_a_server_added_is_not_carried_over() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}
    metadata = {"name": "train", "uid": "1", "resourceVersion": "2", "annotations": annotations}
    stored = {**pytorchjob().manifest, "metadata": metadata, "status": {"conditions": []}}
    migrated = migrate(Workload.parse(stored))[0].manifest
    assert migrated["metadata"] == {"name": "train", "annotations": {"team": "a"}}
    assert "status" not in migrated


def job(**spec: Any) -> Workload:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "train:1", "command": ["python", "t.py"]}],
    }
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
                "spec": {"template": {"spec": pod}, **spec}}  # fmt: skip
    return Workload.parse(manifest)


def test_an_indexed_job_becomes_as_many_nodes() -> None:
    assert trainer(migrate(job()))["numNodes"] == 1
    indexed = migrate(job(parallelism=2, completions=2, completionMode="Indexed"))
    assert (trainer(indexed)["numNodes"], trainer(indexed)["command"]) == (2, ["torchrun", "t.py"])


@pytest.mark.parametrize("spec", [{"parallelism": 2}, {"parallelism": 2, "completions": 4}])
def test_a_job_that_is_a_queue_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="completions == parallelism"):
        migrate(job(**spec))


def test_a_job_that_is_refused_now_is_not_migrated() -> None:
    broken = pytorchjob(image="")
    with pytest.raises(BrokenRules, match=r"Master\.template\.spec\.containers"):
        migrate(broken)


def test_a_name_too_long_for_nodes_is_refused() -> None:
    manifest = {**pytorchjob().manifest, "metadata": {"name": "a" * 50}}
    with pytest.raises(BrokenRules, match="node-0-2"):
        migrate(Workload.parse(manifest))


def test_flags_that_the_trainer_refuses_are_migrated_as_they_are() -> None:
    text = (ROOT / "experiments" / "random.yaml").read_text().replace("--epochs=$", "--bogus=$")
    migrated = migrate(Experiment.load(text))[0]
    assert "--bogus=" in str(migrated.manifest)


def test_another_kind_is_refused_with_a_reason() -> None:
    with pytest.raises(InvalidInput, match="must be PyTorchJob or Job") as error:
        migrate(Workload.parse({"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}))
    assert error.value.hint == "Trainer has no runtime for TensorFlow"


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_experiments_that_come_with_podium_get_trainjob_trials(file: Path) -> None:
    (manifest,) = load_yaml(file.read_bytes(), file.name)
    before, experiment = Experiment.parse(manifest), migrate(Experiment.parse(manifest))[0]
    template = experiment.template
    assert (template.workload.kind, template.primary_container) == ("TrainJob", "node")
    assert template.workload.nodes == sum(
        replica.count for replica in before.template.workload.replicas
    )
    assert template.parameters == before.template.parameters
    assert '"Complete"' in template.success_condition
    assert template.primary_pod_labels["batch.kubernetes.io/job-completion-index"] == "0"
    trial = experiment.render(
        "trial-1", {parameter["name"]: "1" for parameter in manifest["spec"]["parameters"]}
    )
    assert "${trialParameters" not in str(admit(trial.manifest).manifest)


def test_conditions_of_ones_own_are_said_to_change() -> None:
    (manifest,) = load_yaml((ROOT / "experiments/grid.yaml").read_bytes(), "grid.yaml")
    own = 'status.conditions.#(type=="Succeeded")#|#(status=="True")#|#(reason=="Mine")#'
    manifest["spec"]["trialTemplate"] |= {
        "successCondition": own,
        "primaryPodLabels": {"job": "mine"},
    }
    said = notes(migrate(Experiment.parse(manifest)))
    assert "becomes the condition of a TrainJob" in said["successCondition"]
    assert said["primaryPodLabels"] == "metrics are collected from the first node"


def test_whatever_is_wrong_is_refused_in_a_sentence() -> None:
    sources = [
        *(manifest for _, manifest in bases()),
        pytorchjob(workingDir="/app").manifest,
        job().manifest,
    ]
    migrated = 0
    for number in range(300):
        draw = random.Random(number)
        manifest, _ = mutate(draw.choice(sources), draw)
        with suppress(InvalidInput):
            is_experiment = isinstance(manifest, dict) and manifest.get("kind") == "Experiment"
            resource: Any = (
                Experiment.parse(manifest) if is_experiment else Workload.parse(manifest)
            )
            assert "PyTorchJob" not in str(migrate(resource)[0].manifest["spec"])
            migrated += 1
    assert 0 < migrated < 300
