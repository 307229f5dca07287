"""Measure the trainer against the tutorial's, a bare loop and itself in two processes. One command, one table.

    python benchmarks/trainer.py --data data/mnist --baseline ../shared/baseline/mnist.py --repeats 3

Every figure of a round is taken before the next round begins, so that a busy machine slows all of them alike; read
the ratios. Images per second come from the programs' own output: time between two lines of progress, without start.
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

import numpy as np

from podium.data import artifact
from podium.trainer.output import describe_environment

STEPS = 160  # measured steps of 64 images, after WARM
WARM = 20
TARGET = 0.99


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
    command = [sys.executable, __file__, "--bare", precision, "--data", str(bench.data)]
    return float([line for _, line in lines_of(command, bench.scratch)][-1])


def run_bare(data: Path, precision: str) -> None:
    """Run in a process of its own; prints images/s."""
    import torch
    import torch.nn.functional as F

    from podium.trainer import processor, recipe
    from podium.trainer.config import TrainConfig
    from podium.trainer.models import build

    processor.keep_memory()
    processor.set_threads(TrainConfig())
    part = artifact.load(data, "train")
    images, labels = torch.from_numpy(part.images), torch.from_numpy(part.labels).long()
    model = build(TrainConfig(), classes=10, mean=0.1307, std=0.3081)
    optimizer = recipe.make_optimizer(TrainConfig(), model)
    cpu = torch.device("cpu")
    kind = processor.pick_precision(TrainConfig(precision=precision), cpu)
    begin = 0.0
    for step, batch in enumerate(torch.randperm(len(labels)).split(64)[: WARM + STEPS]):
        if step == WARM:
            begin = time.perf_counter()
        model.zero_grad(set_to_none=True)
        with processor.autocast(kind, cpu):
            logits = model(images[batch])
        F.cross_entropy(logits.float(), labels[batch]).backward()
        recipe.apply(optimizer)
    print(STEPS * 64 / (time.perf_counter() - begin))


def seconds_to_target(bench: Bench, seed: int) -> tuple[float, float]:
    """Return seconds from the start of a process to a model of 99 % on the test part, and its accuracy there.

    The training never sees the test part: its model is read and tested afterwards. The time ends when it is written.
    """
    import onnxruntime

    output = bench.scratch / f"fast-{seed}-{time.time_ns()}"
    command = [sys.executable, "-m", "podium.trainer", "--data", str(bench.data), "--model", "fast", "--no-cuda",
               "--seed", str(seed), "--output", str(output)]  # fmt: skip
    begin = time.perf_counter()
    for _ in lines_of(command, bench.scratch):
        pass
    seconds = time.perf_counter() - begin
    test = artifact.load(bench.data, "test")
    (logits,) = onnxruntime.InferenceSession(output / "model.onnx").run(["logits"], {"images": test.images})
    return seconds, float(np.mean(logits.argmax(1) == test.labels))


def baseline_to_target(bench: Bench, most: int = 12) -> tuple[float, float]:
    """Return seconds from the start of the baseline to its first epoch of 99 % test accuracy, and that accuracy."""
    command = [sys.executable, "-W", "ignore", str(bench.baseline), "--no-cuda", "--epochs", str(most)]
    accuracy = 0.0
    for moment, line in lines_of(command, bench.scratch):
        if match := re.search(r"accuracy=(\d\.\d+)", line):
            accuracy = float(match[1])
            if accuracy >= TARGET:
                return moment, accuracy
    return float("inf"), accuracy


def throughput(bench: Bench, repeats: int) -> dict[str, list[float]]:
    """Measure every way to train in every round."""
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
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats):
        for name, way in ways.items():
            measured[name].append(way())
            print(f"round {turn + 1}: {name} {measured[name][-1]:.0f} images/s", file=sys.stderr, flush=True)
    return measured


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


def report_target(bench: Bench, seeds: int) -> None:
    """Print seconds to 99 % test accuracy."""
    rows = [seconds_to_target(bench, seed) for seed in range(1, seeds + 1)]
    times, accuracies = ([row[i] for row in rows] for i in (0, 1))
    spread, hits = f"{min(times):.1f}–{max(times):.1f}", sum(accuracy >= TARGET for accuracy in accuracies)
    print(
        f"\n--model fast, from process start to the model written: median {statistics.median(times):.1f} s ({spread})"
    )
    print(f"test accuracy {statistics.mean(accuracies):.4f}, worst {min(accuracies):.4f}; {hits} of {seeds} at 99 %")
    if bench.baseline:
        seconds, accuracy = baseline_to_target(bench)
        ratio = seconds / statistics.median(times)
        print(f"baseline: {seconds:.0f} s to {accuracy:.4f}: the fast model is {ratio:.0f} times sooner")


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a prepared MNIST")
    parser.add_argument("--baseline", type=Path, help="the tutorial's mnist.py")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of the throughput table (default: 3)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the time to 99 %% (default: 3; 0: leave it out)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--bare", choices=["fp32", "auto"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        return run_bare(args.data, args.bare)
    with tempfile.TemporaryDirectory() as scratch:
        where = args.baseline.resolve() if args.baseline else None
        bench = Bench(data=args.data.resolve(), baseline=where, scratch=Path(scratch))
        if where:
            write_idx(bench.data, bench.scratch)
        if args.repeats:
            measured = throughput(bench, args.repeats)
            report(measured)
            if args.json:
                args.json.write_text(json.dumps(measured, indent=1) + "\n")
        if args.seeds:
            report_target(bench, args.seeds)


if __name__ == "__main__":
    main()
