"""A pool: few pods run many trials, one after another; a trial counts once, whatever becomes of pods and engines."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer
from engine_place import EngineThread, namespace
from test_engine import PROGRAM, experiment, finished, until
from test_population import PROGRAM as MEMBER, experiment as population

from podium.errors import NotFound, PodiumError, Unavailable
from podium.manifests.experiment import best_trial
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import PBT_PARENT, POOL_STATE
from podium.manifests.options import annotation
from podium.manifests.typed import typed
from podium.sweeps import connect, controller, records
from podium.sweeps.namespace import NamespaceSweeps
from podium.sweeps.pool_store import PoolStore, TrialEnd

pytestmark = pytest.mark.whole


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PROGRAM", str(tmp_path / "program.py"))
    with namespace(tmp_path, monkeypatch) as running:
        running.world.second = 0.2  # an engine's stop waits for the end of its watch
        yield running


@pytest.fixture
def start(server: ApiServer, tmp_path: Path) -> Iterator[Callable[..., EngineThread]]:
    """Starts engines with a directory as their storage."""
    started: list[EngineThread] = []

    def one(holder: str = "engine-a") -> EngineThread:
        started.append(EngineThread(holder, storage=f"file://{tmp_path}/storage"))
        until(lambda: ("leases", "podium-engine") in server.world.objects)
        return started[-1]

    yield one
    for engine in started:
        engine.stop()


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[NamespaceSweeps]:
    with connect("kubernetes://team") as opened:
        assert isinstance(opened, NamespaceSweeps)
        yield opened


def pooled(pods: int = 2, **how: Any) -> dict[str, Any]:
    made = experiment(parallel=pods, **how)
    made["metadata"]["annotations"] = annotation({"pool": pods})
    return made


def test_two_pods_run_sixty_trials(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, server: ApiServer
) -> None:
    start()
    cluster.create(typed(pooled(trials=60)))
    status = finished(cluster)
    assert status["conditions"][-1]["reason"] == "ExperimentMaxTrialsReached"
    assert status["trialsSucceeded"] == 60
    made = [
        request
        for request in server.world.requests
        if "/jobs" in request and request.startswith("POST")
    ]
    assert 1 <= len(made) < 5, "not one a trial; an engine that lost its lease asks again"
    assert not [key for key in server.world.objects if key[0] == "trials"]
    trials = cluster.trials("sweep")
    assert [trial.phase for trial in trials] == ["Succeeded"] * 60
    assert {trial.value for trial in trials} == {float(trial.assignments["lr"]) for trial in trials}
    best = min(trials, key=lambda trial: trial.value or 0.0)
    assert status["currentOptimalTrial"]["bestTrialName"] == best.name
    until(lambda: not cluster.list("Job"))


def test_a_pool_runs_the_best_trials_again(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps
) -> None:
    start()
    manifest = pooled(trials=4)
    manifest["metadata"]["annotations"] = annotation({"pool": 2, "confirm": "2x2"})
    cluster.create(typed(manifest))
    status, trials = finished(cluster), cluster.trials("sweep")
    runs = [trial for trial in trials if trial.repeats]
    assert [run.phase for run in runs] == ["Succeeded"] * 4
    best = best_trial(trials)
    assert best
    assert status["currentOptimalTrial"]["bestTrialName"] == best.name


def test_the_log_of_a_retained_trial_reaches_the_storage(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps
) -> None:
    start()
    manifest = pooled(1, trials=1)
    manifest["spec"]["trialTemplate"]["retain"] = True
    cluster.create(typed(manifest))
    finished(cluster)
    (trial,) = cluster.trials("sweep")
    assert f"loss={trial.assignments['lr']}" in cluster.logs("Trial", trial.name)


def workers(server: ApiServer) -> dict[str, int]:
    """Process id by uid of each worker that runs."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[1:3] == [b"-m", b"podium.sweeps.worker"]:  # its supervisor's end so
                environ = dict(
                    pair.split(b"=", 1)
                    for pair in (folder / "environ").read_bytes().split(b"\0")
                    if b"=" in pair
                )
                if (uid := environ.get(b"PODIUM_POD_UID", b"").decode()) in uids_of(server):
                    found[uid] = int(folder.name)
    return found


def uids_of(server: ApiServer) -> set[str]:
    return {
        item["metadata"]["uid"]
        for (kind, _), item in server.world.objects.items()
        if kind == "pods"
    }


def store_of(cluster: NamespaceSweeps) -> PoolStore:
    url = until(lambda: cluster.experiment("sweep").annotations.get(POOL_STATE))
    return PoolStore(url)


def ended(cluster: NamespaceSweeps) -> int:
    return int(cluster.experiment("sweep").status.get("trialsSucceeded", 0))


def check_each_once(cluster: NamespaceSweeps, count: int) -> None:
    """There are so many trials, each succeeded once with the metric of its own values."""
    trials = cluster.trials("sweep")
    assert len(trials) == count
    assert [trial.phase for trial in trials] == ["Succeeded"] * count
    assert {trial.name: trial.value for trial in trials} == {
        trial.name: float(trial.assignments["lr"]) for trial in trials
    }


def busy(store: PoolStore) -> tuple[str, str] | None:
    """Return a worker and the trial that it runs."""
    runs = {trial.name for trial in store.trials() if trial.phase == "Running"}
    return next(((uid, trial) for uid, trial in store.all_given().items() if trial in runs), None)


def test_a_worker_that_is_told_to_end_takes_no_more(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, server: ApiServer
) -> None:
    start()
    cluster.create(typed(pooled(1, trials=3, wait=2.0)))
    store = store_of(cluster)
    uid, _ = until(lambda: busy(store))
    os.kill(workers(server)[uid], signal.SIGTERM)
    until(lambda: uid not in workers(server))
    assert not cluster.experiment("sweep").state.finished
    assert finished(cluster)["trialsSucceeded"] == 3
    check_each_once(cluster, 3)


def test_a_worker_that_is_killed_gives_its_trial_back(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, server: ApiServer
) -> None:
    start()
    cluster.create(typed(pooled(trials=5, wait=2.0)))
    store = store_of(cluster)
    uid, lost = until(lambda: busy(store))
    os.kill(workers(server)[uid], signal.SIGKILL)
    until(lambda: lost in {name for other, name in store.all_given().items() if other != uid})
    assert finished(cluster)["trialsSucceeded"] == 5
    check_each_once(cluster, 5)


def test_the_next_engine_takes_the_workers_up(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, server: ApiServer
) -> None:
    first = start("engine-a")
    cluster.create(typed(pooled(trials=10, wait=0.5)))
    until(lambda: ended(cluster) >= 2)
    before = uids_of(server)
    first.stop()
    time.sleep(1.5)  # trials end meanwhile
    start("engine-b")
    assert finished(cluster)["trialsSucceeded"] == 10
    check_each_once(cluster, 10)
    assert {
        pod["metadata"]["uid"] for _, event, plural, pod in server.world.history if plural == "pods"
    } == before


def test_a_pool_whose_storage_is_away_holds_up_no_other(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_HELD_SECONDS", 0.2)
    read, away = PoolStore.trials, [NotFound("no bucket pools"), Unavailable("no answer")]

    def in_vain(store: PoolStore, experiment: str = "") -> Sequence[Trial]:
        if away:
            raise away[0]
        return read(store, experiment)

    monkeypatch.setattr(PoolStore, "trials", in_vain)
    start()
    cluster.create(typed(pooled(trials=2)))
    cluster.create(typed(experiment("tpe", trials=1, parallel=1)))
    while away:
        said = f"Experiment waits: {away[0].message}"
        until(lambda said=said: cluster.experiment("sweep").state.message == said)
        finished(cluster, "tpe")
        assert cluster.experiment("sweep").state.phase == "Waiting"
        del away[0]
    assert finished(cluster)["trialsSucceeded"] == 2
    assert cluster.experiment("sweep").condition("Waiting") is None


def test_what_a_pod_without_the_trial_says_is_dropped(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, server: ApiServer
) -> None:
    start()
    cluster.create(typed(pooled(trials=6, wait=1.0)))
    store = store_of(cluster)
    running = until(lambda: [trial for trial in store.trials() if trial.phase == "Running"])[0]
    late = running.with_condition("Succeeded", "TrialSucceeded", "from nowhere").with_metrics(
        {"loss": {"min": "0", "max": "0", "latest": "0"}}
    )
    store.put_end(running.name, "uid-of-a-pod-that-is-gone", TrialEnd.of(late, []), b"")
    until(lambda: ended(cluster) >= 1)
    # Another engine, which leads since, may have given it the trial.
    assert (running.name, "uid-of-a-pod-that-is-gone") in store.inbox()
    assert finished(cluster)["trialsSucceeded"] == 6
    check_each_once(cluster, 6)


def test_a_sweep_deleted_after_its_end_leaves_no_files(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, tmp_path: Path
) -> None:
    start()
    cluster.create(typed(pooled(trials=2)))
    assert finished(cluster)["trialsSucceeded"] == 2
    cluster.delete("Experiment", "sweep")
    until(lambda: not any(files for _, _, files in os.walk(tmp_path / "storage")))


def test_a_result_that_cannot_be_removed_fails_no_trial(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, away = PoolStore.drop, [True]

    def first_in_vain(store: PoolStore, trial: str, uid: str) -> None:
        if away:
            raise Unavailable(f"cannot delete inbox/{trial}/{uid}: no answer {away.pop()}")
        drop(store, trial, uid)

    monkeypatch.setattr(PoolStore, "drop", first_in_vain)
    start()
    cluster.create(typed(pooled(trials=2)))
    assert finished(cluster)["trialsSucceeded"] == 2
    assert not away


def test_a_pool_waits_for_a_storage_as_it_begins(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, away = PoolStore.write_experiment, [True, True]

    def first_in_vain(store: PoolStore, experiment: Experiment) -> None:
        if away:
            raise PodiumError(f"cannot reach the storage to write: no answer {away.pop()}")
        write(store, experiment)

    monkeypatch.setattr(PoolStore, "write_experiment", first_in_vain)
    start()
    cluster.create(typed(pooled(trials=2)))
    assert finished(cluster)["trialsSucceeded"] == 2
    assert not away


def test_a_new_pool_waits_for_no_wrong_bucket(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_vain(store: PoolStore, experiment: Experiment) -> None:
        raise Unavailable("no answer of bucket pools")

    monkeypatch.setattr(records, "_NEW_SECONDS", 0.1)
    monkeypatch.setattr(PoolStore, "write_experiment", in_vain)
    start()
    cluster.create(typed(pooled(trials=2)))
    assert "no answer of bucket pools" in finished(cluster)["conditions"][-1]["message"]


def test_trials_of_a_pool_fail_once_its_job_is_deleted(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps
) -> None:
    start()
    cluster.create(typed(pooled(trials=2, wait=60.0)))
    pool = until(lambda: cluster.list("Job"))[0]
    cluster.api.delete("Job", pool.name)
    finished(cluster)  # with the first of the two
    until(lambda: cluster.experiment("sweep").status["trialsFailed"] == 2)
    for trial in cluster.trials("sweep"):
        assert f"somebody deleted Job {pool.name}" in trial.message


def test_a_rule_stops_a_trial_in_its_worker(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps
) -> None:
    start()
    rule = {
        "algorithmName": "medianstop",
        "algorithmSettings": [
            {"name": "min_trials_required", "value": "1"},
            {"name": "start_step", "value": "1"},
        ],
    }
    grid = {"algorithmName": "grid"}
    values = [
        {"name": "lr", "parameterType": "categorical", "feasibleSpace": {"list": ["0.9", "0.1"]}}
    ]
    cluster.create(
        typed(
            pooled(
                1,
                trials=2,
                wait=0.3,
                steps=4,
                earlyStopping=rule,
                algorithm=grid,
                parameters=values,
            )
        )
    )
    status = finished(cluster)
    assert (status["trialsSucceeded"], status["trialsEarlyStopped"]) == (1, 1)


def test_a_failed_trial_says_why_and_its_log_is_kept(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps
) -> None:
    start()
    made = pooled(trials=2)
    container = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    container["command"] = ["sh", "-c", "echo no such thing: ${trialParameters.lr}; exit 3"]
    cluster.create(typed(made))
    assert finished(cluster)["conditions"][-1]["reason"] == "ExperimentFailed"
    failed = next(trial for trial in cluster.trials("sweep") if trial.phase == "Failed")
    assert list(cluster.logs("Trial", failed.name)) == [
        f"no such thing: {failed.assignments['lr']}"
    ]
    assert "no such thing" in str(cluster.failure("Trial", failed.name))


def test_a_long_log_is_kept_from_its_last_mebibyte_on(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps
) -> None:
    start()
    made = pooled(1, trials=1)
    container = made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    many = "yes another line | head -n 200000"
    container["command"] = ["sh", "-c", f"{many}; echo loss=${{trialParameters.lr}}"]
    cluster.create(typed(made))
    assert finished(cluster)["trialsSucceeded"] == 1
    (trial,) = cluster.trials("sweep")
    lines = list(cluster.logs("Trial", trial.name))
    assert lines[-2:] == ["another line", f"loss={trial.assignments['lr']}"]
    assert sum(len(line) + 1 for line in lines) == 1 << 20


KILLER = """
import os, pathlib, signal

own = "PODIUM_POD_UID=" + os.environ["PODIUM_POD_UID"]
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words, variables = ((folder / name).read_text().split(chr(0)) for name in ("cmdline", "environ"))
    except OSError:
        continue
    if "podium.sweeps.worker" in words and own in variables:
        os.kill(int(folder.name), signal.SIGKILL)
"""


def test_a_trial_that_takes_its_workers_along_has_failed(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, tmp_path: Path
) -> None:
    losses = tmp_path / "losses"
    note = f"open({str(losses)!r}, 'a').write('x')"
    Path(os.environ["PROGRAM"]).write_text(f"{note}\n{KILLER}")
    start()
    cluster.create(typed(pooled(1, trials=1)))
    assert finished(cluster)["trialsFailed"] == 1
    assert "3 pods ended while they ran it" in cluster.trials("sweep")[0].message
    assert losses.read_text() == "xxx"


def test_a_trial_that_loses_two_pods_goes_on(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, tmp_path: Path
) -> None:
    losses = tmp_path / "losses"
    twice = f"""
import pathlib, sys
losses = pathlib.Path({str(losses)!r})
seen = losses.read_text() if losses.exists() else ""
losses.write_text(seen + "x")
if len(seen) == 2:
    print(f"loss={{sys.argv[1]}}")
    sys.exit()
"""
    Path(os.environ["PROGRAM"]).write_text(twice + KILLER)
    start()
    cluster.create(typed(pooled(1, trials=1)))
    assert finished(cluster)["trialsSucceeded"] == 1
    assert losses.read_text() == "xxx"


def test_a_deleted_experiment_takes_its_pool_along(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, server: ApiServer, tmp_path: Path
) -> None:
    start()
    cluster.create(typed(pooled(trials=8, wait=1.0)))
    until(lambda: ended(cluster) >= 1)
    cluster.delete("Experiment", "sweep")
    until(lambda: not cluster.list("Job"))
    until(lambda: not any(files for _, _, files in os.walk(tmp_path / "storage")))


def test_a_worker_that_comes_late_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROGRAM", "unused.py")
    (tmp_path / "left").mkdir()
    (tmp_path / "left" / "model.bin").write_bytes(b"model")
    store = PoolStore(f"file://{tmp_path}/storage")
    store.write_experiment(Experiment.parse(pooled(trials=1)))
    store.clear(whole=True)
    store.keep_files("sweep-1", tmp_path / "left")
    with pytest.raises(NotFound, match="sweep-1 was deleted"):
        store.put_end("sweep-1", "uid", TrialEnd(status={}, readings=[]), b"printed")
    assert not [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]


def test_a_population_hands_its_files_on_through_the_storage(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, tmp_path: Path
) -> None:
    (tmp_path / "member.py").write_text(MEMBER)
    start()
    made = population(tmp_path / "member.py", most=12)
    made["metadata"]["annotations"] = annotation({"pool": 2})
    cluster.create(typed(made))
    assert finished(cluster, "e")["trialsSucceeded"] == 12
    trials = {trial.name: trial for trial in cluster.trials("e")}
    parents = {
        name: trial.labels[PBT_PARENT]
        for name, trial in trials.items()
        if PBT_PARENT in trial.labels
    }
    assert parents
    for name, parent in parents.items():
        assert trials[name].metrics["began"]["latest"] == trials[parent].metrics["score"]["latest"]


def test_the_storage_keeps_files_of_any_name(tmp_path: Path) -> None:
    left, store = tmp_path / "left", PoolStore(f"file://{tmp_path}/storage")
    odd = ["step\n2", "a\\b", ".podium", "w" * 250, os.fsdecode(b"\xff"), "names", "0"]
    for name in odd:
        (left / "step" / name).mkdir(parents=True)
        (left / "step" / name / name).write_text(name, errors="surrogateescape")
    (left / "latest").symlink_to("step")
    (left / "gone").symlink_to("nowhere")
    (left / "step/back").symlink_to(left / "latest")
    store.keep_files("e-1", left)
    store.fetch_files("e-1", tmp_path / "found")
    assert len([*(tmp_path / "found").rglob("*/*/*")]) == 2 * len(odd), "each by one way"
    for folder in ("step", "latest"):
        found = {path.name: path for path in (tmp_path / "found" / folder).glob("*/*")}
        assert sorted(found) == sorted(odd)
        assert all(path.read_bytes() == os.fsencode(name) for name, path in found.items())


def test_a_trial_that_runs_again_leaves_its_last_files(tmp_path: Path) -> None:
    left, store = tmp_path / "left", PoolStore(f"file://{tmp_path}/storage")
    left.mkdir()
    for name in ("half", "weights"):
        for file in left.iterdir():
            file.unlink()
        (left / name).touch()
        store.keep_files("e-1", left)
    store.fetch_files("e-1", tmp_path / "found")
    assert [file.name for file in (tmp_path / "found").iterdir()] == ["weights"]


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no number": (
        lambda made: made["metadata"].update(annotations=annotation({"pool": "many"})),
        "pool is a whole number, but got 'many'",
    ),
    "a sidecar": (
        lambda made: made["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"][
            "containers"
        ].append({"name": "side", "image": "any", "command": ["true"]}),
        "runs one container a trial, but these have main, side",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_worker_can_run_is_refused(
    what: str, start: Callable[..., EngineThread], cluster: NamespaceSweeps
) -> None:
    start()
    made = pooled()
    change, sentence = WRONG[what]
    change(made)
    cluster.create(typed(made))
    assert sentence in finished(cluster)["conditions"][-1]["message"]
    assert not cluster.list("Job")


def test_the_annotation_of_a_deleted_sweep_removes_nothing_else(
    start: Callable[..., EngineThread], cluster: NamespaceSweeps, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    start()
    given = pooled(trials=1)
    given["metadata"]["annotations"] = {
        **given["metadata"].get("annotations", {}),
        POOL_STATE: str(precious),
    }
    manifest = typed(given)
    cluster.create(manifest)
    finished(cluster)
    cluster.api.patch(
        "Experiment", "sweep", {"metadata": {"annotations": {POOL_STATE: str(precious)}}}
    )
    cluster.delete("Experiment", "sweep")
    cluster.create(
        typed({**pooled(trials=1), "metadata": {**pooled(trials=1)["metadata"], "name": "next"}})
    )
    until(lambda: cluster.experiment("next").state.finished)
    assert (precious / "file").read_text() == "kept"


def test_the_trials_of_a_sweep_begun_anew_are_its_own(server: ApiServer, tmp_path: Path) -> None:
    with NamespaceSweeps("kubernetes://team?engine=cluster") as looking:
        for number in range(2):
            url = f"file://{tmp_path}/pools/{number}"
            made = pooled()
            made["metadata"]["annotations"][POOL_STATE] = url
            server.world.put("experiments", made, "ADDED")
            trial = {"kind": "Trial", "metadata": {"name": f"sweep-{number}"}, "spec": {}}
            PoolStore(url).write(Trial.parse(trial))
            assert [trial.name for trial in looking.trials("sweep")] == [f"sweep-{number}"]
            assert looking.trial(f"sweep-{number}").name == f"sweep-{number}"
            looking.api.delete("Experiment", "sweep")


def test_trials_are_listed_by_many_threads_at_once(tmp_path: Path) -> None:
    store, failed, written = PoolStore(f"file://{tmp_path}"), list[Exception](), 300

    def write(number: int) -> None:
        trial = {"kind": "Trial", "metadata": {"name": f"sweep-{number}"}, "spec": {}}
        store.write(Trial.parse(trial))

    def look() -> None:
        try:
            for _ in range(40):
                store.trials()
        except Exception as error:
            failed.append(error)

    for number in range(written):
        write(number)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as on a machine of many cores
    try:
        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            write(written)
            written += 1
    finally:
        sys.setswitchinterval(before)
    assert failed == []
    assert len(store.trials()) == written
