"""Names and run ids: equal on retry, different in every run, valid everywhere."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from podium import __version__
from podium.errors import InvalidInput, PodiumError
from podium.manifests import labels
from podium.steps.process import current_run
from podium.training import identity


def test_a_retried_step_finds_its_object_under_the_same_name() -> None:
    first = identity.object_name("train", "run-1", "minio://bucket/v2/run-1/train/model")
    assert first == identity.object_name("train", "run-1", "minio://bucket/v2/run-1/train/model")


def test_another_run_or_another_step_gets_another_name() -> None:
    names = {identity.object_name("train", run, task) for run in ("a", "b") for task in ("x", "y")}
    assert len(names) == 4


@pytest.mark.parametrize("slug", ["sweep", "Train_Fast!", "a" * 80, "x-"])
def test_names_are_short_enough_for_katib_and_valid_for_kubernetes(slug: str) -> None:
    name = identity.object_name(slug, "0f9d8c8e-3f4b-4b0a-9f0e-3a0f5a5f7a11", "task")
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 40


def test_run_ids_made_here_sort_by_time_and_differ() -> None:
    ids = [identity.new_run_id() for _ in range(20)]
    assert len(set(ids)) > 15
    assert [number[:15] for number in ids] == sorted(number[:15] for number in ids)
    assert identity.RunIdentity(id=ids[0]).labels[labels.RUN] == ids[0]


def test_run_ids_sort_by_time_in_any_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for zone in ("Asia/Tokyo", "UTC", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        ids.append(identity.new_run_id()[:15])
    monkeypatch.undo()
    time.tzset()
    assert ids == sorted(ids)


def test_the_run_id_comes_from_the_environment_if_set() -> None:
    assert current_run({"PODIUM_RUN_ID": "20260102-030405-abcd"}).id == "20260102-030405-abcd"


def test_a_placeholder_left_by_an_old_server_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not a run id"):
        current_run({"PODIUM_RUN_ID": "{{$.pipeline_job_uuid}}"})


def test_a_process_outside_of_a_run_gets_a_hint() -> None:
    with pytest.raises(PodiumError, match="belongs to no run") as caught:
        current_run({})
    assert "podium run" in (caught.value.hint or "")


def git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", "-C", str(root), *identity, *words], check=True, capture_output=True)


def test_the_code_version_has_the_commit_and_its_changes(tmp_path: Path) -> None:
    assert identity.code_version({}, tmp_path) == __version__
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    clean = identity.code_version({}, tmp_path)
    assert re.fullmatch(re.escape(__version__) + r"\+[0-9a-f]{12}", clean)
    (tmp_path / "code.py").write_text("2")
    assert identity.code_version({}, tmp_path) == f"{clean}.changed"
    assert identity.code_version({"PODIUM_CODE_VERSION": "1.2+image"}, tmp_path) == "1.2+image"
