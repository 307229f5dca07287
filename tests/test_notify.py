"""Notifications: a real HTTP server and real commands get what they should, and failures are warnings."""

import json
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from webhooks import webhook

from podium.cli import app, notify
from podium.cli.notify import Notice, Notifier, _Command, _Webhook, parse_target
from podium.errors import Failed, InvalidInput


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any]]]:
    """A webhook's URL, and what it got."""
    with webhook() as listening:
        yield listening


@pytest.fixture
def reader(tmp_path: Path) -> tuple[str, Path]:
    """A command that keeps its stdin, and the file."""
    (tmp_path / "keep.py").write_text("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())")
    return (
        f"{shlex.quote(sys.executable)} {tmp_path / 'keep.py'} {tmp_path / 'got'}",
        tmp_path / "got",
    )


def job(tmp_path: Path, *command: str) -> str:
    """Write a Job to a file."""
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "any", "command": list(command)}],
    }
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
                "spec": {"backoffLimit": 0, "template": {"spec": spec}}}  # fmt: skip
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    return str(tmp_path / "job.yaml")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_webhook_and_command_get_the_same_json(
    hook: tuple[str, list[Any]], reader: tuple[str, Path], tmp_path: Path
) -> None:
    done = run("job", "run", job(tmp_path, "true"), "--notify", hook[0], "--notify", reader[0])
    assert done.exit_code == 0, done.stderr
    ((kind, body),) = hook[1]
    assert kind == "application/json"
    assert body == json.loads(reader[1].read_text())
    assert body == {
        "text": "podium: job j succeeded", "event": "end", "run": "j", "pipeline": None, "status": "succeeded",
        "model": None, "version": None, "metrics": {}, "report": None,
    }  # fmt: skip


def test_a_failing_job_is_reported_as_a_failure(
    hook: tuple[str, list[Any]], tmp_path: Path
) -> None:
    done = run("job", "run", job(tmp_path, "false"), "--notify", hook[0])
    assert isinstance(done.exception, Failed)
    ((_, body),) = hook[1]
    assert (body["event"], body["status"]) == ("failure", "failed")
    assert body["text"].startswith("podium: job j failed: Job j failed")


def test_a_run_that_never_began_is_reported_too(hook: tuple[str, list[Any]]) -> None:
    done = run("run", "train_and_promote", "epochs=-2", "--notify", hook[0])
    assert isinstance(done.exception, InvalidInput)
    ((_, body),) = hook[1]
    assert (body["event"], body["run"]) == ("failure", None)
    assert "epochs" in body["text"]


def test_a_failed_notification_is_a_warning_without_the_url(
    hook: tuple[str, list[Any]], tmp_path: Path
) -> None:
    targets = [
        f"{hook[0]}/500?token=secret",
        "http://127.0.0.1:1/secret",
        f"{hook[0]}/302",
        "false",
    ]
    done = run(
        "job",
        "run",
        job(tmp_path, "true"),
        *(word for target in targets for word in ("--notify", target)),
    )
    assert done.exit_code == 0
    warnings = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("warning: no notification was sent: ")
    ]
    assert len(warnings) == 4
    assert "500" in warnings[0]
    assert "127.0.0.1 does not answer" in warnings[1]
    assert "302" in warnings[2]
    assert "false ended with exit code 1" in warnings[3]
    assert "secret" not in done.stderr
    assert len(hook[1]) == 2  # the redirect is not followed


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("file:///etc/passwd", "begins with http:// or https://"),
        ("ftp://host/x", "begins with http:// or https://"),
        ("http://[host/x", "begins with http:// or https://"),
        ("http:///x", "names a host"),
        ("http://h:99999/secret", "a number from 1 to 65535"),
        ("http://h:port/secret", "a number from 1 to 65535"),
        ("http://h:0/secret", "port 0"),
        ("http://h/se\tcret", "the character '\\t'"),
        ("https://hé/secret", "the character 'é'"),
        ("no-such-command --x", "there is no command 'no-such-command'"),
        ("'", "is not a command line"),
    ],
)
def test_a_wrong_target_is_refused_before_anything_runs(
    target: str, message: str, tmp_path: Path
) -> None:
    refused: Any = run("job", "run", job(tmp_path, "true"), "--notify", target).exception
    assert isinstance(refused, InvalidInput)
    assert message in refused.message
    assert "secret" not in str(refused)
    assert not (tmp_path / "podium-home").exists()


def test_what_does_not_run_is_not_reported(tmp_path: Path, hook: tuple[str, list[Any]]) -> None:
    (tmp_path / "train.py").write_text("print('accuracy=1')")
    words = (
        str(tmp_path / "train.py"),
        "--lr",
        "0.1..1",
        "--no-run",
        "--save",
        str(tmp_path / "s.yaml"),
    )
    assert isinstance(run("tune", *words, "--notify", hook[0]).exception, InvalidInput)
    assert not hook[1]
    assert run("tune", *words).exit_code == 0


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection by a function, below HTTP; yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/secret"


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(1000):
        connection.sendall(b"X-%d: y\r\n" % number)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (drip, "nothing whole came within 0.6 s"),
        (
            lambda connection: connection.sendall(b"secret\r\n\r\n"),
            "an answer that is no HTTP (BadStatusLine)",
        ),
        (lambda connection: None, "does not answer: "),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 500 " + b"x" * 300 + b"\r\n\r\n"),
            "answered 500 xxx",
        ),
    ],
    ids=["drips", "no HTTP", "hangs up", "long reason"],
)
def test_no_webhook_keeps_or_fails_a_command(
    answer: Callable[[socket.socket], None],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notify, "ANSWER", 0.6)
    with answering(answer) as url:
        done = run("job", "run", job(tmp_path, "true"), "--notify", url)
    assert done.exit_code == 0
    assert "warning: no notification was sent: 127.0.0.1 " in done.stderr
    assert expected in done.stderr
    assert "secret" not in done.stderr


def test_a_target_is_a_url_or_a_command() -> None:
    assert parse_target("https://hooks.example/T0/B0") == _Webhook("https://hooks.example/T0/B0")
    assert parse_target("sh -c 'cat > x://y'") == _Command(("sh", "-c", "cat > x://y"))


def test_a_command_that_hangs_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notify, "END", 0.3)
    slow = _Command(("sh", "-c", f"(sleep 1; touch {tmp_path}/late) & wait"))
    with Notifier((slow,)).about("run"):
        pass
    said = capsys.readouterr().err
    assert said == "warning: no notification was sent: sh did not end within 0 s\n"
    time.sleep(1.2)
    assert not (tmp_path / "late").exists()


def test_a_new_champion_is_reported_with_its_metrics() -> None:
    notice = Notice(what="run", run="r1", pipeline="tune_and_promote", event="champion", model="mnist", version="r1",
                    metrics={"accuracy": 0.98765})  # fmt: skip
    assert notice.text == (
        "podium: run r1 of tune_and_promote succeeded: mnist r1 is the new champion, accuracy 0.9877"
    )


def test_credentials_in_a_reason_are_left_out(hook: tuple[str, list[Any]]) -> None:
    notifier = Notifier((parse_target(hook[0]),))
    with pytest.raises(Failed), notifier.about("run"):
        raise Failed("https://me:word@host/x does not answer\n  a log with secrets")
    assert hook[1][0][1]["text"] == "podium: run failed: https://host/x does not answer"
