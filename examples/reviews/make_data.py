"""Make reviews of hotels whose sense depends on the order of words: negations, comparisons and a last word that counts.

    python make_data.py

Writes reviews.csv, 8,000 sentences with the column `opinion` (good, bad), and new-reviews.txt, a sentence a line. A
bag of words knows little of them: "not noisy but never clean" and "not clean but never noisy" have the same words.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

GOOD = (
    "clean",
    "friendly",
    "quiet",
    "bright",
    "spacious",
    "lovely",
    "cheap",
    "warm",
    "fresh",
    "comfortable",
    "modern",
)
BAD = (
    "dirty",
    "rude",
    "noisy",
    "dark",
    "tiny",
    "awful",
    "overpriced",
    "cold",
    "stale",
    "broken",
    "outdated",
    "smelly",
)
THINGS = (
    "room",
    "staff",
    "breakfast",
    "bathroom",
    "bed",
    "view",
    "pool",
    "lobby",
    "street",
    "price",
    "kitchen",
    "bar",
)
NOT = ("not", "never", "hardly", "by no means", "not at all")
VERY = ("", "", "very", "really", "so", "quite", "too")
TURNS = ("but", "however", "yet", "although at first we thought otherwise,")
NAMES = ("text", "nights", "opinion")


def clause(rng: np.random.Generator, good: bool) -> str:
    """Return a clause about a thing that praises it or not; some of them by denying the contrary."""
    denied = rng.random() < 0.3
    word = rng.choice(GOOD if good != denied else BAD)
    quality = f"{rng.choice(NOT)} {word}" if denied else f"{rng.choice(VERY)} {word}".strip()
    return f"the {rng.choice(THINGS)} was {quality}"


def sentence(rng: np.random.Generator, good: bool) -> str:
    """Return a sentence whose last clause decides; what comes before a turn says the contrary."""
    if rng.random() < 0.35:
        return (
            f"{clause(rng, not good)} {rng.choice(TURNS)} {clause(rng, good)}".capitalize()
            + rng.choice([".", "!"])
        )
    return f"{clause(rng, good)} and {clause(rng, good)}".capitalize() + rng.choice([".", "!"])


def make(count: int, rng: np.random.Generator) -> list[tuple[str, int, str]]:
    """Return rows in the order of NAMES; of a hundred people two say one thing and click another."""
    rows = []
    for _ in range(count):
        good = bool(rng.random() < 0.5)
        opinion = "good" if good != (rng.random() < 0.02) else "bad"
        rows.append((sentence(rng, good), int(rng.integers(1, 15)), opinion))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent, help="directory for the files"
    )
    output = parser.parse_args().output
    rng = np.random.default_rng(2026)
    rows = list(
        {text: (text, nights, opinion) for text, nights, opinion in make(8_500, rng)}.values()
    )
    kept, new = rows[:8_000], rows[8_000:8_050]
    with (output / "reviews.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(NAMES)
        writer.writerows(kept)
    (output / "new-reviews.txt").write_text("".join(f"{text}\n" for text, _, _ in new))
    print(
        f"{output / 'reviews.csv'}: {len(kept):,} sentences; {output / 'new-reviews.txt'}: {len(new)}"
    )


if __name__ == "__main__":
    main()
