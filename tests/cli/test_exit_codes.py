"""The table of exit codes in docs/commands.md, held against every command that takes a file."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from terminals import PODIUM

from podium.cli import app, main

FILES = {
    "run": ["experiment=no.yaml"],
    "compile": ["experiment=no.yaml"],
    "upload": ["no.yaml"],
    "schedule plan": ["no.yaml"],
    "schedule apply": ["no.yaml"],
    "job run": ["no.yaml"],
    "experiment run": ["no.yaml"],
    "experiment render": ["no.yaml"],
    "doctor": ["no.yaml"],
    "migrate": ["no.yaml"],
    "storage put": ["no.csv", "s3://bucket"],
    "models upload": ["no-model", "no-model"],
    "predict": ["no.png"],
    "predict --file": ["no.onnx", "no.png"],
}
SERVER = {
    "upload", "submit", "runs list", "runs logs", "runs show", "runs stop", "schedule plan", "schedule apply",
    "schedule list", "schedule pause", "schedule delete", "upgrade",
}  # fmt: skip


def typed(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int | str | None, str, str]:
    monkeypatch.setattr("sys.argv", ["podium", *words])
    code: int | str | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


@pytest.mark.parametrize("command", FILES)
def test_a_missing_file_is_wrong_input_for_every_command(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = typed([*command.split(), *FILES[command]], monkeypatch, capsys)
    assert (code, out) == (2, ""), err
    assert FILES[command][0].rpartition("=")[2] in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_every_argument_that_is_a_file_is_among_them() -> None:
    takes = {
        path
        for path, command in commands(app)
        for parameter in command.params
        if isinstance(parameter, click.Argument)
        and (
            isinstance(parameter.type, click.File)
            or (isinstance(parameter.type, click.Path) and parameter.type.exists)
            or parameter.name in ("source", "files")
        )
    }
    assert takes
    assert takes <= FILES.keys()


@pytest.mark.parametrize("option", ["--host", "--token-file"])
def test_every_server_command_takes_the_options(option: str) -> None:
    takes = {
        path
        for path, command in commands(app)
        if any(option in entry.opts for entry in command.params)
    }
    assert (
        takes - {"mcp", "serve", "models drift", "models export"} == SERVER
    )  # a server itself, what asks that one, and a hub


@pytest.mark.parametrize("command", sorted(SERVER))
def test_a_missing_token_file_is_wrong_input(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = typed([*command.split(), "--token-file", "no", "name"], monkeypatch, capsys)
    assert (code, "'no' does not exist" in err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [["upload", "train_and_promote"], ["submit", "train_and_promote"], ["schedule", "plan", "{}"],
     ["schedule", "list"], ["schedule", "pause", "x"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("host", ["http://127.0.0.1:1", "http://nowhere.invalid:8888", None])
def test_no_server_is_said_in_a_plain_sentence(
    words: list[str], host: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in ("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    # What kubernetes keeps of KUBECONFIG as it was when another test of this process imported it.
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none")
    )
    (tmp_path / "one.yaml").write_text("name: x\npipeline: y\ncron: '@daily'\n")
    given = [word.format(tmp_path) for word in words]
    code, out, err = typed([*given, *(["--host", host] if host else [])], monkeypatch, capsys)
    assert (code, out) == (1, "")
    message, hint = (line for line in err.splitlines() if not line.endswith("so far"))
    assert (host or "http://localhost:80") in message
    assert message.endswith(("Connection refused", "not known", "in name resolution"))
    assert not any(word in err for word in ("Pool", "Errno", "urllib3", "Error(", "Max retries"))
    assert hint.startswith("hint: give --host or set KF_PIPELINES_ENDPOINT")


def test_a_taken_port_is_said_in_a_plain_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, out, err = typed(["ui", "--port", str(port)], monkeypatch, capsys)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"error: port {port} of 127.0.0.1 cannot be listened on: Address already in use",
        "hint: --port takes another, --port 0 a free one",
    ]


def test_a_server_of_something_else_is_reported_in_seconds(tmp_path: Path) -> None:
    serve = [sys.executable, "-c", """if True:
        import http.server
        class Quiet(http.server.SimpleHTTPRequestHandler):
            log_message = lambda *_: None
        with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
            print(server.server_port, flush=True)
            server.serve_forever()
    """]  # fmt: skip
    with subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as web:
        try:
            assert web.stdout is not None
            host = f"http://127.0.0.1:{web.stdout.readline().strip()}"
            podium = [sys.executable, "-P", "-c", "from podium.cli import main; main()"]
            done = subprocess.run([*podium, "schedule", "list", "--host", host], capture_output=True, text=True,
                                  timeout=120, check=False, cwd=tmp_path)  # fmt: skip
        finally:
            web.kill()
    assert done.returncode == 1
    assert (
        f"error: {host} does not answer as a Kubeflow Pipelines server: 404 File not found"
    ) in done.stderr


@pytest.mark.parametrize(
    "host", ["http://[::1", "http://a:b", "http://127.0.0.1:99999", "ftp://a", "http://"]
)
def test_an_address_that_cannot_be_meant_is_wrong_input(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = typed(["schedule", "list", "--host", host], monkeypatch, capsys)
    assert (code, "not a host" in err) == (2, True)


@pytest.mark.parametrize("token", [b"", b"\n", b"\xff\xfe", b"one\ntwo", "größer".encode()])
def test_a_token_that_no_header_holds_is_wrong_input(
    token: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "token").write_bytes(token)
    words = [
        "schedule",
        "list",
        "--host",
        "http://127.0.0.1:1",
        "--token-file",
        str(tmp_path / "token"),
    ]
    code, _, err = typed(words, monkeypatch, capsys)
    assert (code, str(tmp_path / "token") in err) == (2, True), err


def test_a_file_without_pipeline_is_refused_before_any_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text("kind: Job\n")
    words = ["upload", str(tmp_path / "job.yaml"), "--host", "http://127.0.0.1:1"]
    code, _, err = typed(words, monkeypatch, capsys)
    assert (code, "compiled KFP v2 pipeline" in err) == (2, True)


@pytest.mark.parametrize("words", [["runs", "list"], ["models", "list"], ["ui"]], ids=" ".join)
def test_a_working_directory_that_was_removed_is_said(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", *PODIUM, *words],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PODIUM_HOME"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: the working directory was removed\nhint: cd " in done.stderr
