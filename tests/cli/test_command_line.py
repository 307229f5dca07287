"""What holds for every command: errors without tracebacks, suggestions, pipes."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from podium.display.terminal import echo_json

PODIUM = [sys.executable, "-m", "podium"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file where a directory is needed: refused for root as well."""
    place = tmp_path / "a file"
    place.write_text("")
    return place


def test_a_misspelt_command_is_answered_with_the_right_one(typed: Callable[..., Any]) -> None:
    done = typed("docter")
    assert done.returncode == 2
    assert "did you mean doctor?" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "experiment run random-job --data nowhere --dir {}",
        "experiment list --dir {}",
        "job run examples/spirals-pytorchjob.yaml --dir {}",
        "job list --dir {}",
        "job list --cluster local://{}",
        "models list --storage {}",
    ],
)
def test_a_file_where_a_directory_belongs_is_refused(
    words: str, typed: Callable[..., Any], file: Path
) -> None:
    done = typed(*(word.format(file) for word in words.split()))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file} is a file" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unwritable_path_is_named_without_a_traceback(
    typed: Callable[..., Any], file: Path
) -> None:
    code, _, said = typed("compile", "-o", f"{file}/pipeline.yaml")
    assert code == 1
    assert "\nerror: " in f"\n{said}"  # after signs of life, where compiling takes long
    assert "Traceback" not in said
    assert str(file) in said
    assert "Not a directory" in said or "File exists" in said


def test_a_run_whose_home_cannot_be_made_says_so(file: Path) -> None:
    words = [*PODIUM, "run", "train_and_promote", "limit=1000"]
    done = subprocess.run(
        words,
        env={**os.environ, "PODIUM_HOME": str(file)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(file) in done.stderr
    assert "PODIUM_HOME" in done.stderr


def test_too_little_memory_is_said_in_a_sentence() -> None:
    greedy = "import podium.cli as cli; cli.app.invoke = lambda _: bytearray(1 << 62); cli.main()"
    words = [sys.executable, "-c", greedy, "models", "list"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: there is not enough memory\nhint: ")


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PODIUM, "run", "--list"], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writing)
    said = [line for line in done.stderr.splitlines() if not line.endswith("so far")]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize("words", [["runs", "list"], ["runs", "list", "--json"]])
def test_a_closed_output_is_no_failure(words: list[str]) -> None:
    closed = f"exec {shlex.join([*PODIUM, *words])} >&-"
    done = subprocess.run(["sh", "-c", closed], capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if not line.endswith("so far")]
    assert (done.returncode, said) == (0, [])


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json({"auc": float("nan"), "range": [float("-inf"), 1.5], "file": Path("a")})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "auc": None,
        "range": [None, 1.5],
        "file": "a",
    }


def test_a_path_with_blanks_and_percent_signs_is_used_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.storage import connect
    from podium.system.settings import Settings

    home = tmp_path / "a%20b c#d?é"
    monkeypatch.setenv("PODIUM_HOME", str(home))
    connect(Settings.from_environment().storage).put("key", b"bytes")
    assert (home / "store" / "key").read_bytes() == b"bytes"


def test_of_a_long_loop_the_last_outputs_are_listed(tmp_path: Path) -> None:
    from podium.runner.outcome import show

    steps = {f"square.{item}": {"Output": item * item} for item in range(300)}
    run = tmp_path / "20261130-155700-d9bd"
    said = show({"step_outputs": steps, "outputs": {"total": 7}, "directory": str(run)})
    first, *listed, total, path = said.splitlines()
    assert "260 earlier ones" in first
    assert f"podium runs show {run.name} --json" in first
    assert [line.split()[0] for line in listed] == [f"square.{item}" for item in range(260, 300)]
    assert total.split() == ["total", "7"]
    assert path.split()[0] == "run"


def test_an_output_of_several_lines_is_listed_on_one(tmp_path: Path) -> None:
    from podium.runner.outcome import show

    text = "first\nsecond\x1b[31m"
    said = show(
        {"step_outputs": {"a": {"Output": text}}, "outputs": {}, "directory": str(tmp_path)}
    )
    assert said.splitlines()[0].split() == ["a", "Output", "first", "second"]


def test_a_finished_run_names_the_model_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.runner.outcome import show

    monkeypatch.chdir(tmp_path)
    store = f"file://{quote(str(tmp_path / 'my work' / 'store'))}"
    decision = {"model_name": "mnist", "outcome": "promoted", "version": "v1", "reasons": []}
    test = {"metrics": {"accuracy": 0.5, "log_loss": 1.0}, "count": 10}
    places = {
        "report": str(tmp_path / "report.html"),
        "directory": str(tmp_path / "run"),
        "storage": store,
    }
    text = show(
        {
            "sweep": None,
            "metric": {"name": "accuracy"},
            "candidates": [],
            "test": test,
            "decision": decision,
            **places,
        }
    )
    assert "  model   my work/store/models/mnist/versions/v1" in text.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["models", "list"], ""),
        (["storage", "check", "here", "--create"], "donn%C3%A9es/here"),
        (["doctor", "é.log"], "é.log"),
    ],
)
def test_a_locale_without_letters_beyond_ascii_takes_every_directory(
    tmp_path: Path, words: list[str], expected: str
) -> None:
    place = tmp_path / "données"
    place.mkdir()
    (place / "é.log").write_text("2026-01-02T03:04:05Z accuracy=0.5\n")
    plain = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PODIUM_HOME": str(place / "home"),
    }
    command = [sys.executable, "-c", "from podium.cli import main; main()", *words]
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, **plain},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert expected in done.stdout.decode()
