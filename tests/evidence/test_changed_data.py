"""Data are prepared again when they changed, and only then."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from podium.data.fingerprint import digest_of, list_contents
from podium.errors import NotFound
from podium.storage import connect
from podium.training.dataset import DataSettings

pytestmark = pytest.mark.whole

PODIUM = [str(Path(sys.executable).parent / "podium")]


def podium(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PODIUM_HOME": str(folder / "home"), "COLUMNS": "200"}
    return subprocess.run(
        [*PODIUM, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def until_prepared(folder: Path, *words: str) -> str:
    """Stop a run once its data are prepared and another step begins; return all it said."""
    return until_ended(folder, "Prepare the data", *words)


def until_ended(folder: Path, step: str, *words: str) -> str:
    """Stop a run once this step has ended and another begins; return all it said."""
    environment = {**os.environ, "PODIUM_HOME": str(folder / "home"), "COLUMNS": "200"}
    said, ended = [], False
    with subprocess.Popen(
        [*PODIUM, "run", *words], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        for line in process.stderr:
            said.append(line)
            ended = ended or f"{step}: " in line
            if ended and line.startswith("[") and ": " not in line:  # another step begins
                process.send_signal(signal.SIGINT)
                said.extend(process.stderr)
    return "".join(said)


def arrays(file: Path, count: int) -> None:
    draw = np.random.default_rng(count)
    x = draw.normal(size=(count, 6)).astype(np.float32)
    np.savez(file, x=x, y=(x[:, 0] + draw.normal(size=count) * 0.1).astype(np.float32))


def test_a_run_over_changed_data_prepares_them_again(tmp_path: Path) -> None:
    assert podium(tmp_path, "init", "shop", "--from", "blank").returncode == 0
    folder, settings = tmp_path / "shop", ["max_trials=1", "parallel_trials=1"]
    arrays(folder / "data.npz", 1000)
    first = podium(folder, "run", *settings)
    assert first.returncode == 0, first.stderr
    assert "since run" not in first.stderr
    again = podium(folder, "run", *settings, "seed=2")
    assert "data unchanged since run" in again.stderr
    assert "Prepare the data: cached" in again.stderr
    assert "warning of the data: the test part has only 100 items" in again.stderr, (
        "what was said then still holds"
    )
    otherwise = until_prepared(folder, *settings, 'data_options={"test": 0.2}')
    assert "data unchanged since run" in otherwise
    assert "but they are to be prepared otherwise" in otherwise
    arrays(folder / "data.npz", 699)
    changed = until_prepared(folder, *settings)
    assert "data changed: 1,000 items before, since run" in changed
    assert "699 items, 1,000 before" in changed
    assert "Prepare the data: succeeded" in changed


def test_a_missing_file_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    done = podium(tmp_path, "run", "dataset=table:nowhere.csv", "target=x")
    assert done.returncode == 2
    assert (
        "error: there is nothing at nowhere.csv, which dataset=table:nowhere.csv names"
        in done.stderr
    )
    assert json.loads(podium(tmp_path, "runs", "list", "--json").stdout) == []


def fingerprint(dataset: str, **options: object) -> str:
    settings = DataSettings(dataset=dataset, data_options=options)
    return digest_of(list_contents(settings.locations), {"dataset": dataset})


def test_the_content_of_files_counts_not_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two directories with a day1.csv each, and one home."""
    seen = set()
    for name, text in (("a", "x,y\n1,2\n"), ("b", "x,y\n1,3\n"), ("c", "x,y\n1,2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "day1.csv").write_text(text)
        os.utime(tmp_path / name / "day1.csv", (1, 1))
        monkeypatch.chdir(tmp_path / name)
        seen.add(fingerprint("table:day1.csv"))
    assert len(seen) == 2


def test_every_file_of_a_folder_counts(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        (tmp_path / "pets" / label / "1.png").write_bytes(label.encode())
    before = fingerprint(f"images:{tmp_path}/pets")
    (tmp_path / "pets" / "dog" / "1.png").write_bytes(b"cow")
    changed = fingerprint(f"images:{tmp_path}/pets")
    (tmp_path / "pets" / "dog" / "2.png").write_bytes(b"cow")
    assert len({before, changed, fingerprint(f"images:{tmp_path}/pets")}) == 3


def test_objects_of_a_bucket_count_by_their_etag(new_bucket: object) -> None:
    url = f"{new_bucket('moto')}/raw"  # type: ignore[operator]
    connect(url).put("day.csv", b"x,y\n1,2\n")
    before = fingerprint(f"table:{url}/day.csv")
    assert before == fingerprint(f"table:{url}/day.csv")
    connect(url).put("day.csv", b"x,y\n1,3\n")
    assert before != fingerprint(f"table:{url}/day.csv")
    with pytest.raises(NotFound, match="there is nothing at"):
        fingerprint(f"table:{url}/night.csv")


def test_the_test_file_counts_too(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x,y\n1,2\n")
    before = fingerprint(f"table:{tmp_path}/a.csv", test=f"{tmp_path}/b.csv")
    shutil.copy(tmp_path / "a.csv", tmp_path / "b.csv")
    assert before == fingerprint(f"table:{tmp_path}/a.csv", test=f"{tmp_path}/b.csv")
    (tmp_path / "b.csv").write_text("x,y\n1,9\n")
    assert before != fingerprint(f"table:{tmp_path}/a.csv", test=f"{tmp_path}/b.csv")
