"""TrainJobs: read as nodes with a container, changed through spec.trainer and one runtimePatch, and admitted."""

from typing import Any

import pytest
from katibcases import NASTY
from trainjobs import patch, trainjob

from podium.errors import InvalidInput
from podium.manifests.admission import admit
from podium.manifests.conditions import Conditions, status_of
from podium.manifests.experiment import Experiment
from podium.manifests.experiment.build import customize
from podium.manifests.experiment.rules import check
from podium.manifests.job_editor import JobEditor
from podium.manifests.placement import Pods, place
from podium.manifests.pod_security import violations, with_pod_deadlines, with_pod_defaults
from podium.manifests.workload import Workload

THEIRS = patch(
    "acme.com/storage",
    {"volumes": [{"name": "data", "emptyDir": {}}], "nodeSelector": {"disk": "fast"},
     "containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]},
)  # fmt: skip


def own_pod(job: Workload) -> dict[str, Any]:
    """Return the pod's spec in podium's own patch, which is the last one."""
    last = job.manifest["spec"]["runtimePatches"][-1]
    assert last["manager"] == "podium.dev/podium"
    (replicated,) = last["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["name"] == "node"
    pod: dict[str, Any] = replicated["template"]["spec"]["template"]["spec"]
    return pod


def test_a_trainjob_reads_as_nodes_of_one_container() -> None:
    job = Workload.parse(
        trainjob(
            THEIRS, env=[{"name": "A", "value": "1"}], resourcesPerNode={"requests": {"cpu": "2"}}
        )
    )
    (nodes,) = job.replicas
    assert (nodes.role, nodes.count, nodes.leads, job.workers, job.pod_count) == (
        "Node",
        3,
        True,
        2,
        3,
    )
    ((_, container),) = job.containers()
    assert (container.name, container.image, container.path) == (
        "node",
        "trainer:1",
        "spec.trainer",
    )
    assert container.words == ("python", "train.py", "--lr=0.1")
    assert (container.env["A"].value, container.requests) == ("1", {"cpu": "2"})
    assert [mount.path for mount in container.mounts] == ["/data"]
    assert (job.active_deadline_seconds, job.suspended, job.labels) == (
        60,
        False,
        {"team": "vision"},
    )


def test_the_first_node_has_the_labels_katib_collects_by() -> None:
    (nodes,) = Workload.parse(trainjob()).replicas
    named = {"jobset.sigs.k8s.io/replicatedjob-name": "node"}
    assert nodes.labels_of(0) == named | {"batch.kubernetes.io/job-completion-index": "0"}
    assert nodes.labels_of(2) == named | {"batch.kubernetes.io/job-completion-index": "2"}


def test_patches_are_merged_in_their_order() -> None:
    second = patch("acme.com/zone", {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "gpu"}],
                                     "containers": [{"name": "node", "securityContext": {"runAsUser": 7}}]}, labels={"x": "y"})  # fmt: skip
    (nodes,) = Workload.parse(trainjob(THEIRS, second)).replicas
    assert nodes.pod.spec["nodeSelector"] == {"disk": "fast", "zone": "a"}
    assert nodes.pod.labels == {"x": "y"}
    (container,) = nodes.pod.containers
    assert container.manifest["securityContext"] == {"runAsUser": 7}
    assert [mount.path for mount in container.mounts] == ["/data"]


def test_an_untouched_trainjob_is_written_back_as_it_was() -> None:
    manifest = trainjob(THEIRS)
    assert Workload.parse(manifest).changed_job(lambda _: None).manifest == manifest


def test_the_container_is_changed_in_spec_trainer() -> None:
    def change(editor: JobEditor) -> None:
        for _, container in editor.containers("node"):
            container |= {
                "image": "trainer:2",
                "args": ["--lr=0.2"],
                "env": [{"name": "A", "value": "1"}],
            }
            container["resources"] = {"requests": {"memory": "1Gi"}}

    changed = Workload.parse(trainjob(THEIRS)).changed_job(change)
    assert changed.manifest["spec"]["trainer"] == {
        "numNodes": 3,
        "image": "trainer:2",
        "command": ["python", "train.py"],
        "args": ["--lr=0.2"],
        "env": [{"name": "A", "value": "1"}],
        "resourcesPerNode": {"requests": {"memory": "1Gi"}},
    }
    assert changed.manifest["spec"]["runtimePatches"] == [THEIRS]


def test_pod_settings_go_into_one_patch_of_podiums() -> None:
    pods = Pods(cpu="2", node_selector={"zone": "a"}, tolerations=[{"key": "gpu"}], claims={"/models": "claim"},
                service_account="trainer", image_pull_secrets=["pull"], labels={"x": "y"})  # fmt: skip
    placed = place(Workload.parse(trainjob(THEIRS)), pods)
    assert [patch["manager"] for patch in placed.manifest["spec"]["runtimePatches"]] == [
        "acme.com/storage",
        "podium.dev/podium",
    ]
    pod = own_pod(placed)
    assert pod["serviceAccountName"] == "trainer"
    assert pod["tolerations"] == [{"key": "gpu"}]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["containers"] == [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"},
                                                                  {"name": "claim-0", "mountPath": "/models"}]}]  # fmt: skip
    assert placed.replicas[0].pod.spec["nodeSelector"] == {"disk": "fast", "zone": "a"}
    assert placed.replicas[0].pod.labels == {"x": "y"}
    admit(placed.manifest)


def test_a_second_change_extends_the_same_patch() -> None:
    first = place(Workload.parse(trainjob()), Pods(service_account="trainer"))
    second = place(first, Pods(node_selector={"zone": "a"}))
    assert len(second.manifest["spec"]["runtimePatches"]) == 1
    assert own_pod(second) == {"serviceAccountName": "trainer", "nodeSelector": {"zone": "a"}}
    assert place(second, Pods()).manifest == second.manifest


def test_what_podiums_patch_says_of_other_jobs_stays() -> None:
    own = patch("podium.dev/podium", {"nodeSelector": {"zone": "a"}})
    own["trainingRuntimeSpec"]["template"]["metadata"] = {"labels": {"kept": "yes"}}
    own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].append(
        {"name": "dataset-initializer"}
    )
    changed = place(Workload.parse(trainjob(own)), Pods(node_selector={"zone": "b"}))
    (only,) = changed.manifest["spec"]["runtimePatches"]
    template = only["trainingRuntimeSpec"]["template"]
    assert template["metadata"] == {"labels": {"kept": "yes"}}
    assert [job["name"] for job in template["spec"]["replicatedJobs"]] == [
        "dataset-initializer",
        "node",
    ]


def test_what_only_the_runtime_may_set_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot set a pod's priorityClassName"):
        place(Workload.parse(trainjob()), Pods(priority_class="high"))


def test_defaults_of_a_cluster_fit_a_trainjob() -> None:
    launched = with_pod_deadlines(with_pod_defaults(Workload.parse(trainjob())))
    assert launched.manifest["spec"]["trainer"]["resourcesPerNode"]["requests"] == {
        "cpu": "250m",
        "memory": "512Mi",
    }
    pod = own_pod(launched)
    assert pod.keys() == {"securityContext", "containers"}
    assert pod["containers"][0].keys() == {"name", "securityContext"}
    assert list(violations(launched.replicas[0].pod)) == []
    admit(launched.manifest)


def test_workers_are_the_nodes_beside_the_first() -> None:
    assert Workload.parse(trainjob()).changed_job(lambda editor: editor.set_workers(0)).nodes == 1
    assert (
        Workload.parse(trainjob())
        .changed_job(lambda editor: editor.set_workers(4))
        .manifest["spec"]["trainer"]["numNodes"]
        == 5
    )


def test_a_trainjob_gets_a_deadline_and_no_tries() -> None:
    limited = Workload.parse(trainjob()).changed_job(
        lambda editor: editor.limit(deadline=9, kept=7, tries=3)
    )
    assert limited.manifest["spec"]["activeDeadlineSeconds"] == 9
    assert not {"backoffLimit", "ttlSecondsAfterFinished"} & set(limited.manifest["spec"])


def test_nodes_and_image_default_to_the_runtimes() -> None:
    manifest = trainjob()
    manifest["spec"]["trainer"] = {"command": ["true"]}
    job = admit(manifest)
    assert job.nodes == 1
    assert job.images[0].startswith("pytorch/pytorch:")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"trainer": {"env": [{"name": "PET_NNODES", "value": "2"}]}},
            r"trainer\.env\[0\].*PET_NNODES",
        ),
        ({"trainer": {"numNodes": 0}}, "numNodes >= 1"),
        ({"trainer": {"numNodes": "2"}}, r"trainer\.numNodes: must be an integer"),
        (
            {"trainer": {"resourcesPerNode": {"requests": {"cpu": "lots"}}}},
            r"resourcesPerNode\.requests\.cpu: must be an amount of a resource",
        ),
        (
            {"trainer": {"resourcesPerNode": {"limits": {"cpu": 0.5}}}},
            r"resourcesPerNode\.limits\.cpu: must be a whole number or in quotes",
        ),
        (
            {
                "trainer": {
                    "resourcesPerNode": {"requests": {"cpu": "2"}, "limits": {"cpu": "500m"}}
                }
            },
            r"requests\.cpu: must be at most the limit, but got '2 > 500m'",
        ),
        ({"runtimeRef": None}, r"runtimeRef\.name"),
        ({"runtimeRef": {"name": "t", "kind": "Runtime"}}, r"runtimeRef\.kind"),
        ({"activeDeadlineSeconds": 0}, "activeDeadlineSeconds >= 1"),
        ({"managedBy": "somebody"}, r"spec\.managedBy"),
        ({"runtimePatches": [patch("podium", {})]}, "must be a domain, a slash and a name"),
        ({"runtimePatches": [patch("a.com/b", {}), patch("a.com/b", {})]}, "must be given once"),
        ({"runtimePatches": [patch("a.com/b", {"priorityClassName": "x"})]}, "priorityClassName"),
        (
            {"runtimePatches": [patch("a.com/b", {"containers": [{"name": "other"}]})]},
            r"containers\[0\]\.name",
        ),
        (
            {
                "runtimePatches": [
                    patch("a.com/b", {"containers": [{"name": "node", "env": [{"name": "A"}]}]})
                ]
            },
            r"containers\[0\]\.env: must be left out",
        ),
        (
            {
                "runtimePatches": [
                    patch("a.com/b", {"containers": [{"name": "node", "image": "i"}]})
                ]
            },
            "image",
        ),
    ],
)
def test_admission_refuses_what_trainers_webhook_refuses(
    change: dict[str, Any], message: str
) -> None:
    manifest = trainjob()
    manifest["spec"] |= change
    with pytest.raises(InvalidInput, match=message):
        admit(manifest)


def test_a_spec_that_is_not_an_object_is_refused() -> None:
    with pytest.raises(InvalidInput, match="spec: must be an object, but got 'x'"):
        admit({**trainjob(), "spec": "x"})


def test_a_name_leaves_room_for_its_pods() -> None:
    admit(trainjob(name="a" * 48))
    with pytest.raises(InvalidInput, match="node-0-2-abcde"):
        admit(trainjob(name="a" * 49))


def test_a_status_reads_as_one_word() -> None:
    def phase(**status: Any) -> str:
        return status_of({"kind": "TrainJob", "status": status}).phase

    status: dict[str, Any] = {}
    conditions = Conditions(status, "trainer")
    assert phase() == "Created"
    assert phase(jobsStatus=[{"name": "node", "active": 1}]) == "Running"
    conditions.add("Suspended", "Suspended", "TrainJob is suspended", "1")
    assert phase(**status) == "Suspended"
    status["conditions"][0] |= {"status": "False", "reason": "Resumed"}
    assert phase(**status) == "Created"
    conditions.add("Suspended", "Suspended", "TrainJob is suspended", "2")
    conditions.add("Suspended", "Suspended", "TrainJob is suspended", "3")
    conditions.add("Complete", "AllJobsCompleted", "jobset completed successfully", "4")
    assert phase(**status) == "Succeeded"
    assert [
        (condition["type"], condition["lastTransitionTime"]) for condition in status["conditions"]
    ] == [
        ("Suspended", "2"),
        ("Complete", "4"),
    ]


@pytest.mark.parametrize("value", NASTY, ids=repr)
def test_nonsense_in_a_trainjob_reads_as_something(value: Any) -> None:
    for spec in (value, {"trainer": value}, {"runtimePatches": [value]}, {"runtimePatches": [patch("a/b", value)]},
                 {"trainer": {"numNodes": value}}, {"runtimePatches": [patch("a/b", {"containers": value})]}):  # fmt: skip
        job = Workload.parse({"kind": "TrainJob", "spec": spec})
        assert all(
            isinstance(container.name, str) and isinstance(container.words, tuple)
            for _, container in job.containers()
        )
        assert job.workers >= 0
        with pytest.raises(InvalidInput):
            admit(
                {
                    "apiVersion": "trainer.kubeflow.org/v1alpha1",
                    "kind": "TrainJob",
                    "metadata": {},
                    "spec": spec,
                }
            )


def sweep(**changes: Any) -> dict[str, Any]:
    trial = trainjob(args=["--lr=${trialParameters.lr}"])
    del trial["metadata"]
    template = {
        "primaryContainerName": "node",
        "trialParameters": [{"name": "lr", "reference": "lr"}],
    }
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "sweep"},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
            "algorithm": {"algorithmName": "random"},
            "maxTrialCount": 3,
            "parameters": [
                {
                    "name": "lr",
                    "parameterType": "double",
                    "feasibleSpace": {"min": "0.1", "max": "1"},
                },
            ],
            "trialTemplate": template | {"trialSpec": trial} | changes,
        },
    }


def test_trials_that_are_trainjobs_get_katibs_defaults() -> None:
    experiment = Experiment.parse(sweep())
    check(experiment)
    assert (
        experiment.template.success_condition
        == 'status.conditions.#(type=="Complete")#|#(status=="True")#'
    )
    assert experiment.template.primary_pod_labels == {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    rendered = experiment.render("sweep-1", {"lr": "0.5"})
    assert experiment.template.primary_pods(rendered) == ("node-0",)
    assert [container.words[-1] for _, container in rendered.containers()] == ["--lr=0.5"]
    assert len(experiment.wrapped_containers()) == 1


def test_the_primary_container_of_a_trainjob_is_node() -> None:
    with pytest.raises(InvalidInput, match="node"):
        check(Experiment.parse(sweep(primaryContainerName="pytorch")))


def test_an_experiment_changes_the_trainjob_of_its_trials() -> None:
    made = customize(Experiment.parse(sweep()), image="other:1", workers=1, flags={"--epochs": "2"},
                     resources={"limits": {"cpu": "1"}}, labels={"x": "y"})  # fmt: skip
    job = made.template.workload
    assert (job.nodes, job.images, job.labels["x"]) == (2, ("other:1",), "y")
    ((_, container),) = job.containers()
    assert container.words == ("python", "train.py", "--lr=${trialParameters.lr}", "--epochs=2")
    assert job.spec["trainer"]["resourcesPerNode"] == {"limits": {"cpu": "1"}}


@pytest.mark.parametrize("program", ["mpirun", "/usr/local/mpi/bin/mpirun"])
def test_mpirun_of_another_runtime_runs_in_its_launcher(program: str) -> None:
    spec = {"runtimeRef": {"name": "our-mpi"}}
    job = Workload.parse(trainjob(spec=spec, command=[program, "python", "train.py"]))
    assert [replica.role for replica in job.replicas] == ["Launcher"]
