"""Measure the trainer against the tutorial's, a bare loop and itself in two processes. One command, one table.

    python benchmarks/trainer.py --data data/mnist --baseline ../shared/baseline/mnist.py --repeats 3

Every figure of a round is taken before the next round begins, so that a busy machine slows all of them alike; read
the ratios. Images per second come from the programs' own output: time between two lines of progress, without start.
Takes about 20 minutes, most of it the baseline's; --only and --figures measure it in pieces.
"""

import argparse
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import mean_and_deviation, test_accuracy, train
from bare_loop import STEPS, WARM

from podium.data import artifact
from podium.trainer.output import describe_environment

TARGET = 0.99
PARTS = ("throughput", "fast", "baseline")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What is measured with what."""

    data: Path
    """A prepared MNIST."""

    baseline: Path | None
    """The tutorial's mnist.py; its rows are left out without it."""

    scratch: Path
    """Holds the baseline's idx files and all outputs."""


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


def images_per_second(command: list[str], cwd: Path, progress: str, **env: str) -> float:
    """Return images a second between two lines of progress, one every ten steps of 64 images."""
    seen: list[float] = []
    for moment, line in lines_of(command, cwd, **env):
        if re.search(progress, line):
            seen.append(moment)
        if len(seen) > (WARM + STEPS) // 10:
            break
    first, last = seen[WARM // 10], seen[(WARM + STEPS) // 10]
    return STEPS * 64 / (last - first)


def write_idx(data: Path, cwd: Path) -> None:
    """Give the baseline the idx files it reads: 60,000 images (train and validation) and the test part."""
    parts = {name: artifact.load(data, name) for name in artifact.PARTS}
    files = {"train": ("train", "validation"), "t10k": ("test",)}
    raw = cwd / "datasets" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, sources in files.items():
        images = np.concatenate([parts[source].images for source in sources])
        labels = np.concatenate([parts[source].labels for source in sources])
        for array, kind in ((images, "images-idx3"), (labels, "labels-idx1")):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (raw / f"{name}-{kind}-ubyte").write_bytes(head + array.tobytes())


def baseline(bench: Bench) -> float:
    """Images/s of the tutorial's trainer."""
    command = [sys.executable, "-W", "ignore", str(bench.baseline), "--no-cuda", "--epochs", "1"]
    return images_per_second(command, bench.scratch, r"Epoch: 1 .* Loss")


def trainer(bench: Bench, *flags: str) -> float:
    """Images/s of podium.trainer with the tutorial's network."""
    command = [sys.executable, "-m", "podium.trainer", "--data", str(bench.data), "--no-cuda", "--epochs", "1", *flags]
    return images_per_second(command, bench.scratch, r"^Train Epoch")


def two_processes(bench: Bench, *flags: str) -> float:
    """Images/s of two gloo processes with one thread each at the same global batch."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "podium.trainer", "--data", str(bench.data), "--no-cuda", "--epochs", "1", *flags]
    other = subprocess.Popen(command, env={**os.environ, **place, "RANK": "1"}, stderr=subprocess.DEVNULL)
    try:
        return images_per_second(command, bench.scratch, r"^Train Epoch", **place, RANK="0")
    finally:
        other.kill()
        other.wait()


def bare_loop(bench: Bench, precision: str) -> float:
    """Images/s of the least a training step can be: same network, same optimizer, data in memory, nothing else."""
    command = [sys.executable, str(Path(__file__).with_name("bare_loop.py")), str(bench.data), precision]
    return float([line for _, line in lines_of(command, bench.scratch)][-1])


def fast_to_target(bench: Bench, seed: int) -> tuple[float, float]:
    """Return seconds from the start of a process to its model written, and that model's accuracy on the test part.

    The training never sees the test part: its model is read and tested afterwards.
    """
    output = bench.scratch / f"fast-{seed}-{time.time_ns()}"
    begin = time.perf_counter()
    train(bench.data, output, ["--model", "fast", "--no-cuda", "--seed", str(seed)])
    return time.perf_counter() - begin, test_accuracy(output, bench.data)


def baseline_to_target(bench: Bench, seed: int, most: int = 12) -> tuple[float, float]:
    """Return seconds from the start of the baseline to its first epoch of 99 % test accuracy, and that accuracy."""
    command = [sys.executable, "-W", "ignore", str(bench.baseline), "--no-cuda", "--epochs", str(most),
               "--seed", str(seed)]  # fmt: skip
    accuracy = 0.0
    for moment, line in lines_of(command, bench.scratch):
        if match := re.search(r"accuracy=(\d\.\d+)", line):
            accuracy = float(match[1])
            print(f"baseline, seed {seed}: {accuracy:.4f} after {moment:.0f} s", file=sys.stderr, flush=True)
            if accuracy >= TARGET:
                return moment, accuracy
    return float("inf"), accuracy


def throughput(bench: Bench, measured: dict[str, list[float]]) -> None:
    """Add one measurement of every way to train."""
    ways: dict[str, Callable[[], float]] = {
        "fp32": lambda: trainer(bench, "--precision", "fp32"),
        "auto": lambda: trainer(bench),
        "bare loop, fp32": lambda: bare_loop(bench, "fp32"),
        "bare loop, auto": lambda: bare_loop(bench, "auto"),
        "2 processes x 1 thread, fp32": lambda: two_processes(bench, "--precision", "fp32"),
        "2 processes x 1 thread, auto": lambda: two_processes(bench),
    }
    if bench.baseline:
        ways = {"baseline": lambda: baseline(bench), **ways}
    for name, way in ways.items():
        measured.setdefault(name, []).append(way())
        print(f"{name} {measured[name][-1]:.0f} images/s", file=sys.stderr, flush=True)


def report(measured: dict[str, list[float]]) -> None:
    """Print the table of images per second."""
    environment, system = describe_environment(), platform.platform(terse=True)
    print(f"{environment['processor']}, {os.cpu_count()} cores, torch {environment['torch']}, {system}\n")
    print("| tutorial's network, batch 64 | images/s, median | spread | of baseline | of bare loop |")
    print("|---|---|---|---|---|")
    for name, values in measured.items():
        bare = measured["bare loop, auto" if "auto" in name else "bare loop, fp32"]
        columns = [f"{statistics.median(values):.0f}", f"{min(values):.0f}–{max(values):.0f}"]
        columns.append(_ratio(values, measured["baseline"]) if "baseline" in measured else "")
        columns.append(_ratio(values, bare))
        print(f"| {name} | {' | '.join(columns)} |")


def _ratio(values: list[float], others: list[float]) -> str:
    """Return the median of the ratios of each round."""
    return f"{statistics.median(a / b for a, b in zip(values, others, strict=True)):.2f}"


def report_target(who: str, rows: list[tuple[float, float]]) -> float:
    """Print seconds to 99 % test accuracy and return their median."""
    times, accuracies = ([row[i] for row in rows] for i in (0, 1))
    median, hits = statistics.median(times), sum(accuracy >= TARGET for accuracy in accuracies)
    print(f"\n{who}, from the start of the process: median {median:.1f} s ({min(times):.1f}–{max(times):.1f}); "
          f"test accuracy {mean_and_deviation(accuracies)}, {hits} of {len(rows)} at 99 %")  # fmt: skip
    return median


def measure(bench: Bench, only: list[str], repeats: int, seeds: list[int], found: dict[str, Any]) -> None:
    """Add what is wanted to what was found before."""
    for _ in range(repeats if "throughput" in only else 0):
        throughput(bench, found.setdefault("throughput", {}))
    for seed in seeds:
        if "fast" in only:
            found.setdefault("fast", []).append(fast_to_target(bench, seed))
        if "baseline" in only and bench.baseline:
            found.setdefault("baseline", []).append(baseline_to_target(bench, seed))


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a prepared MNIST")
    parser.add_argument("--baseline", type=Path, help="the tutorial's mnist.py")
    parser.add_argument("--only", choices=PARTS, action="append", help="(repeatable; default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of the throughput table (default: 3)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the time to 99 %% (default: 1 2 3)")
    parser.add_argument("--figures", type=Path, help="add the figures to this file and print the tables of all of them")
    args = parser.parse_args()
    found = json.loads(args.figures.read_text()) if args.figures and args.figures.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        where = args.baseline.resolve() if args.baseline else None
        bench = Bench(data=args.data.resolve(), baseline=where, scratch=Path(scratch))
        if where:
            write_idx(bench.data, bench.scratch)
        measure(bench, args.only or list(PARTS), args.repeats, args.seeds, found)
    if args.figures:
        args.figures.write_text(json.dumps(found, indent=1) + "\n")
    if "throughput" in found:
        report(found["throughput"])
    names = {"fast": "--model fast", "baseline": "baseline"}
    medians = [report_target(names[who], found[who]) for who in names if who in found]
    if len(medians) == 2:
        print(f"\nthe fast model is {medians[1] / medians[0]:.0f} times sooner")


if __name__ == "__main__":
    main()
