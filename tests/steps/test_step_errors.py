"""How the process of a step says what the machine refuses."""

import subprocess
import sys

import pytest

STEP = """
import errno, os
from podium.steps.process import step_process
with step_process({"storage": "file:///tmp"}):
    raise SOMETHING
"""


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'model.onnx')", "model.onnx: No space left on device"),
        ("MemoryError('Unable to allocate 3 GiB')", "there is not enough memory: Unable to allocate 3 GiB"),
    ],
)  # fmt: skip
def test_a_step_without_room_ends_with_a_sentence(raised: str, said: str) -> None:
    words = [sys.executable, "-c", STEP.replace("SOMETHING", raised)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {said}\nhint: "), done.stderr


@pytest.mark.parametrize(
    ("raised", "hint"),
    [
        ("open('a' * 300, 'w')", "choose a shorter name"),
        ("open('/')", "`ls -la /` shows what is there"),
        ("open('/etc/passwd/a')", "check the path: a part of it is a file"),
        ("OSError(errno.EMFILE, os.strerror(errno.EMFILE))", "let a process open more files: `ulimit -n`"),
        ("OSError(errno.EROFS, os.strerror(errno.EROFS), 'a/b c')", "choose a directory that can be written"),
        ("OSError(errno.EACCES, os.strerror(errno.EACCES), 'a b/c')", "`ls -la 'a b'` shows"),
        ("OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), 'a b/c')", "delete what is not needed"),
    ],
)  # fmt: skip
def test_a_hint_fits_what_the_machine_refuses(raised: str, hint: str) -> None:
    words = [sys.executable, "-c", STEP.replace("SOMETHING", raised)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert f"\nhint: {hint}" in done.stderr
    assert "df -h" not in done.stderr


def test_a_network_error_is_not_called_a_full_disk() -> None:
    raised = "ConnectionRefusedError(errno.ECONNREFUSED, 'Connection refused')"
    words = [sys.executable, "-c", STEP.replace("SOMETHING", raised)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "free space" not in done.stderr
    assert "ConnectionRefusedError" in done.stderr
