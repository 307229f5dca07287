"""``python -m podium.code``: what is fetched is what was packed, and the process becomes the command."""

import gzip
import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.code.__main__ import unpack
from podium.code.bundle import pack
from podium.code.reference import Code
from podium.errors import Damaged
from podium.storage import connect

TRAIN = """\
import os, signal, sys, time
import lib.net
print("training", lib.net.WIDTH, os.getpid(), *sys.argv[1:], flush=True)
open("written.txt", "w").write("here")
if "wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("ready", flush=True)
    time.sleep(60)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "lib").mkdir(parents=True)
    (root / "train.py").write_text(TRAIN)
    (root / "lib/net.py").write_text("WIDTH = 8\n")
    (root / "run.sh").write_text('#!/bin/sh\nexec python train.py "$@"\n')
    (root / "run.sh").chmod(0o755)
    return root


@pytest.fixture
def code(project: Path, tmp_path: Path) -> Code:
    return pack(project).store(str(tmp_path / "store"))


def command(code: Code, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    return [
        sys.executable,
        "-P",
        "-m",
        "podium.code",
        code.uri,
        "--digest",
        code.digest,
        *options,
        "--",
        *words,
    ]


def run(
    code: Code, *words: str, cwd: Path, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        command(code, *words, options=options),
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_command_runs_in_the_code(code: Code, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = run(code, "./run.sh", "3", "two words", cwd=work)
    assert done.returncode == 3, done.stderr
    assert done.stdout.split()[:2] == ["training", "8"]
    assert done.stdout.strip().endswith("3 two words")
    (folder,) = work.glob("code-*")
    assert (folder / "written.txt").read_text() == "here"
    assert "8" in run(code, "python", "-c", "import lib.net; print(lib.net.WIDTH)", cwd=work).stdout


def test_signals_reach_the_command_itself(code: Code, tmp_path: Path) -> None:
    words = command(code, sys.executable, "train.py", "0", "wait")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[2] == str(process.pid)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 7


def test_code_comes_from_a_bucket(
    project: Path, new_bucket: Callable[[str], str], tmp_path: Path
) -> None:
    team = f"{new_bucket('moto')}/team"
    stored = pack(project).store(team)
    assert stored.uri.startswith(f"{team}/code/")
    assert run(stored, "python", "train.py", "4", cwd=tmp_path).returncode == 4


def test_other_bytes_are_refused(code: Code, tmp_path: Path) -> None:
    connect(code.storage).put(code.key, b"something else")
    done = run(code, "python", "train.py", "0", cwd=tmp_path)
    assert done.returncode == 1
    assert f"not {code.digest}" in done.stderr
    connect(code.storage).delete(code.key)
    done = run(code, "python", "train.py", "0", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert (done.returncode, list(tmp_path.glob("code-*"))) == (1, [])


def test_a_missing_program_is_named(code: Code, tmp_path: Path) -> None:
    done = run(code, "./nothing.sh", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: there is no program ./nothing.sh",
    )


def archive(*entries: tarfile.TarInfo) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as written:
        for entry in entries:
            written.addfile(entry, io.BytesIO(b"x" * entry.size))
    return raw.getvalue()


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 1
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size if kind == tarfile.REGTYPE else 0
    return made


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../outside.py")],
        [entry("a/../../outside.py")],
        [entry("way", tarfile.SYMTYPE, "/etc"), entry("way/outside.py")],
        [entry("way", tarfile.LNKTYPE, "../secret")],
        [entry("way/outside.py"), entry("way", tarfile.SYMTYPE, "lib")],
        [entry("pipe", tarfile.FIFOTYPE)],
        [entry("device", tarfile.CHRTYPE)],
    ],
    ids=lambda entries: f"{entries[0].name} {entries[0].linkname}".strip(),
)
def test_nothing_is_written_outside(tmp_path: Path, entries: list[tarfile.TarInfo]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret").write_text("mine")
    with pytest.raises(Damaged, match=r"would write (outside of its directory|through a link)"):
        unpack(archive(*entries), folder, "it")
    assert not list(folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "secret"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry("way", tarfile.SYMTYPE, "..")], "leads out of its directory"),
        ([entry("a/b/up", tarfile.SYMTYPE, "../.."), entry("way", tarfile.SYMTYPE, "a/b/up/..")], "'way', .* out"),
        ([entry("way", tarfile.SYMTYPE, "a/b/up/.."), entry("a/b/up", tarfile.SYMTYPE, "../..")], "'way', .* out"),
        ([entry("way", tarfile.SYMTYPE, "way")], "leads to itself"),
    ],
    ids=["up", "through a link", "through a later link", "circle"],
)  # fmt: skip
def test_a_link_is_followed_before_the_code_runs(
    tmp_path: Path, entries: list[tarfile.TarInfo], expected: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(Damaged, match=expected):
        unpack(archive(*entries), folder, "it")
    assert not folder.exists()


def test_a_name_used_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    twice = [entry("train.py", tarfile.SYMTYPE, "secret"), entry("./train.py")]
    with pytest.raises(Damaged, match=r"holds '\./train\.py' twice"):
        unpack(archive(*twice), tmp_path, "it")
    assert (tmp_path / "secret").read_text() == "mine"


def test_unpacked_code_is_no_setuid_and_not_writable_for_others(tmp_path: Path) -> None:
    open_to_all = entry("run.sh")
    open_to_all.mode = 0o6777
    unpack(archive(open_to_all, entry("lib/net.py")), tmp_path / "in", "it")
    assert (tmp_path / "in/run.sh").stat().st_mode & 0o7777 == 0o755


def test_a_link_below_a_link_is_refused_at_any_depth(tmp_path: Path) -> None:
    inner = [entry("a/way", tarfile.SYMTYPE, "b"), entry("a/way/deep/down/outside.py")]
    with pytest.raises(Damaged, match=r"would write through a link: 'a/way/deep/down/outside.py'"):
        unpack(archive(*inner), tmp_path, "it")


def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path) -> None:
    bomb = tarfile.TarInfo("zeros")
    bomb.size = 2 << 30
    content = gzip.compress(bomb.tobuf())
    with pytest.raises(Damaged, match="more than 20000 files or 64 MiB"):
        unpack(content, tmp_path, "it")
    assert not list(tmp_path.iterdir())
    with pytest.raises(Damaged, match="cannot be unpacked"):
        unpack(b"no archive", tmp_path, "it")


def wheel(folder: Path) -> None:
    """Write a package that pip installs without any index."""
    with zipfile.ZipFile(folder / "tinylib-1.0-py3-none-any.whl", "w") as file:
        file.writestr("tinylib.py", "VALUE = 41\n")
        file.writestr(
            "tinylib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinylib\nVersion: 1.0\n"
        )
        file.writestr(
            "tinylib-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr("tinylib-1.0.dist-info/RECORD", "")


@pytest.mark.whole
def test_requirements_are_installed_beside_the_code(project: Path, tmp_path: Path) -> None:
    wheel(project)
    (project / "requirements.txt").write_text("./tinylib-1.0-py3-none-any.whl\nnumpy\n")
    (project / "main.py").write_text(
        "import numpy, podium.metrics, tinylib\nprint(tinylib.VALUE, numpy.__file__)\n"
    )
    stored = pack(project).store(str(tmp_path / "store"))
    assert "tinylib" in run(stored, "python", "main.py", cwd=tmp_path).stderr
    done = run(stored, "python", "main.py", cwd=tmp_path, options=("--install-requirements",))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("41 ")
    assert str(tmp_path) not in done.stdout, "numpy is the one that was there"


def test_requirements_that_cannot_be_had_fail_with_a_sentence(
    project: Path, code: Code, tmp_path: Path
) -> None:
    done = run(code, "python", "train.py", "0", cwd=tmp_path, options=("--install-requirements",))
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: the code has no requirements.txt",
    )
    (project / "requirements.txt").write_text("./nothing-1.0-py3-none-any.whl\n")
    stored = pack(project).store(str(tmp_path / "store"))
    done = run(stored, "python", "train.py", "0", cwd=tmp_path, options=("--install-requirements",))
    assert "pip could not install requirements.txt" in done.stderr
    assert done.stdout == ""
