"""Write scikit-learn's handwritten digits as tables: digits.csv, and new-digits.csv without the answers.

python make_data.py
"""

import csv

from sklearn.datasets import load_digits

NEW = 97
"""Digits kept back for new-digits.csv."""


def main() -> None:
    """Write the tables: 64 pixels of 0 to 16 a row."""
    digits = load_digits()
    pixels = [f"p{row}{column}" for row in range(8) for column in range(8)]
    rows = [
        [*map(int, image), int(label)]
        for image, label in zip(digits.data, digits.target, strict=True)
    ]
    for name, header, content in (
        ("digits.csv", [*pixels, "digit"], rows[:-NEW]),
        ("new-digits.csv", pixels, [row[:-1] for row in rows[-NEW:]]),
    ):
        with open(name, "w", newline="") as file:
            csv.writer(file).writerows([header, *content])


if __name__ == "__main__":
    main()
