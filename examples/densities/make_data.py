"""Write scikit-learn's measurements of cells as tables: cells.csv, and new-cells.csv without the diagnosis.

python make_data.py
"""

import csv
import random

from sklearn.datasets import load_breast_cancer

NEW = 69
"""Rows kept back for new-cells.csv."""


def main() -> None:
    """Write the tables: thirty measurements a row."""
    cells = load_breast_cancer()
    rows = [
        [*row, cells.target_names[label]]
        for row, label in zip(cells.data, cells.target, strict=True)
    ]
    random.Random(1).shuffle(rows)
    names = [name.replace(" ", "_") for name in cells.feature_names]
    for file_name, header, content in (
        ("cells.csv", [*names, "diagnosis"], rows[:-NEW]),
        ("new-cells.csv", names, [row[:-1] for row in rows[-NEW:]]),
    ):
        with open(file_name, "w", newline="") as file:
            csv.writer(file).writerows([header, *content])


if __name__ == "__main__":
    main()
