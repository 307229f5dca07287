"""Measure scoring and intervals on many rows: `python benchmarks/scoring.py [--rows N]`.

A network of scikit-learn is scored through ONNX over memory maps; each metric's intervals are of random predictions;
every measurement has a process of its own. Prints one JSON object; the figures in docs/benchmarks.md come from here.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import memory

from podium.scoring import METRICS, OnnxModel, score_predictions
from podium.scoring.intervals import difference, figure_interval

CLASSES, COLUMNS = 10, 20


def write_model(target: Path) -> None:
    """Train a small network on some rows and write it as ONNX."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.neural_network import MLPClassifier

    random = np.random.default_rng(0)
    rows = random.normal(size=(2000, COLUMNS)).astype(np.float32)
    model = MLPClassifier((64,), max_iter=20, tol=1.0).fit(
        rows, random.integers(CLASSES, size=2000)
    )
    types = [("table", FloatTensorType([None, COLUMNS]))]
    target.write_bytes(
        to_onnx(model, initial_types=types, options={"zipmap": False}).SerializeToString()
    )


def write_rows(target: Path, count: int) -> None:
    """Write inputs and target, some at a time."""
    random = np.random.default_rng(1)
    rows = np.lib.format.open_memmap(target / "table.npy", "w+", np.float32, (count, COLUMNS))
    for at in range(0, count, 100_000):
        rows[at : at + 100_000] = random.normal(size=rows[at : at + 100_000].shape)
    np.save(target / "target.npy", random.integers(CLASSES, size=count))


class Watch:
    """Measures time, and the memory at most that a process takes beyond what it has at the start, in MB."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self.before, self.begun = memory()["VmRSS"], time.perf_counter()

    def stop(self) -> dict[str, Any]:
        """Return seconds and memory; mapped files count too."""
        seconds = time.perf_counter() - self.begun
        return {"seconds": round(seconds, 1), "more_MB": round(memory()["VmHWM"] - self.before)}


def scored(folder: Path, results: Any) -> None:
    """Score the rows in a fresh process."""
    rows, target = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("table", "target"))
    watch = Watch()
    model = OnnxModel(folder / "model.onnx")
    predicted = model.predict({"table": rows}, classes=CLASSES, target=folder / "out.npy")
    score_predictions(predicted, target, classes=CLASSES)
    results.put(watch.stop())


def limits(name: str, count: int, results: Any) -> None:
    """Compute the intervals of a metric, and of its difference, in a fresh process."""
    metric, random = METRICS[name], np.random.default_rng(2)
    if metric.kind == "regression":
        target = random.normal(size=count)
        first, second = target + random.normal(size=(2, count)) * 0.3
    else:
        target = random.integers(CLASSES, size=count)
        models = random.random((2, count, CLASSES), dtype=np.float32)
        models[:, np.arange(count), target] += 0.2
        models /= models.sum(2, keepdims=True)
        first, second = models
    watch = Watch()
    figure_interval(metric, target, first)
    difference(metric, target, first, second, None)
    results.put(watch.stop())


def apart(work: Any, *arguments: Any) -> dict[str, Any]:
    """Run a function in a fresh process and return what it reports."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=work, args=(*arguments, results))
    process.start()
    reported: dict[str, Any] = results.get()
    process.join()
    return reported


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write_model(folder / "model.onnx")
        write_rows(folder, given.rows)
        result: dict[str, Any] = {
            "rows": given.rows,
            "classes": CLASSES,
            "score": apart(scored, folder),
        }
    result["intervals"] = {
        name: apart(limits, name, given.rows) for name in METRICS if name != "accuracy"
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
