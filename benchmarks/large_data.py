"""Prepare, load and train on a dataset larger than the memory it may take.

    python benchmarks/large_data.py --gigabytes 4 --directory /tmp/large

Each row is a process of its own. Anonymous memory is what a process cannot give back: it is read from /proc every ten
milliseconds. VmHWM also counts pages of mapped files, which the system takes back when it needs them. With --limit, a
process that allocates more dies (RLIMIT_DATA, which counts all private memory that can be written, touched or not).
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import memory

SIDE = 64
"""Pixels of a color picture."""

PROGRAMS = {
    "import numpy and podium.data": """
import podium.data.artifact
""",
    "prepare": """
import sys
from podium.steps.prepare_data import DataSettings, prepare_data
prepare_data(DataSettings(dataset=f"npz:{sys.argv[1]}/raw"), f"{sys.argv[1]}/prepared")
""",
    "load, verify, iterate": """
import sys
import numpy as np
from podium.data import artifact
total = 0
for name in artifact.PARTS:
    part = artifact.load(f"{sys.argv[1]}/prepared", name)
    for start in range(0, len(part), 512):
        total += int(part.inputs["images"][start : start + 512].sum(dtype=np.int64))
assert total > 0
""",
    "inspect": """
import sys
from functools import partial
from podium.data import artifact, look
uri = f"{sys.argv[1]}/prepared"
look.statistics(artifact.describe(uri), partial(artifact.load, uri))
""",
    "import torch": """
import podium.trainer.data
""",
    "shuffle as the trainer does": """
import sys
import torch
from podium.trainer import data
from podium.trainer.config import TrainConfig
dataset = data.load(TrainConfig(data=f"{sys.argv[1]}/prepared", no_cuda=True))
for batch in data.batches(len(dataset.train), 256, data.stream(1, 1)):
    dataset.train.inputs[batch]
""",
}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a process took."""

    seconds: float

    anonymous: float
    """Most anonymous memory at a time, MiB."""

    resident: float
    """VmHWM, MiB."""


def make(directory: Path, gigabytes: float) -> int:
    """Write random pictures and labels as .npy, in blocks; return how many."""
    count = int(gigabytes * 1e9) // (SIDE * SIDE * 3)
    directory.mkdir(parents=True)
    images = np.lib.format.open_memmap(
        directory / "images.npy", mode="w+", dtype=np.uint8, shape=(count, SIDE, SIDE, 3)
    )
    random = np.random.default_rng(1)
    for start in range(0, count, 4096):
        images[start : start + 4096] = random.integers(
            0, 256, images[start : start + 4096].shape, np.uint8
        )
    np.save(directory / "label.npy", random.integers(0, 10, count, np.uint8))
    return count


def measure(program: str, directory: Path, limit: int | None = None) -> Figures:
    """Run a program and watch its memory.

    Args:
        program: Python code.
        directory: Its argument.
        limit: RLIMIT_DATA in MiB.
    """

    def confine() -> None:
        if limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit << 20, limit << 20))

    begin, anonymous, resident = time.perf_counter(), 0.0, 0.0
    command = [sys.executable, "-c", program, str(directory)]
    with subprocess.Popen(command, preexec_fn=confine) as process:
        while process.poll() is None:
            sizes = memory(process.pid)
            anonymous, resident = max(anonymous, sizes["RssAnon"]), max(resident, sizes["VmHWM"])
            time.sleep(0.01)
    if process.returncode:
        raise SystemExit(f"failed with exit code {process.returncode}: {program}")
    return Figures(seconds=time.perf_counter() - begin, anonymous=anonymous, resident=resident)


def main() -> None:
    """Make the data, run every program, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument(
        "--directory", type=Path, help="kept afterwards; a temporary one if missing"
    )
    parser.add_argument("--limit", type=int, help="RLIMIT_DATA of every process in MiB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="podium-", dir=options.directory) as scratch:
        count = make(Path(scratch, "raw"), options.gigabytes)
        print(f"{count:,} pictures of {SIDE}x{SIDE}x3, {options.gigabytes} GB\n")
        print("| | seconds | anonymous memory, MiB | VmHWM, MiB |\n|---|---|---|---|", flush=True)
        for name, program in PROGRAMS.items():
            seen = measure(program, Path(scratch), options.limit)
            print(
                f"| {name} | {seen.seconds:.1f} | {seen.anonymous:.0f} | {seen.resident:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
