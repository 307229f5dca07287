"""What every store of a sweep's documents does: files, files with a copy in a storage, an API server, a prefix of a
storage."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from api_server import ApiServer
from sweep_manifests import job, space, write_experiment

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.leadership import Leadership
from podium.errors import Conflict, NotFound
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.rules import check
from podium.manifests.experiment.status import created, new_trial
from podium.manifests.experiment.trial import Trial
from podium.metrics import Reading
from podium.storage import connect
from podium.sweeps.base import Documents
from podium.sweeps.engine import _ApiDocuments
from podium.sweeps.file_documents import FileDocuments, StateCopy
from podium.sweeps.local import LocalSweeps
from podium.sweeps.pod_trial import JobExecutor
from podium.sweeps.pool_store import PoolStore
from podium.sweeps.records import Records

Open = Callable[[], Documents]


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesCluster]:
    """A namespace of an API server in memory, which serves Experiments."""
    server = ApiServer()
    server.start()
    (tmp_path / "kubeconfig").write_text(server.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with KubernetesCluster("kubernetes://team") as cluster:
        yield cluster
    server.stop()


@pytest.fixture
def leadership(namespace: KubernetesCluster) -> Iterator[Leadership]:
    """A Lease that this process holds."""
    leading = Leadership(namespace.api, "podium-test", "tester")
    assert leading.acquire(10)
    yield leading
    leading.release()


@pytest.fixture(params=["files", "copied files", "api server", "file prefix", "bucket prefix"])
def reopen(
    request: pytest.FixtureRequest, tmp_path: Path, new_bucket: Callable[[str], str]
) -> Iterator[Open]:
    """Opens the documents of Experiment ``sweep``, each time as another process would."""
    opened: list[LocalSweeps] = []

    def files() -> Documents:
        opened.append(LocalSweeps(tmp_path / "cluster", fork_server=False))
        return FileDocuments(opened[-1], "sweep")

    def copied() -> Documents:
        opened.append(LocalSweeps(tmp_path / f"scratch-{len(opened)}", fork_server=False))
        copy = StateCopy(connect(tmp_path / "copy"), opened[-1].store.directory)
        copy.read()
        return FileDocuments(opened[-1], "sweep", partial(copy.write, leadership=None))

    def served() -> Documents:
        leadership = request.getfixturevalue("leadership")
        return _ApiDocuments(request.getfixturevalue("namespace"), leadership)

    prefix = tmp_path.as_uri() if request.param == "file prefix" else ""
    if request.param == "bucket prefix":
        prefix = new_bucket("moto")
    ways: dict[str, Open] = {"files": files, "copied files": copied, "api server": served}
    yield ways.get(request.param, lambda: PoolStore(f"{prefix}/pools/sweep"))
    for cluster in opened:
        cluster.close()


@pytest.fixture
def sweep() -> Experiment:
    """An Experiment as its cluster stores it."""
    made = write_experiment(
        job(["echo", "${trialParameters.lr}"]),
        name="sweep",
        parameters=[space("lr", min="0", max="1")],
    )
    checked = check(Experiment.parse(made))
    return checked.with_metadata({**checked.metadata, "uid": "u-1", "namespace": "team"})


def begin(documents: Documents, sweep: Experiment, name: str) -> Trial:
    """Store a trial that has begun to run."""
    given = {"lr": "0.5"}
    trial = created(new_trial(sweep, name, given, sweep.render(name, given), [], {}))
    running = documents.create(trial).with_condition("Running", "TrialRunning", "It runs")
    documents.write(running)
    return running


def test_another_process_reads_the_trials_oldest_first(reopen: Open, sweep: Experiment) -> None:
    begun = [begin(reopen(), sweep, name) for name in ("sweep-b", "sweep-a", "sweep-c")]
    trials = reopen().trials("sweep")
    assert [trial.created for trial in trials] == sorted(trial.created for trial in trials)
    assert {trial.name for trial in trials} == {trial.name for trial in begun}
    for stored in trials:
        (same,) = [trial for trial in begun if trial.name == stored.name]
        assert (stored.uid, stored.status, stored.assignments) == (
            same.uid,
            same.status,
            same.assignments,
        )


def test_a_trial_left_without_an_end_has_not_ended(reopen: Open, sweep: Experiment) -> None:
    begin(reopen(), sweep, "sweep-a")
    (left,) = reopen().trials("sweep")
    assert left.phase == "Running"
    assert not left.has_ended


def test_readings_are_kept_with_the_end(reopen: Open, sweep: Experiment) -> None:
    trial = begin(reopen(), sweep, "sweep-a")
    readings = [Reading("loss", "0.5", datetime(2026, 1, 1, tzinfo=UTC)), Reading("loss", "0.4")]
    done = trial.with_condition("Succeeded", "TrialSucceeded", "Done")
    reopen().write(done, readings)
    later = reopen()
    (stored,) = later.trials("sweep")
    assert stored.status == done.status
    assert list(later.readings(stored)) == readings


def test_a_trial_without_readings_has_none(reopen: Open, sweep: Experiment) -> None:
    trial = begin(reopen(), sweep, "sweep-a")
    reopen().write(trial.with_condition("Failed", "TrialFailed", "It broke"))
    later = reopen()
    (stored,) = later.trials("sweep")
    assert stored.phase == "Failed"
    assert list(later.readings(stored)) == []


def test_a_field_that_is_gone_is_gone_there(reopen: Open, sweep: Experiment) -> None:
    trial = begin(reopen(), sweep, "sweep-a")
    reopen().write(trial.with_status({**trial.status, "observation": {"metrics": []}}))
    later = reopen()
    (stored,) = later.trials("sweep")
    later.write(stored.with_status(trial.status))
    (again,) = reopen().trials("sweep")
    assert again.status == trial.status


def test_nothing_is_asked_of_what_runs(reopen: Open, sweep: Experiment) -> None:
    begin(reopen(), sweep, "sweep-a")
    assert reopen().asked("Trial", "sweep-a") == reopen().asked("Experiment", "sweep") == ""


@pytest.mark.parametrize("reopen", ["files", "copied files", "api server"], indirect=True)
def test_a_trial_that_was_deleted_is_not_written(reopen: Open, sweep: Experiment) -> None:
    trial = begin(reopen(), sweep, "sweep-a")
    with pytest.raises(NotFound):
        reopen().write(trial.with_metadata({**trial.metadata, "name": "sweep-gone"}))


def test_nothing_is_written_once_another_process_leads(
    reopen: Open, sweep: Experiment, namespace: KubernetesCluster, leadership: Leadership
) -> None:
    trial = begin(reopen(), sweep, "sweep-a")
    documents, executor = (
        _ApiDocuments(namespace, leadership),
        JobExecutor(namespace, leadership, ""),
    )
    records = Records(namespace, sweep, documents, executor, trials=reopen(), leadership=leadership)
    assert records.asked == ""
    leadership.release()
    assert records.asked == "leave"
    for write in (
        lambda: records.add(trial.with_metadata({**trial.metadata, "name": "sweep-b"})),
        lambda: records.save(trial.with_condition("Succeeded", "TrialSucceeded", "Done")),
        lambda: records.write(sweep, {"trials": 1}),
    ):
        with pytest.raises(Conflict, match="does not lead any more"):
            write()
    assert [stored.phase for stored in reopen().trials("sweep")] == ["Running"]


def test_a_sweep_deleted_elsewhere_leaves_every_copy(tmp_path: Path, sweep: Experiment) -> None:
    copies, clusters = [], []
    for number in range(2):
        clusters.append(LocalSweeps(tmp_path / f"scratch-{number}", fork_server=False))
        copies.append(StateCopy(connect(tmp_path / "copy"), clusters[-1].store.directory))
    for name in ("sweep", "other"):
        clusters[0].store.create({**sweep.manifest, "metadata": {"name": name}})
        file = clusters[0].store.path("Experiment", name) / "object.json"
        copies[0].write(file, file.read_bytes(), None)
    copies[1].read()
    copies[1].drop([clusters[1].store.path("Experiment", "sweep")])
    for copy, cluster in zip(copies, clusters, strict=True):
        copy.read()
        assert cluster.store.exists("Experiment", "other")
        assert not cluster.store.exists("Experiment", "sweep")
        cluster.close()


def test_nobody_sees_an_end_before_the_copy_has_it(tmp_path: Path, sweep: Experiment) -> None:
    with LocalSweeps(tmp_path / "cluster", fork_server=False) as cluster:

        def lose(file: Path, content: bytes) -> None:
            raise Conflict("another process leads")

        trial = begin(FileDocuments(cluster, "sweep"), sweep, "sweep-a")
        with pytest.raises(Conflict, match="leads"):
            FileDocuments(cluster, "sweep", lose).write(
                trial.with_condition("Succeeded", "TrialSucceeded", "Done"), [Reading("loss", ".5")]
            )
        (stored,) = FileDocuments(cluster, "sweep").trials("sweep")
        assert stored.phase == "Running"
        assert list(FileDocuments(cluster, "sweep").readings(stored)) == []
