"""Measure what ``code=`` adds to the start of a trial: the command itself, and the same command in packed code.

    python benchmarks/code_overhead.py --rounds 20

Both are processes of their own; rounds are interleaved, so that a busy machine slows all of them alike.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from podium.code.bundle import pack

PLAIN = [sys.executable, "-c", "pass"]


def project(folder: Path, files: int, size: int) -> Path:
    """Write a directory of code: random text, which hardly compresses."""
    folder.mkdir()
    text = random.Random(1)
    for number in range(files):
        (folder / f"module_{number}.py").write_text(f"# {text.randbytes(size // 2).hex()}\n")
    (folder / "requirements.txt").write_text("numpy\n")
    return folder


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command; return the seconds it took and its CPU seconds, children included."""
    began = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure every way, print the medians and what they add to the plain command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="(default: 20)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        ways = {"the command itself": PLAIN}
        for title, files, size in (
            ("10 files, 40 kB", 10, 4_000),
            ("500 files, 10 MB", 500, 20_000),
        ):
            packed = pack(project(Path(scratch, title), files, size))
            code = packed.store(str(Path(scratch, "store")))
            fetch = [sys.executable, "-m", "podium.code", code.uri, "--digest", code.digest]
            ways[f"code of {title}"] = [*fetch, "--", *PLAIN]
            if files == 10:
                title = "the same with --install-requirements, all there"
                ways[title] = [*fetch, "--install-requirements", "--", *PLAIN]
        times: dict[str, list[tuple[float, float]]] = {title: [] for title in ways}
        for _ in range(args.rounds):
            for title, command in ways.items():
                times[title].append(measure(command))
    print("| | seconds, median | CPU seconds | added CPU seconds |\n|---|---|---|---|")
    medians = {
        title: [statistics.median(column) for column in zip(*rows, strict=True)]
        for title, rows in times.items()
    }
    for title, (wall, cpu) in medians.items():
        print(
            f"| {title} | {wall:.2f} | {cpu:.2f} | {cpu - medians['the command itself'][1]:.2f} |"
        )


if __name__ == "__main__":
    main()
