"""Make a year of customers of a phone company, some of whom left: numbers, words, dates and holes.

    python make_data.py

Writes customers.csv, 8,000 rows with the column `left`, and new-customers.csv, 200 rows without it. People leave for
reasons that are in the data (short contracts, unanswered complaints, a price far above that of their plan) and for some
that are not.
"""

import argparse
import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

PLANS = {"basic": 15.0, "family": 35.0, "business": 60.0}
REGIONS = ("north", "south", "east", "west")
NAMES = (
    "customer",
    "joined",
    "age",
    "region",
    "plan",
    "fee",
    "calls",
    "complaints",
    "paperless",
    "left",
)


def make(count: int, rng: np.random.Generator) -> list[list[object]]:
    """Return rows in the order of NAMES; None where nobody knows."""
    plan = rng.choice(list(PLANS), count, p=[0.5, 0.3, 0.2])
    fee = np.array([PLANS[name] for name in plan]) * rng.lognormal(0, 0.2, count)
    months = rng.exponential(24, count).clip(0, 120)
    age = rng.normal(46, 15, count).clip(18, 95).round()
    calls, complaints = rng.poisson(3, count), rng.poisson(0.7, count)
    region, paperless = rng.choice(REGIONS, count), rng.random(count) < 0.6
    dear = fee / np.array([PLANS[name] for name in plan]) - 1
    reasons = (
        -0.6 - 0.05 * months + 4 * dear + 0.9 * complaints - 0.02 * (age - 46) * (plan != "business")
        + 1.1 * ((plan == "basic") & (region == "east")) - 0.5 * paperless + rng.normal(0, 0.6, count)
    )  # fmt: skip
    left = rng.random(count) < 1 / (1 + np.exp(-reasons))
    joined = [date(2025, 12, 31) - timedelta(days=int(30.4 * past)) for past in months]
    rows = zip(range(10_001, 10_001 + count), joined, age.astype(int), region, plan, fee.round(2), calls, complaints,
               np.where(paperless, "yes", "no"), np.where(left, "yes", "no"), strict=True)  # fmt: skip
    table = [list(row) for row in rows]
    for name, share in {"age": 0.12, "plan": 0.04, "fee": 0.03, "paperless": 0.08}.items():
        for at in np.flatnonzero(rng.random(count) < share):
            table[at][NAMES.index(name)] = None
    return table


def write(path: Path, names: tuple[str, ...], rows: list[list[object]]) -> None:
    """Write a CSV file; a hole is an empty field."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows(row[: len(names)] for row in rows)
    print(f"{path}: {len(rows):,} rows")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent, help="directory for the files"
    )
    output = parser.parse_args().output
    rng = np.random.default_rng(2026)
    write(output / "customers.csv", NAMES, make(8000, rng))
    write(output / "new-customers.csv", NAMES[:-1], make(200, rng))


if __name__ == "__main__":
    main()
