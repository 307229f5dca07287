"""A directory becomes an archive: the same one each time, with nothing in it that is not code."""

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from podium.code import bundle
from podium.code.bundle import pack
from podium.code.reference import Code
from podium.errors import InvalidInput
from podium.storage import connect


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project that is not in a git checkout."""
    root = tmp_path / "project"
    (root / "lib").mkdir(parents=True)
    (root / "train.py").write_text("import lib.net\n")
    (root / "lib/net.py").write_text("WIDTH = 8\n")
    (root / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (root / "run.sh").chmod(0o775)
    return root


def entries(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {entry.name: entry for entry in archive}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_the_same_files_make_the_same_archive(project: Path, tmp_path: Path) -> None:
    first = pack(project)
    copy = tmp_path / "elsewhere"
    shutil.copytree(project, copy)
    for file in copy.rglob("*"):
        os.utime(file, (1e9, 1e9))
    (copy / "lib/net.py").chmod(0o600)
    assert pack(copy) == first
    assert first.files == 3
    (copy / "train.py").write_text("import lib.net \n")
    assert pack(copy).digest != first.digest


def test_an_archive_holds_nothing_of_this_machine(project: Path) -> None:
    for entry in entries(pack(project).content).values():
        assert (entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname) == (0, 0, 0, "", "")
        assert entry.mode == (0o755 if entry.name == "run.sh" else 0o644)


def test_what_is_not_code_is_left_out(project: Path) -> None:
    for name in (
        "__pycache__/a.pyc",
        ".venv/bin/python",
        "podium-work/runs/x",
        ".env",
        "node_modules/a.js",
        ".git/HEAD",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    assert sorted(entries(pack(project).content)) == ["lib/net.py", "run.sh", "train.py"]


def test_a_checkout_that_git_does_not_read_is_not_packed(project: Path) -> None:
    git(project, "init", "-q")
    (project / ".gitignore").write_text("*.csv\n")
    (project / "people.csv").write_text("name\n")
    (project / ".git/config").write_text("[")
    with pytest.raises(InvalidInput, match=r"git cannot say which files .* it ignores.*bad config"):
        pack(project)


def test_what_git_ignores_is_left_out(project: Path) -> None:
    git(project, "init", "-q")
    (project / ".gitignore").write_text("*.csv\nbuild/\n")
    (project / "build").mkdir()
    for name in ("data.csv", "build/out.o", "new.py", "größe.py"):
        (project / name).write_text("x")
    git(project, "add", "run.sh", "lib")
    (project / "lib/net.py").unlink()
    expected = [".gitignore", "größe.py", "new.py", "run.sh", "train.py"]
    assert sorted(entries(pack(project).content)) == sorted(expected), (
        "a deleted file is no longer there"
    )
    git(project, "init", "-q", "part")
    (project / "part/inner.py").write_text("x")
    assert "part/inner.py" in entries(pack(project).content)
    (project / "build/only.py").write_text("x")
    with pytest.raises(InvalidInput, match="git ignores all of it"):
        pack(project / "build")


def test_links_inside_stay_links(project: Path) -> None:
    (project / "lib/again.py").symlink_to(project / "train.py")
    (project / "same").symlink_to("lib")
    found = entries(pack(project).content)
    assert {name: entry.linkname for name, entry in found.items() if entry.issym()} == {
        "lib/again.py": "../train.py",
        "same": "lib",
    }


def test_a_link_to_itself_is_refused(project: Path) -> None:
    (project / "again").symlink_to("again")
    with pytest.raises(InvalidInput, match=r"the link .*again leads to itself"):
        pack(project)


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "nowhere/../../outside"])
def test_links_out_of_the_directory_are_refused(project: Path, target: str) -> None:
    (project / "away").symlink_to(target)
    with pytest.raises(InvalidInput, match=r"the link .*away leads out of"):
        pack(project)


def test_too_much_is_refused_by_the_largest_files(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 1 << 20)
    (project / "data.bin").write_bytes(b"x" * (1 << 20))
    with pytest.raises(InvalidInput, match=r"the largest files: data\.bin \(1\.0 MB\), ") as caught:
        pack(project)
    assert ".gitignore" in str(caught.value.hint)


def test_too_many_files_are_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST_FILES", 2)
    with pytest.raises(InvalidInput, match="holds 3 files, but code has at most 2"):
        pack(project)


def test_a_missing_or_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no directory"):
        pack(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="holds no code"):
        pack(tmp_path / "empty")


def test_the_same_code_is_stored_once(project: Path, tmp_path: Path) -> None:
    packed, url = pack(project), str(tmp_path / "store")
    code = packed.store(url)
    assert code == Code.parse(f"file://{tmp_path}/store/code/{packed.digest}.tar.gz")
    before = connect(url).head(code.key)
    assert packed.store(url) == code
    assert connect(url).head(code.key) == before
    connect(url).put(code.key, b"damaged")
    assert connect(packed.store(url).storage).get(code.key) == packed.content


@pytest.mark.parametrize(
    "uri", ["s3://a/code/abc.tar.gz", "src", f"{'0' * 64}.tar.gz", f"s3://a/{'0' * 64}.tar.gz"]
)
def test_another_uri_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInput, match="code is <storage>/code/<sha256>"):
        Code.parse(uri)
