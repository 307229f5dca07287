"""Make the rents of the flats of a city: size, age, district, floor and what is missing in the advertisements.

    python make_data.py

Writes rents.csv, 6,000 flats with the column `rent` in euros a month, and new-flats.csv, 100 flats without it. A square
meter costs more near the center and near water, less in a large flat, most before 1918 and after 2000; a fifth floor
without a lift is cheap; and every landlord has an idea of his own.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

DISTRICTS = {"center": 0.0, "harbor": 2.1, "old town": 1.2, "hill": 4.5, "station": 2.8, "garden city": 7.9,
             "new town": 6.2, "mill": 5.1}  # fmt: skip
WATER = ("harbor", "mill")
NAMES = (
    "district",
    "kilometers",
    "size",
    "rooms",
    "built",
    "floor",
    "lift",
    "balcony",
    "heating",
    "rent",
)
HEATING = ("gas", "district", "oil", "heat pump")


def make(count: int, rng: np.random.Generator) -> list[list[object]]:
    """Return rows in the order of NAMES; None where the advertisement says nothing."""
    district = rng.choice(list(DISTRICTS), count)
    kilometers = (
        np.array([DISTRICTS[name] for name in district]) + rng.gamma(2, 0.4, count)
    ).round(2)
    size = rng.lognormal(4.2, 0.35, count).clip(18, 240).round(1)
    rooms = (size / rng.normal(26, 4, count).clip(16, 40)).clip(1, 8).round()
    built = rng.choice([1900, 1935, 1958, 1972, 1988, 2005, 2018], count) + rng.integers(
        -8, 8, count
    )
    floor, lift = rng.integers(0, 7, count), rng.random(count) < 0.4
    balcony, heating = rng.random(count) < 0.6, rng.choice(HEATING, count)
    meter = (
        15 - 0.75 * kilometers + 2.0 * np.isin(district, WATER) + 3.5 * (built > 2000) + 1.8 * (built < 1918)
        - 2.2 * np.log(size / 65) + 0.8 * balcony - 0.5 * (floor >= 4) * ~lift * floor + 0.7 * (heating == "heat pump")
    )  # fmt: skip
    rent = (meter.clip(4) * size * rng.lognormal(0, 0.06, count)).round(2)
    words = [np.where(column, "true", "false") for column in (lift, balcony)]
    rows = zip(
        district,
        kilometers,
        size,
        rooms.astype(int),
        built,
        floor,
        *words,
        heating,
        rent,
        strict=True,
    )
    table = [list(row) for row in rows]
    for name, share in {"built": 0.15, "lift": 0.1, "heating": 0.2, "floor": 0.05}.items():
        for at in np.flatnonzero(rng.random(count) < share):
            table[at][NAMES.index(name)] = None
    return table


def write(path: Path, names: tuple[str, ...], rows: list[list[object]]) -> None:
    """Write a CSV file; what is not known is an empty field."""
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
    write(output / "rents.csv", NAMES, make(6000, rng))
    write(output / "new-flats.csv", NAMES[:-1], make(100, rng))


if __name__ == "__main__":
    main()
