"""Datasets larger than the memory a process may take: RLIMIT_DATA counts all private memory that can be written."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

COUNT, SIDE = 24_000, 100
"""Pictures of 30,000 bytes: 720 MB."""
LIMIT = 500 << 20

PREPARE = """
import sys
from podium.steps.prepare_data import DataSettings, prepare_data
prepare_data(DataSettings(dataset=f"npz:{sys.argv[1]}/raw"), f"{sys.argv[1]}/prepared")
"""
READ = """
import sys
import numpy as np
from podium.data import artifact
total = 0
for name in artifact.PARTS:
    part = artifact.load(f"{sys.argv[1]}/prepared", name)
    for start in range(0, len(part), 100):
        total += int(part.inputs["images"][start : start + 100].sum(dtype=np.int64))
print(total)
"""
GREEDY = """
import sys
import numpy as np
from podium.data import artifact
np.array(artifact.load(f"{sys.argv[1]}/prepared", "train").inputs["images"])
"""


def run(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))

    command = [sys.executable, "-c", program, str(directory)]
    return subprocess.run(command, preexec_fn=confine, capture_output=True, text=True, timeout=300)


def test_data_larger_than_memory_is_prepared_and_read(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    images = np.lib.format.open_memmap(
        tmp_path / "raw" / "images.npy", mode="w+", dtype=np.uint8, shape=(COUNT, SIDE, SIDE, 3)
    )
    rng, total = np.random.default_rng(0), 0
    for start in range(0, COUNT, 500):
        images[start : start + 500] = rng.integers(0, 256, (500, SIDE, SIDE, 3), np.uint8)
        total += int(images[start : start + 500].sum(dtype=np.int64))
    np.save(tmp_path / "raw" / "label.npy", np.arange(COUNT) % 10)
    del images

    prepared = run(PREPARE, tmp_path)
    assert prepared.returncode == 0, prepared.stderr
    read = run(READ, tmp_path)
    assert read.stdout == f"{total}\n", read.stderr
    assert "MemoryError" in run(GREEDY, tmp_path).stderr, "the limit limits"
