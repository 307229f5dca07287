"""Check the trainer on a machine with a GPU: what the tests check on processors, and what they cannot.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --all --mnist data/mnist --fashion data/fashion

Trains on made color pictures and a made table, each in one process with `--backend nccl`; with more GPUs also in two.
Prints a line for each training (seconds, metrics, precision, device) and exits with 1 if one of these does not hold:
the GPU was used, in bf16 where it has that; the pictures are learned; model.onnx scores on the processor what the GPU
reported; the same seed gives the same first loss with the data on the GPU and mapped from disk.

With --all a table for docs/benchmarks.md follows, in about eight minutes: MNIST to 99 % from the start of a process to
its model.onnx (`podium data prepare mnist`), `best` on Fashion-MNIST (prepared with `--validation 0.05`) by three
seeds, and trials that share the GPU beside trials one after the other. --no-cuda runs that on a processor, to try it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from accuracy import mean_and_deviation, test_accuracy, train as train_to
from machine import describe

import podium
from podium.data import artifact, artifact_files
from podium.data.schema import Column
from podium.trainer import data, processor
from podium.trainer.config import parse
from podium.trainer.loop import TrainingLoop
from podium.trainer.world import World

SIDE, COUNT, KINDS = 96, 6000, 6


@dataclass
class Checks:
    """What did not hold."""

    failed: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.failed.append(what)
            print(f"FAILED: {what}", flush=True)


def pictures() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return color pictures of stripes, uint8 [n, 96, 96, 3], and their kind: color and direction."""
    rng = np.random.default_rng(1)
    kinds = np.arange(COUNT) % KINDS
    rng.shuffle(kinds)
    images = rng.integers(0, 200, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    for image, kind in zip(images, kinds, strict=True):
        start, step = rng.integers(0, 8), rng.integers(6, 12)
        lines = image[start::step] if kind % 2 else image[:, start::step]
        lines[..., kind // 2] = 255
    return images, kinds


def write(
    target: Path,
    name: str,
    array: np.ndarray[Any, Any],
    outcome: np.ndarray[Any, Any],
    **facts: Any,
) -> None:
    """Write a dataset: two thirds to train, a sixth each to validate and to test."""
    sixth = len(outcome) // 6
    ends = {
        "train": (0, 4 * sixth),
        "validation": (4 * sixth, 5 * sixth),
        "test": (5 * sixth, 6 * sixth),
    }
    parts = {
        part: artifact.Split(inputs={name: array[a:b]}, target=outcome[a:b])
        for part, (a, b) in ends.items()
    }
    artifact_files.write(
        target, parts, name=name, target_name="outcome", preprocessing={}, source="made", split="given", **facts
    )  # fmt: skip


def datasets(folder: Path) -> None:
    """Write pictures of six kinds, and a table with a number to predict."""
    write(folder / "pictures", "images", *pictures(), kind="classification", classes=tuple("abcdef"),
          inputs={"images": artifact.InputDescription(meaning="image")})  # fmt: skip
    table = np.random.default_rng(1).uniform(0, 1, (20000, 5))
    outcome = (
        10 * np.sin(np.pi * table[:, 0] * table[:, 1])
        + 20 * (table[:, 2] - 0.5) ** 2
        + 10 * table[:, 3]
    )
    columns = tuple(Column(name=f"x{number}", kind="number") for number in range(5))
    write(folder / "table", "table", table.astype(np.float32), outcome, kind="regression",
          inputs={"table": artifact.InputDescription(meaning="table", columns=columns)})  # fmt: skip


def train(folder: Path, name: str, dataset: str, *flags: str, processes: int = 1) -> dict[str, Any]:
    """Train in processes of their own and return metrics and environment."""
    command = [sys.executable, "-m", "podium.trainer"]
    if processes > 1:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "-m",
                   "podium.trainer"]  # fmt: skip
    begin = time.perf_counter()
    places = ["--data", str(folder / dataset), "--output", str(folder / name), "--backend", "nccl"]
    subprocess.run([*command, *places, *flags], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "OMP_NUM_THREADS": "4"})  # fmt: skip
    seconds = time.perf_counter() - begin
    metrics, environment = (
        json.loads((folder / name / f"{file}.json").read_text())
        for file in ("metrics", "environment")
    )
    shown = {key: round(value, 4) for key, value in metrics.items() if isinstance(value, float)}
    epochs = [epoch["seconds"] for epoch in metrics["epochs"]]
    print(f"{name}: {seconds:.1f} s, epochs {epochs} s, {shown}, {environment['precision']}, {environment['device']}, "
          f"{environment['processes']} processes", flush=True)  # fmt: skip
    return {**metrics, **environment}


def check_pictures(folder: Path, checks: Checks) -> None:
    """Train networks of torchvision and of podium on color pictures."""
    flags = {
        "resnet18": ["--model", "resnet18", "--epochs", "3"],
        "resnet18, transforms": ["--model", "resnet18", "--epochs", "2", "--augment", "crop,color"],
        "fast": ["--model", "fast", "--epochs", "6", "--batch-size", "64", "--lr", "0.1", "--shift", "4"],
        "vit": ["--model", "vit_b_32", "--epochs", "1"],
    }  # fmt: skip
    for name, words in flags.items():
        result = train(folder, name, "pictures", *words)
        checks.check(result["device"].startswith("cuda"), f"{name} ran on the GPU")
        wanted = "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "fp32"
        checks.check(result["precision"] == wanted, f"{name} ran in {wanted}")
        checks.check(name == "vit" or result["accuracy"] > 0.9, f"{name} learned the pictures")
        part = artifact.load(folder / "pictures", "validation")
        session = onnxruntime.InferenceSession(
            folder / name / "model.onnx", providers=["CPUExecutionProvider"]
        )
        blocks = np.array_split(np.array(part.inputs["images"]), 20)
        logits = np.concatenate([session.run(None, {"images": block})[0] for block in blocks])
        accuracy = float(np.mean(logits.argmax(1) == part.target))
        checks.check(
            abs(accuracy - result["accuracy"]) < 0.005,
            f"model.onnx of {name} scores what the GPU reported",
        )


def check_mapped(folder: Path, checks: Checks) -> None:
    """Compare the first losses with data on the GPU and mapped from disk."""
    config = parse(
        [
            "--model",
            "fast",
            "--data",
            str(folder / "pictures"),
            "--batch-size",
            "64",
            "--precision",
            "fp32",
        ]
    )
    device, losses = torch.device("cuda", 0), []
    for share in (10**12, 0):
        processor.memory_for_data = lambda device, share=share: share  # type: ignore[misc]
        training = TrainingLoop(
            config, data.load(config).to(device), World(device=device), lambda line: None
        )
        batch = data.batches(len(training.dataset.train), 64, data.stream(1, 1), device)[0]
        losses.append(float(training.step(batch)))
    checks.check(abs(losses[0] - losses[1]) < 1e-4, f"mapped data gave the same loss: {losses}")


def row(what: str, wanted: str, found: str) -> None:
    """Print a row of the table."""
    print(f"| {what} | {wanted} | {found} |", flush=True)


def time_to_99(folder: Path, mnist: Path, where: list[str]) -> None:
    """Train `fast` five times, the first to warm up."""
    took, tested = [], []
    for seed in range(5):
        output, begin = folder / f"mnist-{seed}", time.perf_counter()
        train_to(mnist, output, ["--model", "fast", "--seed", str(seed), *where])
        took.append(time.perf_counter() - begin)
        tested.append(test_accuracy(output, mnist))
    found = f"{statistics.median(took[1:]):.2f} s, test accuracy {mean_and_deviation(tested[1:])}"
    row("MNIST to 99 %, process start to model.onnx, median of 4", "1.5 s", found)


def best_on_fashion(folder: Path, fashion: Path, where: list[str]) -> None:
    """Train `best` as docs/trainer.md says for clothes."""
    flags = [
        "--model",
        "best",
        "--epochs",
        "16",
        "--rotate",
        "0",
        "--shift",
        "1",
        "--flip",
        "--erase",
        "6",
    ]
    tested, begin = [], time.perf_counter()
    for seed in (1, 2, 3):
        train_to(fashion, folder / f"fashion-{seed}", [*flags, "--seed", str(seed), *where])
        tested.append(test_accuracy(folder / f"fashion-{seed}", fashion))
    each = (time.perf_counter() - begin) / 3
    found = f"{mean_and_deviation(tested)}, {each:.0f} s each"
    row("`best` on Fashion-MNIST, three seeds", "0.955", found)


def packed_trials(folder: Path, mnist: Path, where: list[str], trials: int) -> None:
    """Run trials one after the other, and as many at once as there are cores."""
    command = [sys.executable, "-m", "podium.trainer", "--data", str(mnist), "--model", "fast",
               "--epochs", "1", "--batch-size", "1024", *where]  # fmt: skip
    pace = {}
    for parallel, count in ((1, max(2, trials // 16)), (os.cpu_count() or 1, trials)):
        os.environ["PODIUM_HOME"] = str(folder / f"trials-{parallel}")
        begin = time.perf_counter()
        podium.tune(command, {"lr": (0.1, 0.5)}, trials=count, parallel=parallel)
        pace[parallel] = count / (time.perf_counter() - begin)
    alone, together = pace.values()
    found = f"{together / alone:.1f} times, {together:.2f} a second"
    row(f"{trials} trials, {max(pace)} at once, beside one after the other", "10 times", found)


def measure(folder: Path, mnist: Path, fashion: Path, where: list[str], trials: int) -> None:
    """Print the table."""
    print(f"\n{describe()}\n\n| what | goal | here |\n|---|---|---|", flush=True)
    time_to_99(folder, mnist, where)
    packed_trials(folder, mnist, where, trials)
    best_on_fashion(folder, fashion, where)


def main() -> int:
    """Run all checks; return 1 if one did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="measure too")
    parser.add_argument("--mnist", type=Path, help="MNIST as podium data prepare writes it")
    parser.add_argument("--fashion", type=Path, help="Fashion-MNIST likewise")
    parser.add_argument("--trials", type=int, default=64, help="(default: 64)")
    parser.add_argument("--no-cuda", action="store_true", help="measure on a processor, no checks")
    given = parser.parse_args()
    if given.all and not (given.mnist and given.fashion):
        parser.error("--all takes --mnist and --fashion")
    with tempfile.TemporaryDirectory() as scratch:
        failed = 0 if given.no_cuda else check(Path(scratch))
        if given.all:
            where = ["--no-cuda"] if given.no_cuda else []
            measure(Path(scratch), given.mnist, given.fashion, where, given.trials)
    return failed


def check(folder: Path) -> int:
    """Run the checks; return 1 if one did not hold."""
    if not torch.cuda.is_available():
        print("no GPU here: nothing was checked", file=sys.stderr)
        return 1
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    checks = Checks()
    datasets(folder)
    check_pictures(folder, checks)
    result = train(folder, "mlp", "table", "--model", "mlp")
    checks.check(result["r2"] > 0.95, "the table was learned")
    if torch.cuda.device_count() > 1:
        result = train(
            folder,
            "two processes",
            "pictures",
            "--model",
            "resnet18",
            "--epochs",
            "3",
            processes=2,
        )
        checks.check(
            result["processes"] == 2 and result["accuracy"] > 0.9,
            "two processes learned the pictures",
        )
    check_mapped(folder, checks)
    print("all holds" if not checks.failed else f"{len(checks.failed)} did not hold")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
