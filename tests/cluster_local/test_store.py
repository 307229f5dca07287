"""Objects on disk: atomic, watchable, and honest about who is alive."""

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from podium.cluster.local.store import Store
from podium.errors import Conflict, Damaged, Failed, InvalidInput, NotFound
from podium.manifests.conditions import Conditions, status_of
from podium.manifests.labels import EXPERIMENT


def job(name: str, **labels: str) -> dict:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


SECRET = """
import os, sys
from pathlib import Path
os.umask(0)
sys.path[:0] = sys.argv[2:]
from test_experiment_engine import experiment, run
from podium.sweeps.local import LocalSweeps
with LocalSweeps(Path(sys.argv[1]), fork_server=False) as cluster:
    manifest = experiment("import os; print(os.environ['KEY'], 'loss=1')", template={"retain": True}, maxTrialCount=1)
    job = manifest["spec"]["trialTemplate"]["trialSpec"]["spec"]
    job["template"]["spec"]["containers"][0]["env"] = [{"name": "KEY", "value": "plain-secret"}]
    run(cluster, manifest)
"""


def test_values_of_a_manifest_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    argv = [
        sys.executable,
        "-c",
        SECRET,
        str(tmp_path / "cluster"),
        str(tests),
        str(tests / "sweeps"),
    ]
    subprocess.run(argv, check=True, timeout=120)
    holding = [
        file
        for file in tmp_path.rglob("*")
        if file.is_file() and b"plain-secret" in file.read_bytes()
    ]
    assert {file.parents[1].name for file in holding} >= {"experiments", "trials", "jobs"}
    for file in holding:
        below = [folder for folder in file.parents if folder.is_relative_to(tmp_path / "cluster")]
        assert any(folder.stat().st_mode & 0o777 == 0o700 for folder in below), file


def test_a_created_object_reads_back_with_metadata_filled_in(store: Store) -> None:
    created = store.create(job("a"))
    assert created == store.read("Job", "a")
    assert created["metadata"]["namespace"] == "default"
    assert len(created["metadata"]["uid"]) == 36


def test_a_second_object_of_one_name_is_a_conflict(store: Store) -> None:
    store.create(job("a"))
    with pytest.raises(Conflict, match="Job a exists"):
        store.create(job("a"))


def test_a_missing_objects_hint_names_the_present_ones(store: Store) -> None:
    store.create(job("a"))
    with pytest.raises(NotFound, match="hint: there are: a"):
        store.read("Job", "b")


def test_a_missing_objects_hint_names_the_run_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    Store(tmp_path / "runs/r1/cluster").create(job("train"))
    with pytest.raises(NotFound, match=r"hint: run r1 has it: --run r1, in Python podium.runs"):
        Store(tmp_path / "cluster").read("Job", "train")


def test_an_unknown_kind_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="on this machine has no"):
        store.read("Pod", "a")


def test_objects_are_listed_oldest_first_and_by_label(store: Store) -> None:
    for name in "cab":
        store.create(job(name, color="red" if name != "a" else "blue"))
    assert [job["metadata"]["name"] for job in store.list("Job")] == ["c", "a", "b"]
    assert [job["metadata"]["name"] for job in store.list("Job", {"color": "red"})] == ["c", "b"]


def test_an_update_that_changes_nothing_is_not_written(store: Store) -> None:
    store.create(job("a"))
    assert store.update("Job", "a", lambda job: None)["metadata"]["resourceVersion"] == "1"
    assert (
        store.update("Job", "a", lambda job: job.update(status={"active": 1}))["metadata"][
            "resourceVersion"
        ]
        == "2"
    )


def test_updates_from_many_threads_are_all_kept(store: Store) -> None:
    store.create(job("a") | {"status": {"n": 0}})

    def bump(one: dict) -> None:
        one["status"]["n"] += 1

    threads = [
        threading.Thread(target=lambda: [store.update("Job", "a", bump) for _ in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read("Job", "a")["status"]["n"] == 80


def test_a_watcher_sees_another_stores_changes_and_the_end(store: Store, tmp_path: Path) -> None:
    store.create(job("a"))
    seen = []
    for change in Store(tmp_path).changes("Job", "a", timeout=10):
        seen.append(change["metadata"]["resourceVersion"])
        if len(seen) == 1:
            store.update("Job", "a", lambda job: job.update(status={"active": 1}))
        else:
            store.remove("Job", "a")
    assert seen == ["1", "2"]
    assert not list((tmp_path / "jobs").iterdir())


def test_deleting_a_missing_object_does_not_end_its_successor(store: Store) -> None:
    store.path("Job", "a").mkdir(
        parents=True
    )  # as a process leaves it that is killed before it writes the object
    store.ask("delete", "Job", "a")
    store.create(job("a"))
    assert not store.asked("Job", "a")


def test_a_watch_gives_up_at_its_timeout(store: Store) -> None:
    store.create(job("a"))
    with pytest.raises(Failed, match=r"did not end within 0.1 s"):
        list(store.changes("Job", "a", timeout=0.1))


def test_an_object_is_supervised_until_its_process_is_killed(store: Store, tmp_path: Path) -> None:
    source = (
        "import sys, time; from pathlib import Path; from podium.cluster.local.store import Store\n"
        "store = Store(Path(sys.argv[1])); store.create({'kind': 'Job', 'metadata': {'name': 'a'}}); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", source, str(tmp_path)]) as process:
        deadline = time.monotonic() + 20
        while not store.exists("Job", "a") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert store.supervision.is_supervised("Job", "a")
        process.kill()
    assert not store.supervision.is_supervised("Job", "a")


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_an_end_written_during_a_read_is_not_a_loss(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    store.create(job("a"))
    reader, seen = Store(tmp_path), []

    def end_meanwhile(kind: str, name: str) -> bool:
        if len(seen) == looks:
            status: dict[str, Any] = {}
            Conditions(status, "job").add("Complete", "", "")
            store.update(kind, name, lambda manifest: manifest.update(status=status))
            store.supervision.disown(kind, name)
        seen.append(kind)
        return Store(tmp_path).supervision.is_supervised(kind, name)

    monkeypatch.setattr(reader.supervision, "is_supervised", end_meanwhile)
    first, second = (status_of(reader.read("Job", "a")).phase for _ in range(2))
    assert first in ("Created", "Succeeded")
    assert second == "Succeeded" if looks < 2 else second != "Failed"


def test_giving_up_an_object_leaves_a_removed_directory_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "cluster")
    store.create(job("a"))
    shutil.rmtree(store.directory)
    store.supervision.disown("Job", "a")
    assert not store.directory.exists()


def test_a_closed_store_supervises_nothing(store: Store, tmp_path: Path) -> None:
    store.create(job("a"))
    assert store.supervision.is_supervised("Job", "a")
    store.supervision.close()
    assert not store.supervision.is_supervised("Job", "a")
    assert not list((tmp_path / "supervisors").iterdir())


def test_damaged_trial_of_another_sweep_stops_no_list(store: Store, tmp_path: Path) -> None:
    for name, sweep in (("a-1", "a"), ("b-1", "b")):
        store.create({**job(name, **{EXPERIMENT: sweep}), "kind": "Trial"})
    (tmp_path / "trials/b-1/object.json").write_text("{")
    assert [found["metadata"]["name"] for found in store.list("Trial", {EXPERIMENT: "a"})] == [
        "a-1"
    ]


def test_leftovers_of_a_removed_object_are_not_listed(store: Store, tmp_path: Path) -> None:
    store.create(job("a"))
    place = store.path("Job", "a")
    place.rename(place.with_name(".a.0123abcd"))  # the first half of a removal
    assert store.list("Job") == []
    store.create(job("a"))
    assert len(store.list("Job")) == 1


@pytest.mark.parametrize("file", ["object.json", "supervisor.json"])
@pytest.mark.parametrize("content", [b"", b'{"kind": "Job", "meta', b"[]", b"null", b"\xff\xfe"])
def test_a_damaged_file_is_named_with_a_hint(store: Store, file: str, content: bytes) -> None:
    store.create(job("a"))
    store.supervision.close()
    (store.path("Job", "a") / file).write_bytes(content)
    with pytest.raises(Damaged, match=f"jobs/a/{file} is damaged\nhint: restore"):
        store.read("Job", "a")


def test_a_sweep_is_not_listed_without_a_damaged_trial(store: Store) -> None:
    for name in ("sweep-damaged", "sweep-whole"):
        store.create(
            {
                "apiVersion": "kubeflow.org/v1beta1",
                "kind": "Trial",
                "metadata": {"name": name, "labels": {EXPERIMENT: "sweep"}},
            }
        )
    (store.path("Trial", "sweep-damaged") / "object.json").write_text("")
    with pytest.raises(Damaged, match=r"sweep-damaged/object\.json is damaged"):
        store.list("Trial", {EXPERIMENT: "sweep"})


def test_an_unreadable_file_hides_no_other_object(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("damaged", "directory", "whole"):
        store.create(job(name))
    file = store.path("Job", "directory") / "object.json"
    file.unlink()
    file.mkdir()
    (store.path("Job", "damaged") / "object.json").write_text("")
    assert [found["metadata"]["name"] for found in store.list("Job")] == ["whole"]
    assert "Job damaged is left out: " in caplog.text
    assert "directory/object.json: Is a directory" in caplog.text


@pytest.mark.parametrize("content", [b"{}", b'{"kind": "Job", "metadata": {"name": "a"}}'])
def test_half_an_object_is_damaged_too(store: Store, content: bytes) -> None:
    store.create(job("a"))
    (store.path("Job", "a") / "object.json").write_bytes(content)
    with pytest.raises(Damaged, match=r"a/object\.json is damaged"):
        store.read("Job", "a")


@pytest.mark.parametrize(
    "part",
    [
        {"metadata": {"labels": ["a"]}},
        {"metadata": {"annotations": "a"}},
        {"metadata": {"creationTimestamp": "yesterday"}},
        {"status": {"startTime": "yesterday"}},
        {"status": {"completionTime": 5}},
    ],
)
def test_an_object_with_wrong_parts_is_damaged(store: Store, part: dict[str, Any]) -> None:
    file = store.path("Job", store.create(job("a"))["metadata"]["name"]) / "object.json"
    whole = json.loads(file.read_text())
    for name, values in part.items():
        whole[name] = {**whole.get(name, {}), **values}
    file.write_text(json.dumps(whole))
    with pytest.raises(Damaged, match=r"a/object\.json is damaged"):
        store.read("Job", "a")
    assert store.list("Job", {"app": "a"}) == []


def test_the_next_supervisor_clears_away_what_a_kill_left(store: Store, tmp_path: Path) -> None:
    alive = Store(tmp_path)
    alive.create(job("alive"))
    killed = """if True:
        import os, shutil, sys
        from pathlib import Path
        from podium.cluster.local.store import Store
        store = Store(Path(sys.argv[1]))
        store.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {}})
        shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), 9)
        store.remove("Job", "a")
    """
    subprocess.run([sys.executable, "-c", killed, str(tmp_path)], check=False)
    assert (
        len(list((tmp_path / "jobs").iterdir()))
        == len(list((tmp_path / "supervisors").iterdir()))
        == 2
    )
    store.create(job("b"))
    assert sorted(path.name for path in (tmp_path / "jobs").iterdir()) == ["alive", "b"]
    assert len(list((tmp_path / "supervisors").iterdir())) == 2
    assert Store(tmp_path).supervision.is_supervised("Job", "alive")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "../../etc", "", "A", "é", "\ud800"])
def test_a_name_that_nothing_can_have_is_not_found(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path)
    assert not store.exists("Experiment", name)
    with pytest.raises(NotFound, match="no Experiment"):
        store.read("Experiment", name)
