"""What `podium tune` costs beside the trials themselves: a script or function that sleeps, against a loop of Optuna's.

    python benchmarks/tune.py --rounds 5
    python benchmarks/tune.py --rivals RIVALS/bin/python  # where hyperqueue and ray are installed

Optuna's loop and `podium tune` run the same script in a process of its own for each trial, two at a time, with TPE. The
function runs in a process for each trial, or in two that are kept (reuse=True). podium's take in the command from the
shell, the leaderboard, the study that can be resumed and the HTML report; Optuna's prints the best value. HyperQueue
and Ray, each with a server and workers of its own on this machine, run the script at random points without a search.
The rounds alternate; prints medians of seconds and of CPU seconds, children included.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe

SCRIPT = """
import sys, time
time.sleep({seconds})
print(f"loss={{(float(sys.argv[1][4:]) - 1) ** 2}}")
"""

FUNCTION = """
import sys, time, podium
def train(x):
    time.sleep({seconds})
    return {{"loss": (x - 1) ** 2}}
podium.tune(train, {{"x": (-5.0, 5.0)}}, objective="min:loss", trials=int(sys.argv[1]), algorithm="tpe", seed=1,
            reuse=sys.argv[2:] == ["reuse"])
"""

OPTUNA = """
import subprocess, sys, optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
def objective(trial):
    command = [sys.executable, "trial.py", f"--x={trial.suggest_float('x', -5, 5)}"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("=")[2])
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
study.optimize(objective, n_trials=int(sys.argv[1]), n_jobs=2)
print(study.best_value)
"""

HYPERQUEUE = """
import random, sys
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
draw, trials = random.Random(1), range(int(sys.argv[1]))
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client, job = cluster.client(), Job()
    for number in trials:
        job.program([sys.executable, "trial.py", f"--x={draw.uniform(-5, 5)}"], stdout=f"out-{number}")
    client.wait_for_jobs([client.submit(job)])
print(min(float(open(f"out-{number}").read().partition("=")[2]) for number in trials))
"""

RAY = """
import random, subprocess, sys, ray
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
@ray.remote(num_cpus=1)
def trial(x):
    command = [sys.executable, "trial.py", f"--x={x}"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("=")[2])
draw = random.Random(1)
print(min(ray.get([trial.remote(draw.uniform(-5, 5)) for _ in range(int(sys.argv[1]))])))
"""


def run(command: list[str], **environ: str) -> tuple[float, float]:
    """Run a command, and return its seconds and its CPU seconds."""
    environ = {**os.environ, **environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as people run it: compiled once
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environ)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument(
        "--seconds", type=float, default=0.02, help="that a trial sleeps; default: 0.02"
    )
    parser.add_argument("--rivals", type=Path, help="a Python with hyperqueue and ray")
    args = parser.parse_args()
    print(describe())
    rivals = args.rivals and str(args.rivals.absolute())
    podium = str(Path(sys.executable).with_name("podium"))
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        Path("trial.py").write_text(SCRIPT.format(seconds=args.seconds))
        Path("loop.py").write_text(OPTUNA)
        Path("hq.py").write_text(HYPERQUEUE)
        Path("tasks.py").write_text(RAY)
        Path("function.py").write_text(FUNCTION.format(seconds=args.seconds))
        for trials in ("1", "16", "100"):
            tune = [
                podium,
                "tune",
                "trial.py",
                "--x",
                "-5.0..5.0",
                "--objective",
                "min:loss",
                "--seed",
                "1",
            ]
            loops = {
                "podium tune": [*tune, "--trials", trials, "--algorithm", "tpe"],
                "a function": [sys.executable, "function.py", trials],
                "a function, reuse=True": [sys.executable, "function.py", trials, "reuse"],
                "Optuna": [sys.executable, "loop.py", trials],
            }
            if rivals:
                loops["HyperQueue"] = [rivals, "hq.py", trials]
                loops["Ray"] = [rivals, "tasks.py", trials]
            took: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
            for number in range(args.rounds + 1):
                for name, command in loops.items():
                    one = run(command, PODIUM_HOME=f"home-{number}")
                    if number:  # the first round writes bytecode
                        took[name].append(one)
            medians = {
                name: list(map(statistics.median, zip(*each, strict=True)))
                for name, each in took.items()
            }
            print(f"{trials} trial(s) of {args.seconds:g} s")
            for name, (seconds, cpu) in medians.items():
                print(
                    f"  {name}: {seconds:.2f} s, {seconds / medians['Optuna'][0]:.1f} times; CPU {cpu:.2f} s"
                )


if __name__ == "__main__":
    main()
