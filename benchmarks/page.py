"""Measure `podium ui` over a sweep of many trials: first paint, what a new line of a trial takes to the page, memory.

    python benchmarks/page.py --trials 2000 --minutes 5

Makes a home with a sweep of so many trials that print one line, and one whose trial prints its clock ten times; opens
both in headless Chromium (Debian's package chromium). Prints the seconds from the click to the first row of the
leaderboard and from a trial's line to its point in the page's curve, and the server's memory at the beginning and at
each tenth of the time that the page was open.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import describe, memory

TRIAL = """
import sys, time
x, lines = sys.argv[1:]
for line in range(int(lines)):
    print(f"loss={time.time() % 1000 if int(lines) > 1 else float(x)}", flush=True)
    time.sleep(3.0 if int(lines) > 1 else 0.0)
"""


POINTS = """
() => [...document.querySelectorAll("[data-figure=curves]")]
  .flatMap(place => (place.data ?? []).flatMap(line => line.y))
"""


def experiment(name: str, program: Path, trials: int, lines: int) -> dict[str, Any]:
    """Return an Experiment by random search whose trials print so many lines."""
    container = {
        "name": "main",
        "image": "any",
        "command": ["python", str(program), "${trialParameters.x}", str(lines)],
    }
    job = {"apiVersion": "batch/v1", "kind": "Job",
           "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}  # fmt: skip
    space = {"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}
    return {
        "apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": name},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"}, "algorithm": {"algorithmName": "random"},
            "parallelTrialCount": min(2, trials), "maxTrialCount": trials, "maxFailedTrialCount": 1,
            "parameters": [space],
            "trialTemplate": {"primaryContainerName": "main", "retain": True, "trialSpec": job,
                              "trialParameters": [{"name": "x", "reference": "x"}]},
        },
    }  # fmt: skip


def first_paint(browser: Any, url: str) -> float:
    """Return the seconds until the leaderboard has its first row."""
    page = browser.new_page()
    began = time.monotonic()
    page.goto(url, wait_until="commit")
    page.wait_for_selector("tr.best")
    took = time.monotonic() - began
    page.close()
    return took


def delays(page: Any, count: int) -> list[float]:
    """Return the seconds from each line that a trial prints, its own clock, to its point in the page's curve."""
    seen: set[float] = set()
    took: list[float] = []
    while len(took) < count:
        points = page.evaluate(POINTS)
        for point in set(points) - seen:
            took.append(
                (time.time() - point) % 1000
            )  # figures hold few digits: the trial prints the last of its clock
        seen |= set(points)
        time.sleep(0.02)
    return took[1:]  # the first were there when the page was opened


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000, help="default: 2000")
    parser.add_argument(
        "--minutes",
        type=float,
        default=1.0,
        help="how long the page is open at the end (default: 1)",
    )
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    import podium

    print(describe())
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        os.environ["PODIUM_HOME"] = scratch
        program = Path(scratch, "trial.py")
        program.write_text(TRIAL)
        podium.sweep(experiment("many", program, args.trials, 1)).close()
        words = ["-c", "from podium.cli import main; main()", "ui", "--port", "0"]
        server = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
        assert server.stderr
        found = re.search(r"(http://\S+)/\?token=(\S+)", server.stderr.readline())
        assert found
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        context = browser.new_context()
        context.new_page().goto(f"{found[1]}/?token={found[2]}")
        time.sleep(10)  # what computes importance is loaded by then
        paints = [first_paint(context, f"{found[1]}/sweeps/many") for _ in range(5)]
        first, others = paints[0], statistics.median(paints[1:])
        print(f"first paint of {args.trials} trials: {first:.2f} s, then median {others:.2f} s")
        clock = podium.sweep(experiment("clock", program, 1, 10), wait=False)
        page = context.new_page()
        page.goto(f"{found[1]}/sweeps/clock")
        page.wait_for_selector("[data-figure=curves] .trace")
        took = delays(page, 7)
        print(
            f"from a line to its point: median {statistics.median(took):.2f} s, at most {max(took):.2f} s"
        )
        clock.close()
        page.goto(f"{found[1]}/")
        held = [memory(server.pid)["VmRSS"]]
        for _ in range(10):
            time.sleep(6 * args.minutes)
            held.append(memory(server.pid)["VmRSS"])
        print(f"memory over {args.minutes:g} min: {', '.join(f'{each:.0f}' for each in held)} MiB")
        browser.close()
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
