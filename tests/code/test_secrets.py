"""Credentials stay out of packed code: by their names with a line that says so, by what they hold with a refusal."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_bundle import entries, git

from podium.code.bundle import _is_secret, _refuse_secrets, pack
from podium.errors import InvalidInput

SECRET = (
    ".env", ".env.local", "prod.env", ".netrc", ".aws/credentials", ".kube/config", "id_rsa", "keys/server.pem",
    ".npmrc", ".pypirc", ".git-credentials", "secrets.json", ".bash_history", ".python_history", ".ssh/known_hosts",
    "Secrets.yaml",
)  # fmt: skip
TOKENS = {
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "an access key of AWS": "AKIA" + "Q3EGZ7VNWKQ2JX5M",
    "a token of GitHub": "ghp_" + "a1B2" * 9,
    "a token of Hugging Face": "hf_" + "aB" * 17,
    "an API key": "sk-proj-" + "a1_B" * 12,
    "a JSON web token": "eyJhbGciOiJSUzI1NiJ9." + "eyJpc3MiOiJrdWJlcm5ldGVz." + "c2lnbmF0dXJl" * 3,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with code and many files that hold credentials."""
    root = tmp_path / "project"
    for name in ("train.py", *SECRET):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    return root


@pytest.mark.parametrize("checkout", [True, False], ids=["git", "plain"])
def test_files_that_hold_credentials_are_left_out_and_named(
    project: Path, checkout: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if checkout:
        git(project, "init", "-q")
        git(project, "add", "--all")
    assert sorted(entries(pack(project).content)) == ["train.py"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        "left out of the code, as files that hold credentials: .aws/credentials, .bash_history, .env, "
        in line
    )
    assert "and 6 more" in line


def test_names_of_code_are_no_secrets() -> None:
    for name in (
        "train.py",
        "environment.py",
        "secrets.py",
        "credentials.py",
        "keys.py",
        "history.csv",
        "tokenizer.json",
    ):
        assert not _is_secret(name)


def test_what_the_line_says_packs_the_files(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack(project)
    command = caplog.messages[0].partition("to pack them: ")[2]
    show = "from pathlib import Path; from podium.code.bundle import pack; print(pack(Path('.')).files)"
    words = ["sh", "-c", f'{command}; exec "$@"', "sh", sys.executable, "-c", show]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{len(SECRET) + 1}\n", "")


@pytest.mark.parametrize(("what", "token"), TOKENS.items(), ids=TOKENS)
def test_a_file_with_a_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, token: str
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/settings.py").write_text(f"WIDTH = 8\nKEY = '{token}'\n")
    with pytest.raises(
        InvalidInput, match=rf"lib/settings\.py holds what looks like {what} \(line 2\)"
    ) as caught:
        pack(tmp_path)
    assert token not in str(caught.value)
    assert str(caught.value.hint).endswith("export PODIUM_CODE_ALLOW=lib/settings.py")
    monkeypatch.setenv("PODIUM_CODE_ALLOW", "other.py:lib/settings.py")
    assert pack(tmp_path).files == 1


def test_looking_for_tokens_takes_no_time() -> None:
    numbers = os.urandom(32 << 20)
    started = time.perf_counter()
    _refuse_secrets({"numbers.bin": numbers})
    assert time.perf_counter() - started < 4
