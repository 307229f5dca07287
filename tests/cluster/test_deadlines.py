"""The deadline of a job is also its pods'."""

from pytorchjobs import write_pytorchjob

from podium.manifests.experiment import Experiment, load
from podium.manifests.pod_security import MARGIN, with_pod_deadlines
from podium.manifests.workload import Workload


def deadlines(job: dict) -> list[int | None]:
    replicas = job["spec"]["pytorchReplicaSpecs"].values()
    return [replica["template"]["spec"].get("activeDeadlineSeconds") for replica in replicas]


def test_every_replica_ends_a_little_after_its_job() -> None:
    job = write_pytorchjob(
        name="x", image="i", command=("c",), workers=2, active_deadline_seconds=60
    )
    assert deadlines(with_pod_deadlines(Workload.parse(job)).manifest) == [60 + MARGIN, 60 + MARGIN]
    assert deadlines(job) == [None, None]


def test_a_deadline_of_the_pods_own_stays() -> None:
    job = write_pytorchjob(name="x", image="i", command=("c",), active_deadline_seconds=60)
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["activeDeadlineSeconds"] = 10
    assert deadlines(with_pod_deadlines(Workload.parse(job)).manifest) == [10]


def test_trials_that_are_pytorchjobs_get_a_deadline_on_pods() -> None:
    experiment = load("random")
    seconds = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["runPolicy"][
        "activeDeadlineSeconds"
    ]
    changed = with_pod_deadlines(Experiment.parse(experiment)).manifest["spec"]["trialTemplate"][
        "trialSpec"
    ]
    assert set(deadlines(changed)) == {seconds + MARGIN}
    job = Workload.parse(write_pytorchjob(name="x", image="i", command=("c",)))
    for other in (Experiment.load("random-job"), job):
        assert with_pod_deadlines(other).manifest == other.manifest
