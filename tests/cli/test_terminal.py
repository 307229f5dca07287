"""Other people's text on a terminal: shown, never obeyed. Commands run on a real pseudo-terminal."""

import ast
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from terminals import PODIUM, on_terminal

from podium.display.tables import paint, table
from podium.display.text import duration, harmless

pytestmark = pytest.mark.whole

SRC = Path(__file__).parents[2] / "src/podium"
TITLE = "\x1b]0;owned\x07"
EVIL = f"a{TITLE}b\x1b[2Jc\x1b[8md\re\x9b31mf\x08g\u202eh\x1bPq\x1b\\i\x1b"
PROGRESS = ["printf", "\\033]0;owned\\007\\033[2Jsaid\\033[31m red\\n"]


def job(*words: str, name: str = "job") -> dict[str, Any]:
    containers = [{"name": "main", "image": "any", "command": list(words)}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local cluster with a job that printed escape sequences, and what the terminal got while it ran."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "job.yaml").write_text(yaml.safe_dump(job(*PROGRESS)))
    (folder / "seen").write_text(
        on_terminal("job", "run", str(folder / "job.yaml"), "--dir", str(folder / "dir"))
    )
    return folder


def test_escape_sequences_and_controls_are_removed_whole() -> None:
    assert harmless(EVIL) == "abcdefghi"
    assert (
        harmless("tab\tand\nlines\r\nstay, größer ✓ 日本") == "tab\tand\nlines\nstay, größer ✓ 日本"
    )
    assert harmless("file \udcff") == "file \ufffd"
    assert harmless("caf\udcc3\udca9") == "café"
    assert harmless("\udcc2\udc9b2Jx") == "x"
    assert harmless("\ud800x").endswith("x")


def test_an_unfinished_sequence_hides_nothing() -> None:
    assert harmless("\x1b]0;all that\nfollows stays") == "0;all that\nfollows stays"
    assert harmless("\x1b[") == ""


def test_a_job_on_a_terminal_sets_no_title(cluster: Path) -> None:
    seen = (cluster / "seen").read_text()
    assert "said red" in seen
    assert "\x1b]" not in seen
    assert "\x1b[2J" not in seen


def test_logs_are_harmless_in_a_file_too(cluster: Path, tmp_path: Path) -> None:
    words = ["job", "logs", "job", "-f", "--dir", str(cluster / "dir")]
    assert on_terminal(*words) == "said red\r\n"
    file = tmp_path / "log"
    with file.open("wb") as stdout:
        assert on_terminal(*words, stdout=stdout.fileno()) == ""
    assert file.read_text() == "said red\n"


def test_a_jobs_log_in_a_file_bypasses_the_live_table(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(*PROGRESS)))
    with (tmp_path / "log").open("wb") as stdout:
        words = ["job", "run", str(tmp_path / "job.yaml"), "--dir", str(tmp_path / "dir")]
        seen = on_terminal(*words, stdout=stdout.fileno())
    assert (tmp_path / "log").read_text() == "said red\n"
    assert "REPLICA" in seen


def test_a_reason_on_a_terminal_is_harmless(tmp_path: Path) -> None:
    """A status that somebody else wrote: its name, state and message reach tables and sentences."""
    place = tmp_path / "dir"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("true")))
    on_terminal("job", "run", str(file), "--dir", str(place))
    (written,) = place.rglob("object.json")
    stored = json.loads(written.read_text())
    for condition in stored["status"]["conditions"]:
        condition["message"] = EVIL
    written.write_text(json.dumps(stored))
    seen = on_terminal("job", "status", "job", "--dir", str(place))
    assert "abcdefghi" in seen
    assert "\x1b]" not in seen
    assert (
        "owned"
        in json.loads(on_terminal("job", "status", "job", "--dir", str(place), "--json"))["message"]
    )


@pytest.mark.parametrize(
    "words",
    [
        (f"do{TITLE}cter",),
        ("models", "list", f"no{TITLE}model"),
        ("job", "run", f"no{TITLE}file"),
        ("run", f"max{TITLE}_trials=3"),
        ("doctor", f"--no{TITLE}option"),
        ("experiment", "run", f"ran{TITLE}dom"),
    ],
    ids=lambda words: words[0],
)
def test_an_error_on_a_terminal_is_harmless(words: tuple[str, ...]) -> None:
    seen = on_terminal(*words)
    assert "rror: " in seen
    assert "\x1b]" not in seen
    assert "Traceback" not in seen


def test_cells_of_tables_are_harmless_and_on_one_line() -> None:
    drawn = table(("NAME", "REASON"), [[EVIL, f"one\ntwo{TITLE}"]])
    assert drawn.splitlines()[1] == "abcdefghi  one two"
    assert "\x1b" not in paint([f"[bold]x[/] {TITLE}y"])


def test_durations_are_in_seconds_or_minutes() -> None:
    assert (duration(3.4), duration(754)) == ("3.4 s", "12 min 34 s")


def prints(tree: ast.AST) -> list[str]:
    """Name every way past podium.display.terminal in a module."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = [ast.unparse(entry) for entry in node.args]
            if called in (
                "print",
                "Console",
                "click.echo",
                "click.secho",
                "click.style",
                "logging.StreamHandler",
            ):
                found.append(called)
            if called in ("sys.stdout.write", "sys.stderr.write") or {
                "sys.stdout",
                "sys.stderr",
            } & set(given):
                found.append(called)
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "click"
            and {"echo", "secho"} & {alias.name for alias in node.names}
        ):
            found.append("from click import")
    return found


def test_nothing_prints_but_through_the_terminal_module() -> None:
    rooms = [SRC / name for name in ("cli", "report", "server", "doctor", "registry")]
    files = [*(file for room in rooms for file in room.rglob("*.py")), SRC / "runner/progress.py",
             SRC / "runner/outcome.py", *SRC.glob("*.py")]  # fmt: skip
    past = {
        file: prints(ast.parse(file.read_text())) for file in files if file.name != "terminal.py"
    }
    assert {file: found for file, found in past.items() if found} == {}
    assert prints(ast.parse((SRC / "display/terminal.py").read_text())), (
        "the search itself finds what there is"
    )


def test_a_second_interrupt_kills_at_once_and_says_so(tmp_path: Path) -> None:
    stubborn = job(
        "sh", "-c", f"trap '' TERM; echo ready; while sleep 0.1; do date > {tmp_path}/alive; done"
    )
    stubborn["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 60
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(stubborn))
    words = [*PODIUM, "job", "run", str(tmp_path / "job.yaml"), "--dir", str(tmp_path / "dir")]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert process.poll() is None, "the job has a minute to end"
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert said.endswith("interrupted again: everything still running was killed\n")
    time.sleep(0.3)
    (tmp_path / "alive").unlink()
    time.sleep(0.3)
    assert not (tmp_path / "alive").exists()
