"""The recipes of docs/recipes.md for tests: the page's commands, and a copy of the files that takes small data."""

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECIPES = ROOT / "examples" / "recipes"
PAGE = ROOT / "docs" / "recipes.md"
VOLUME = "/tmp/podium-recipes"
BUCKET = "s3://recipes"


def small_data(dataset: Path, volume: Path, bucket: str = BUCKET) -> dict[str, str]:
    """Return by what a test replaces the data and places of the recipes, as pattern and text."""
    return {
        r"(data[, ]+prepare[, ]+)(fashion-)?mnist\b": rf"\g<1>{dataset}",
        r"(--limit[, ]+\"?)6000": r"\g<1>0",  # a prepared dataset is taken as it is
        r"^dataset: mnist\nlimit: 6000$": f"dataset: {dataset}",
        re.escape(VOLUME): str(volume),
        re.escape(BUCKET): bucket,
    }


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Return a text with every pattern replaced."""
    for pattern, new in changes.items():
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    return text


def copy_recipes(folder: Path, changes: Mapping[str, str]) -> Path:
    """Copy the recipes' files below a folder, changed; return the copy."""
    copy = folder / RECIPES.relative_to(ROOT)
    for file in RECIPES.rglob("*"):
        if file.suffix in (".yaml", ".py", ".ipynb") and "podium-work" not in file.parts:
            target = copy / file.relative_to(RECIPES)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(changed(file.read_text(), changes))
    return copy


def typed_lines(section: str) -> list[str]:
    """Return the lines that a section of the page lets its reader type here: those behind a `$`."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    assert lines, f"no section {section!r} with commands"
    return lines
