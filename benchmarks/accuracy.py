"""Measure the test accuracy of a recipe: mean and standard deviation over seeds.

    python benchmarks/accuracy.py --data data/mnist --seeds 1 2 3 4 5 --output runs -- --model best

Training never opens the test part; each model is tested once. Finished trainings are not repeated and interrupted
ones are resumed, so the command may be repeated.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from podium.data import artifact


def train(data: Path, output: Path, flags: list[str]) -> None:
    """Train in a process of its own; it resumes what lies in the output directory."""
    command = [
        sys.executable,
        "-m",
        "podium.trainer",
        "--data",
        str(data),
        "--output",
        str(output),
        *flags,
    ]
    if code := subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"exit code {code}: {' '.join(command)}")


def test_accuracy(output: Path, data: Path) -> float:
    """Return the share of the test part that a trained model gets right."""
    import onnxruntime

    test = artifact.load(data, "test")
    (logits,) = onnxruntime.InferenceSession(output / "model.onnx").run(
        ["logits"], {"images": test.inputs["images"]}
    )
    return float(np.mean(logits.argmax(1) == test.target))


def mean_and_deviation(values: list[float]) -> str:
    """Return both as text; the deviation is that of a sample."""
    deviation = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "one seed"
    return f"{statistics.mean(values):.4f} ± {deviation}"


def main() -> None:
    """Train every seed, test, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a prepared dataset")
    parser.add_argument(
        "--output", type=Path, required=True, help="model directories, one a seed; kept"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="(default: 1 2 3 4 5)"
    )
    parser.add_argument("flags", nargs="*", help="flags of podium.trainer, after --")
    args = parser.parse_args()
    print(
        "| seed | epochs | kept | validation | test | seconds of training |\n|---|---|---|---|---|---|"
    )
    accuracies = []
    for seed in args.seeds:
        output = args.output / f"seed-{seed}"
        train(args.data, output, [*args.flags, "--seed", str(seed)])
        metrics = json.loads((output / "metrics.json").read_text())
        validation, test = metrics["accuracy"], test_accuracy(output, args.data)
        accuracies.append((validation, test))
        seconds = sum(epoch["seconds"] for epoch in metrics["epochs"])
        print(f"| {seed} | {len(metrics['epochs'])} | {metrics['epoch']} | {validation:.4f} | {test:.4f} "
              f"| {seconds:.0f} |", flush=True)  # fmt: skip
    means = [mean_and_deviation(list(column)) for column in zip(*accuracies, strict=True)]
    print(f"\nvalidation {means[0]}, test {means[1]} ({len(accuracies)} seeds)")


if __name__ == "__main__":
    main()
