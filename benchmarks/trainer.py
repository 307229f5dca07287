"""Compare the trainer with PyTorch's MNIST example, a bare loop and itself in two processes.

    python benchmarks/trainer.py --data data/mnist --baseline mnist.py --repeats 3

Rounds are interleaved, so that a busy machine slows everything alike: read the ratios. Images per second come from
the programs' own output: the median time of ten steps, without start. Takes half an hour on two cores, mostly for the
baseline to reach 99 %; --only and --figures split the work.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from accuracy import mean_and_deviation, test_accuracy, train
from bare_loop import BLOCK, BLOCKS, WARM
from baseline import command as baseline_command, epochs_to, lines_of, write_idx
from machine import describe

PARTS = ("throughput", "fast", "baseline", "baseline-pace")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What is measured with what."""

    data: Path
    """A prepared MNIST."""

    baseline: Path | None
    """The tutorial's mnist.py; its rows are left out without it."""

    scratch: Path
    """Holds the baseline's idx files and all outputs."""

    accuracy: float
    """On the test part, to be reached."""


def images_per_second(command: list[str], cwd: Path, progress: str, **env: str) -> float:
    """Return images a second from lines of progress, one every ten steps of 64 images."""
    seen: list[float] = []
    for moment, line in lines_of(command, cwd, **env):
        if re.search(progress, line):
            seen.append(moment)
        if len(seen) > WARM + BLOCKS:
            break
    return BLOCK * 64 / statistics.median(after - before for before, after in pairwise(seen[WARM:]))


def trainer(bench: Bench, *flags: str) -> float:
    """Images/s of podium.trainer with the tutorial's network."""
    command = [
        sys.executable,
        "-m",
        "podium.trainer",
        "--data",
        str(bench.data),
        "--no-cuda",
        "--epochs",
        "1",
        *flags,
    ]
    return images_per_second(command, bench.scratch, r"^Train Epoch")


def two_processes(bench: Bench, *flags: str) -> float:
    """Images/s of two gloo processes with one thread each at the same global batch."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    ranks = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    command = [
        sys.executable,
        "-m",
        "podium.trainer",
        "--data",
        str(bench.data),
        "--no-cuda",
        "--epochs",
        "1",
        *flags,
    ]
    other = subprocess.Popen(
        command, env={**os.environ, **ranks, "RANK": "1"}, stderr=subprocess.DEVNULL
    )
    try:
        return images_per_second(command, bench.scratch, r"^Train Epoch", **ranks, RANK="0")
    finally:
        other.kill()
        other.wait()


def bare_loop(bench: Bench, precision: str) -> float:
    """Images/s of the least a training step can be: same network, same optimizer, data in memory, nothing else."""
    command = [
        sys.executable,
        str(Path(__file__).with_name("bare_loop.py")),
        str(bench.data),
        precision,
    ]
    return float([line for _, line in lines_of(command, bench.scratch)][-1])


def throughput(bench: Bench, measured: dict[str, list[float]]) -> None:
    """Add one measurement of every way to train."""
    ways: dict[str, Callable[[], float]] = {
        "fp32": lambda: trainer(bench, "--precision", "fp32"),
        "bare loop, fp32": lambda: bare_loop(bench, "fp32"),
        "2 processes x 1 thread, fp32": lambda: two_processes(bench, "--precision", "fp32"),
        "auto": lambda: trainer(bench),
        "bare loop, auto": lambda: bare_loop(bench, "auto"),
        "2 processes x 1 thread, auto": lambda: two_processes(bench),
    }
    if script := bench.baseline:

        def rival() -> float:
            return images_per_second(
                baseline_command(script, 1), bench.scratch, r"Epoch: 1 .* Loss"
            )

        ways = {"baseline": rival, **ways}
    for name, way in ways.items():
        measured.setdefault(name, []).append(way())
        print(f"{name} {measured[name][-1]:.0f} images/s", file=sys.stderr, flush=True)


def fast_to_accuracy(bench: Bench, seed: int) -> tuple[float, float]:
    """Return seconds from the start of a process to its model written, and that model's accuracy on the test part.

    The training never sees the test part: its model is read and tested afterwards.
    """
    output = bench.scratch / f"fast-{seed}-{time.time_ns()}"
    begin = time.perf_counter()
    train(bench.data, output, ["--model", "fast", "--no-cuda", "--seed", str(seed)])
    return time.perf_counter() - begin, test_accuracy(output, bench.data)


def measure(
    bench: Bench, only: list[str], repeats: int, seeds: list[int], figures: dict[str, Any]
) -> None:
    """Add what is wanted to the figures of earlier runs."""
    for _ in range(repeats if "throughput" in only else 0):
        throughput(bench, figures.setdefault("throughput", {}))
    for seed in seeds:
        if "fast" in only:
            figures.setdefault("fast", []).append(fast_to_accuracy(bench, seed))
        if "baseline" in only and bench.baseline:
            epochs = epochs_to(bench.accuracy, bench.baseline, bench.scratch, seed)
            figures.setdefault("baseline", {})[str(seed)] = epochs
    if "baseline-pace" in only and bench.baseline:
        figures.setdefault("baseline-pace", []).append(
            epochs_to(2, bench.baseline, bench.scratch, 1, most=2)
        )


def report_throughput(measured: dict[str, list[float]]) -> None:
    """Print the table of images per second."""
    print(
        "| tutorial's network, batch 64 | images/s, median | spread | of baseline | of bare loop | of one process |"
    )
    print("|---|---|---|---|---|---|")
    for name, values in measured.items():
        kind = "auto" if "auto" in name else "fp32"
        columns = [f"{statistics.median(values):.0f}", f"{min(values):.0f}–{max(values):.0f}"]
        columns += [
            _ratio(values, measured.get(other))
            for other in ("baseline", f"bare loop, {kind}", kind)
        ]
        print(f"| {name} | {' | '.join(columns)} |")


def _ratio(values: list[float], others: list[float] | None) -> str:
    """Return the median of the ratios of each round."""
    return (
        f"{statistics.median(a / b for a, b in zip(values, others, strict=True)):.2f}"
        if others
        else ""
    )


def _spread(times: list[float]) -> str:
    return f"median {statistics.median(times):.1f} s ({min(times):.1f}–{max(times):.1f})"


def seconds_to(
    accuracy: float, epochs: list[tuple[float, float]], pace: list[list[tuple[float, float]]]
) -> float:
    """Return the seconds from the start of the baseline to its first epoch of an accuracy.

    Args:
        accuracy: To be reached; infinite if it was not.
        epochs: As `epochs_to` returns them.
        pace: If not empty, start and epochs are counted as long as in these runs of two epochs, the median of them:
            for a machine that had other work to do during the long runs.
    """
    count = next((i for i, (_, reached) in enumerate(epochs) if reached >= accuracy), None)
    if count is None:
        return float("inf")
    if not pace:
        return epochs[count][0]
    first, more = (
        statistics.median(values)
        for values in zip(*((a, b - a) for (a, _), (b, _) in pace), strict=True)
    )
    return float(first + count * more)


def report_baseline(accuracy: float, figures: dict[str, Any]) -> float:
    """Print when the baseline reached the accuracy with each seed, and return the median of the seconds."""
    pace, times = figures.get("baseline-pace", []), []
    for seed, epochs in figures["baseline"].items():
        times.append(seconds_to(accuracy, epochs, pace))
        print(
            f"\nbaseline, seed {seed}: {' '.join(f'{reached:.4f}' for _, reached in epochs)}, {times[-1]:.1f} s"
        )
    how = "epochs needed times the time of an epoch measured apart" if pace else "as it ran"
    print(f"\nbaseline to {accuracy:.1%}, from the start of the process, {how}: {_spread(times)}")
    return statistics.median(times)


def report_fast(accuracy: float, rows: list[tuple[float, float]]) -> float:
    """Print seconds and test accuracy of --model fast; return the median time, infinite if a run fell short."""
    times, accuracies = ([row[i] for row in rows] for i in (0, 1))
    hits = sum(reached >= accuracy for reached in accuracies)
    print(f"\n--model fast, from the start of the process to the model written: {_spread(times)}; test accuracy "
          f"{mean_and_deviation(accuracies)}, {hits} of {len(rows)} at {accuracy:.1%}")  # fmt: skip
    return statistics.median(times) if hits == len(rows) else float("inf")


def report(accuracy: float, figures: dict[str, Any]) -> None:
    """Print all figures."""
    print(f"{describe()}\n")
    if "throughput" in figures:
        report_throughput(figures["throughput"])
    fast = report_fast(accuracy, figures["fast"]) if "fast" in figures else None
    baseline = report_baseline(accuracy, figures) if "baseline" in figures else None
    if fast and baseline:
        print(f"\n--model fast is {baseline / fast:.0f} times sooner")


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a prepared MNIST")
    parser.add_argument("--baseline", type=Path, help="the tutorial's mnist.py")
    parser.add_argument(
        "--only",
        choices=PARTS,
        action="append",
        help="(repeatable; default: all but baseline-pace)",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="rounds of the throughput table (default: 3)"
    )
    parser.add_argument(
        "--to-accuracy",
        type=float,
        default=0.99,
        metavar="X",
        help="on the test part (default: .99)",
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the time to it (default: 1 2 3)"
    )
    parser.add_argument(
        "--figures",
        type=Path,
        help="add the figures to this file and print the tables of all of them",
    )
    args = parser.parse_args()
    figures = json.loads(args.figures.read_text()) if args.figures and args.figures.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        where = args.baseline.resolve() if args.baseline else None
        bench = Bench(
            data=args.data.resolve(),
            baseline=where,
            scratch=Path(scratch),
            accuracy=args.to_accuracy,
        )
        if where:
            write_idx(bench.data, bench.scratch)
        measure(bench, args.only or list(PARTS[:-1]), args.repeats, args.seeds, figures)
    if args.figures:
        args.figures.write_text(json.dumps(figures, indent=1) + "\n")
    report(args.to_accuracy, figures)


if __name__ == "__main__":
    main()
