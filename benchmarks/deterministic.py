"""What the same trials each time cost: sweeps of trials that sleep, with and without `--deterministic`.

    python benchmarks/deterministic.py --trials 80 --parallel 4 --rounds 3

Each trial sleeps for a time drawn anew each time it runs, log-normal with a median of 0.4 s and a deviation of 0.5. The
rounds alternate; prints seconds and their ratios, median over the rounds, and whether the trials were the same.
"""

import argparse
import os
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from machine import describe

import podium

TRIAL = """
import random, sys, time
x, y = (float(word.partition("=")[2]) for word in sys.argv[1:])
time.sleep(0.4 * random.lognormvariate(0, 0.5))
print(f"loss={(x - 0.3) ** 2 + (y - 0.6) ** 2}")
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=80, help="default: 80")
    parser.add_argument("--parallel", type=int, default=4, help="default: 4")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    args = parser.parse_args()
    print(describe())
    settings = {"as it comes": None, "2 times": 2 * args.parallel, "3 times": 3 * args.parallel}
    took: dict[str, list[float]] = {name: [] for name in settings}
    trials: dict[str, set[tuple[str, ...]]] = {name: set() for name in settings}
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        Path("trial.py").write_text(TRIAL)
        for number in range(args.rounds):
            for name, deterministic in settings.items():
                began = time.monotonic()
                sweep = podium.tune("trial.py", {"x": (0.0, 1.0), "y": (0.0, 1.0)}, objective="min:loss", seed=1,
                                    trials=args.trials, parallel=args.parallel, algorithm="tpe",
                                    deterministic=deterministic, cluster=f"{number}-{deterministic}")  # fmt: skip
                took[name].append(time.monotonic() - began)
                with closing(sweep):
                    trials[name].add(
                        tuple(sorted(trial.assignments["x"] for trial in sweep.results))
                    )
    plain = statistics.median(took["as it comes"])
    for name, seconds in took.items():
        same = "the same trials each time" if len(trials[name]) == 1 else "other trials each time"
        middle = statistics.median(seconds)
        print(
            f"{name}: {middle:.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), {middle / plain:.2f} times, {same}"
        )


if __name__ == "__main__":
    main()
