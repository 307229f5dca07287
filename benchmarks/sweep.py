"""Compare a sweep of short trials in podium, as one process per trial, and in Ray Tune.

    podium data prepare --limit 200 --output small
    python benchmarks/sweep.py --data small --ray-python ../ray/bin/python

All train the same network with the same learning rates, two trials at a time, one thread each. Rounds are
interleaved, so that a busy machine slows all of them alike: read the ratios. With `--json FILE` rounds can be run one
at a time; those in the file are included. Times are those of whole programs, with imports and the start and end of
servers. All must leave the same models. Ray's Python needs `ray[tune]` and podium; without it there are no rows for
Ray.

`--many N` measures N trials that only print a number, and the memory of the engine meanwhile.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import describe, memory

PARALLEL = 2
TRIVIAL = "import sys\nimport {module}\nprint('loss=' + sys.argv[1])\n"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What is measured with what."""

    data: Path
    """A prepared MNIST of few images."""

    trials: int
    """Number of trials."""

    ray: Path | None
    """A Python with ray[tune] and podium."""

    rates: list[str] = field(default_factory=list)
    """The learning rate of each trial."""


def flags(data: str, rate: str, output: str) -> list[str]:
    """Return the trainer's flags of one trial."""
    return [
        f"--lr={rate}",
        f"--data={data}",
        f"--output={output}",
        "--epochs=1",
        "--threads=1",
        "--no-cuda",
    ]


def experiment(
    command: list[str], algorithm: str, space: dict[str, Any], trials: int
) -> dict[str, Any]:
    """Return an Experiment that runs a command for values of x."""
    container = {"name": "training", "image": "podium-trainer:0.1.0", "command": command}
    job = {
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    known = {"x": "x", "trial": "${trialSpec.Name}"}
    used = [
        name for name in known if any(f"${{trialParameters.{name}}}" in word for word in command)
    ]
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": algorithm},
        "parallelTrialCount": PARALLEL,
        "maxTrialCount": trials,
        "parameters": [{"name": "x", **space}],
        "trialTemplate": {
            "primaryContainerName": "training",
            "trialParameters": [{"name": name, "reference": known[name]} for name in used],
            "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": job},
        },
    }
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "bench"},
        "spec": spec,
    }


@contextmanager
def engine(folder: Path, manifest: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Run an Experiment as a user would; the body waits for its end."""
    (folder / "sweep.yaml").write_text(json.dumps(manifest))
    podium = [sys.executable, "-c", "from podium.cli import main; main()"]
    command = [
        *podium,
        "experiment",
        "run",
        str(folder / "sweep.yaml"),
        "--dir",
        str(folder / "cluster"),
        "--json",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, text=True, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        sys.exit((folder / "log").read_text())


def podium(bench: Bench, folder: Path) -> dict[str, float]:
    """Run the sweep with this engine."""
    command = ["python", "-m", "podium.trainer"]
    command += flags(
        str(bench.data), "${trialParameters.x}", f"{folder}/models/${{trialParameters.trial}}"
    )
    begin = time.perf_counter()
    space = {"parameterType": "categorical", "feasibleSpace": {"list": bench.rates}}
    with engine(folder, experiment(command, "grid", space, bench.trials)) as process:
        process.wait()
    return {"wall": time.perf_counter() - begin, **spent(folder)}


def processes(bench: Bench, folder: Path) -> dict[str, float]:
    """Run each trial in a process of its own, with nothing around them."""

    def trial(rate: str) -> float:
        begin = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "podium.trainer",
            *flags(str(bench.data), rate, f"{folder}/models/{rate}"),
        ]
        subprocess.run(
            command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return time.perf_counter() - begin

    begin = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        each = list(pool.map(trial, bench.rates))
    return {"wall": time.perf_counter() - begin, "trial": statistics.median(each)}


def ray_tune(bench: Bench, folder: Path, *, reuse: bool) -> dict[str, float]:
    """Run the sweep with Ray Tune."""
    order = {"data": str(bench.data), "rates": bench.rates, "folder": str(folder), "reuse": reuse}
    begin = time.perf_counter()
    done = subprocess.run([str(bench.ray), __file__, "--ray", json.dumps(order)], cwd=folder, text=True,
                          capture_output=True, env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"})  # fmt: skip
    wall = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}")
    return {"wall": wall, **json.loads(done.stdout.splitlines()[-1])}


def run_ray(order: dict[str, Any]) -> None:
    """Run in Ray's Python; prints its own times."""
    import ray
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        import signal

        from podium.trainer.__main__ import main

        signal.signal = lambda *_: None  # type: ignore[assignment]  # Ray calls this from a thread, where it may not
        output = f"{order['folder']}/models/{config['x']}"
        if main(flags(order["data"], config["x"], output)):
            raise RuntimeError("the trainer failed")
        tune.report({"loss": json.loads(Path(output, "metrics.json").read_text())["loss"]})

    config = tune.TuneConfig(
        metric="loss", mode="min", max_concurrent_trials=PARALLEL, reuse_actors=order["reuse"]
    )
    begin = time.perf_counter()
    ray.init(num_cpus=PARALLEL, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    ready = time.perf_counter()
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"x": tune.grid_search(order["rates"])},
        tune_config=config,
        run_config=tune.RunConfig(storage_path=order["folder"], verbose=0),
    )  # fmt: skip
    results = tuner.fit()
    fitted = time.perf_counter()
    ray.shutdown()
    if results.num_errors:
        raise SystemExit(f"Ray Tune: {results.errors[0]}")
    print(json.dumps({"init": ready - begin, "fit": fitted - ready}), flush=True)


def processor_seconds() -> float:
    """Return what all programs started from here have computed, those of Ray that it leaves to nobody excepted."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def models(folder: Path) -> set[tuple[float, float]]:
    """Return learning rate and loss of each model that a way left."""
    seen = set()
    for path in folder.glob("models/*/metrics.json"):
        rate = json.loads(path.with_name("hyperparameters.json").read_text())["lr"]
        seen.add((rate, round(json.loads(path.read_text())["loss"], 4)))
    return seen


def spent(folder: Path) -> dict[str, float]:
    """Return the median seconds of a trial from its start to its result, of its training steps, and of all else in it.

    What is beyond the steps is taken trial by trial: reading the data, building the network, validation, checking and
    writing the model, and everything the engine does for the trial. The first trials also wait for the imports.
    """
    from datetime import datetime

    whole, steps = [], []
    for path in (folder / "cluster" / "trials").glob("*/object.json"):
        status = json.loads(path.read_text())["status"]
        begun, ended = (
            datetime.fromisoformat(status[name]) for name in ("startTime", "completionTime")
        )
        whole.append((ended - begun).total_seconds())
        metrics = json.loads((folder / "models" / path.parent.name / "metrics.json").read_text())
        steps.append(sum(epoch["seconds"] for epoch in metrics["epochs"]))
    beyond = [total - own for total, own in zip(whole, steps, strict=True)]
    return {
        "trial": statistics.median(whole),
        "steps": statistics.median(steps),
        "beyond": statistics.median(beyond),
    }


def compare(
    bench: Bench, rounds: int, known: dict[str, list[dict[str, float]]]
) -> dict[str, list[dict[str, float]]]:
    """Measure every way in every round; each round begins with another one."""
    ways: dict[str, Callable[[Path], dict[str, float]]] = {
        "podium": lambda folder: podium(bench, folder),
        "a process for each trial": lambda folder: processes(bench, folder),
    }
    if bench.ray:
        ways["Ray Tune"] = lambda folder: ray_tune(bench, folder, reuse=False)
        ways["Ray Tune, reuse_actors"] = lambda folder: ray_tune(bench, folder, reuse=True)
    measured = {name: known.get(name, []) for name in ways}
    done = len(measured["podium"])
    for turn in range(done, done + rounds):
        names = list(ways)
        seen = []
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with tempfile.TemporaryDirectory() as scratch:
                before = processor_seconds()
                figures = ways[name](Path(scratch))
                measured[name].append(figures | {"processor": processor_seconds() - before})
                seen.append(models(Path(scratch)))
            times = ", ".join(
                f"{what} {seconds:.2f}" for what, seconds in measured[name][-1].items()
            )
            print(f"round {turn + 1}: {name}: {times} s", file=sys.stderr, flush=True)
        if any(trained != seen[0] or len(trained) != bench.trials for trained in seen):
            sys.exit(
                f"the ways did not train the same {bench.trials} models: {[len(trained) for trained in seen]}"
            )
    return measured


def report(bench: Bench, measured: dict[str, list[dict[str, float]]]) -> None:
    """Print the table."""
    images = json.loads((bench.data / "dataset.json").read_text())["parts"]["train"]["count"]
    print(describe())
    print(
        f"{bench.trials} trials of {images} images, {PARALLEL} at a time, {len(measured['podium'])} rounds\n"
    )
    print(
        "| way | seconds, median | spread | podium is faster by | processor seconds |\n|---|---|---|---|---|"
    )
    ours = [row["wall"] for row in measured["podium"]]
    for name, rows in measured.items():
        walls = [row["wall"] for row in rows]
        ratio = statistics.median(wall / own for wall, own in zip(walls, ours, strict=True))
        used = (
            "" if "fit" in rows[0] else f"{statistics.median(row['processor'] for row in rows):.1f}"
        )
        spread = f"{min(walls):.1f}–{max(walls):.1f}"
        print(f"| {name} | {statistics.median(walls):.1f} | {spread} | {ratio:.1f}x | {used} |")
    trial, steps, beyond = (
        statistics.median(row[name] for row in measured["podium"])
        for name in ("trial", "steps", "beyond")
    )
    alone = statistics.median(row["trial"] for row in measured["a process for each trial"])
    print(
        f"\na trial takes {trial:.2f} s here, {alone:.2f} s as a process: {alone / trial:.1f} times as long"
    )
    print(f"its steps alone take {steps:.2f} s: here {beyond:.2f} s come on top of them")
    for name in ("Ray Tune", "Ray Tune, reuse_actors"):
        if name in measured:
            fit = statistics.median(row["fit"] for row in measured[name])
            print(f"{name}: of its time {fit:.1f} s between ray.init and ray.shutdown")


def many(count: int, module: str) -> None:
    """Run trials that only print a number, and watch the engine's memory."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "trivial.py").write_text(TRIVIAL.format(module=module))
        os.environ["PYTHONPATH"] = scratch
        command = ["python", "-m", "trivial", "${trialParameters.x}"]
        space = {"parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}
        begin, rows, latest = time.perf_counter(), [], (0, 0.0, 0.0)
        marks = [mark for mark in (count // 10, count // 2, count * 9 // 10) if mark]
        with engine(folder, experiment(command, "random", space, count)) as process:
            while process.poll() is None:
                time.sleep(0.1)
                if megabytes := memory(process.pid)["VmRSS"]:
                    latest = (ended(folder), time.perf_counter() - begin, megabytes)
                if marks and latest[0] >= marks[0]:
                    marks.pop(0)
                    rows.append(latest)
        wall = time.perf_counter() - begin
        status = json.loads((folder / "cluster/experiments/bench/object.json").read_text())[
            "status"
        ]
    if status.get("trialsSucceeded") != count:
        sys.exit(f"only {status.get('trialsSucceeded')} of {count} trials succeeded")
    print(
        f"{describe()}\n{count} trials of `import {module}; print(…)`, {PARALLEL} at a time: {wall:.1f} s\n"
    )
    print("| trials ended | seconds | memory of the engine, MB |\n|---|---|---|")
    for trials, seconds, megabytes in [*rows, latest]:
        print(f"| {trials} | {seconds:.1f} | {megabytes:.0f} |")


def ended(folder: Path) -> int:
    """Return how many trials have succeeded by now."""
    try:
        status = (
            json.loads((folder / "cluster/experiments/bench/object.json").read_text()).get("status")
            or {}
        )
    except FileNotFoundError:
        return 0
    return int(status.get("trialsSucceeded", 0))


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a prepared MNIST of few images")
    parser.add_argument("--ray-python", type=Path, help="a Python with ray[tune] and podium")
    parser.add_argument("--trials", type=int, default=16, help="trials of a sweep (default: 16)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--json",
        type=Path,
        help="write the figures to this file; those in it count as earlier rounds",
    )
    parser.add_argument("--many", type=int, metavar="N", help="measure N trivial trials instead")
    parser.add_argument(
        "--module", default="json", help="what a trivial trial imports (default: json)"
    )
    parser.add_argument("--ray", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ray:
        return run_ray(json.loads(args.ray))
    if args.many:
        return many(args.many, args.module)
    if not args.data:
        parser.error("--data or --many is needed")
    # Not resolved: a virtual environment's Python is a link.
    ray = args.ray_python.absolute() if args.ray_python else None
    rates = [f"{0.05 * 1.2**number:.4f}" for number in range(args.trials)]
    bench = Bench(data=args.data.resolve(), trials=args.trials, ray=ray, rates=rates)
    known = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    measured = compare(bench, args.rounds, known)
    if args.json:
        args.json.write_text(json.dumps(measured, indent=1) + "\n")
    report(bench, measured)


if __name__ == "__main__":
    main()
