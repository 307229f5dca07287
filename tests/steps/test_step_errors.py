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


def test_a_network_error_is_not_called_a_full_disk() -> None:
    raised = "ConnectionRefusedError(errno.ECONNREFUSED, 'Connection refused')"
    words = [sys.executable, "-c", STEP.replace("SOMETHING", raised)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "free space" not in done.stderr
    assert "ConnectionRefusedError" in done.stderr
