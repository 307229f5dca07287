"""Run PyTorch's MNIST example for comparison: prepare the files it reads, parse the lines it prints."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from podium.data import artifact

EPOCHS = 14  # at most, on the way to an accuracy: from there on its learning rate is below a hundredth of the first


def lines_of(command: list[str], cwd: Path, **env: str) -> Iterator[tuple[float, str]]:
    """Yield (seconds since start, line) while a program runs; it is killed when nobody listens any more."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=cwd, env={**os.environ, **env}, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            yield time.perf_counter() - begin, line
        if process.wait():
            sys.exit(f"failed: {' '.join(command)}")
    finally:
        process.kill()
        process.wait()


def write_idx(data: Path, cwd: Path) -> None:
    """Give the script the idx files it reads: 60,000 images (train and validation) and the test part."""
    parts = {name: artifact.load(data, name) for name in artifact.PARTS}
    files = {"train": ("train", "validation"), "t10k": ("test",)}
    raw = cwd / "datasets" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, sources in files.items():
        images = np.concatenate([parts[source].inputs["images"] for source in sources])
        labels = np.concatenate([parts[source].target for source in sources])
        for array, kind in ((images, "images-idx3"), (labels, "labels-idx1")):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (raw / f"{name}-{kind}-ubyte").write_bytes(head + array.tobytes())


def command(script: Path, epochs: int, seed: int = 1) -> list[str]:
    """Return how the script is called; everything else is as it comes."""
    return [
        sys.executable,
        "-W",
        "ignore",
        str(script),
        "--no-cuda",
        "--epochs",
        str(epochs),
        "--seed",
        str(seed),
    ]


def epochs_to(
    accuracy: float, script: Path, cwd: Path, seed: int, most: int = EPOCHS
) -> list[tuple[float, float]]:
    """Run the script until an epoch of it ends with this test accuracy, which it measures and prints itself.

    Args:
        accuracy: To reach; above 1 to run all epochs.
        script: The tutorial's mnist.py.
        cwd: Where its files are.
        seed: Its --seed.
        most: Its --epochs.

    Returns:
        For every epoch the seconds from the start of the process, and the accuracy.
    """
    seen: list[tuple[float, float]] = []
    for moment, line in lines_of(command(script, most, seed), cwd):
        if match := re.search(r"accuracy=(\d\.\d+)", line):
            seen.append((moment, float(match[1])))
            print(
                f"baseline, seed {seed}, epoch {len(seen)}: {match[1]} after {moment:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            if seen[-1][1] >= accuracy:
                break
    return seen
