"""Test items and pictures that the report of a run shows."""

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from podium.data.schema import DatasetInfo, InputInfo
from podium.data.split import Split
from podium.scoring import Scores, class_indices
from podium.training.base import say
from podium.training.handover import Example, Picture, Points

_MOST_EXAMPLES = 12
MOST_POINTS = 2_000
"""Points of a scatter plot; more would make the report slow."""
_LARGEST_SIDE = 160
"""Pixels of a picture in the report."""
_MOST_COLUMNS = 40
"""Columns of a row in the report."""


def worst_examples(
    info: DatasetInfo, part: Split, scores: Scores, items: np.ndarray
) -> list[Example]:
    """Describe the items that a model is most wrong about, the worst first; in classification only
    wrong ones.

    Args:
        part: The part that was scored.
        scores: On some of its items.
        items: Positions of these in the part, [m].
    """
    order, values = _by_class(scores) if info.kind == "classification" else _by_error(scores)
    shown = order[:_MOST_EXAMPLES]
    return [
        Example(
            item=int(items[at]),
            target=_name(info, scores.target[at]),
            predicted=_name(info, predicted),
            score=None if np.isnan(values[at]) else float(values[at]),
            **_shown(info, part, int(items[at])),
        )
        for at, predicted in zip(shown, _predicted(scores, shown), strict=True)
    ]


def points_of(scores: Scores, most: int = MOST_POINTS) -> list[Points]:
    """Return true and predicted numbers of some items for a plot, for each number of the target.

    Args:
        most: How many items; more are thinned out evenly.
    """
    items = np.unique(np.linspace(0, len(scores.target) - 1, most).astype(int))
    true, predicted = (
        array[items].reshape(len(items), -1).T for array in (scores.target, scores.predictions)
    )
    return [
        Points(true=values.astype(float).tolist(), predicted=guesses.astype(float).tolist())
        for values, guesses in zip(true, predicted, strict=True)
    ]


def _by_class(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Return the wrong items, the surest mistakes first, and the probability of each item's true
    class."""
    wrong = np.flatnonzero(class_indices(scores.decided) != scores.target)
    values = np.full(len(scores.target), np.nan)
    if scores.predictions.ndim == 2:
        values[wrong] = scores.predictions[wrong, scores.target[wrong]]
        wrong = wrong[np.argsort(values[wrong], kind="stable")]
    return wrong, values


def _by_error(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Return the items by their absolute error, the largest first, and the errors."""
    errors = np.abs(
        scores.target.reshape(len(scores.target), -1)
        - scores.predictions.reshape(len(scores.target), -1)
    )
    values = errors.mean(1)
    return np.argsort(-values, kind="stable"), values


def _predicted(scores: Scores, items: np.ndarray) -> np.ndarray:
    chosen = scores.decided[items]
    return chosen if scores.confusion is None else class_indices(chosen)


def _name(info: DatasetInfo, value: Any) -> str:
    if info.kind == "classification":
        return info.classes[int(value)]
    return ", ".join(f"{number:.6g}" for number in np.atleast_1d(value))


def _shown(info: DatasetInfo, part: Split, at: int) -> dict[str, Any]:
    for name, described in info.inputs.items():
        values = part.inputs[name][at]
        if described.meaning == "image":
            return {"image": _picture_url(values)}
        if described.meaning == "table":
            return {"row": _row(described, values)}
        if described.meaning == "tokens" and (text := _text(info, name, values)):
            return {"text": text}
    return {}


def _row(described: InputInfo, values: np.ndarray) -> dict[str, str]:
    columns = list(zip(described.columns, values.tolist(), strict=True))[:_MOST_COLUMNS]
    return {
        column.name: column.categories[int(value)]
        if column.kind == "category" and 0 <= value < len(column.categories)
        else f"{value + column.center:.{12 if column.center else 6}g}"
        for column, value in columns
    }


def _text(info: DatasetInfo, name: str, tokens: np.ndarray) -> str:
    if info.preprocessing.get("tokens") != name:
        return ""
    vocabulary = info.preprocessing.get("vocabulary", [])
    return " ".join(vocabulary[token] for token in tokens.tolist() if 0 < token < len(vocabulary))


def _picture_url(picture: np.ndarray) -> str:
    """Return a picture ``[height, width]`` or ``[height, width, 3]`` as a data URL of a PNG."""
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) / (high - low or 1) * 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    image.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


MOST, LARGEST, ALTOGETHER = 8, 512 * 2**10, 2 * 2**20
"""Pictures, bytes of one and bytes of all: the report is one file that is opened whole and handed
around."""

PNG, JPEG = "image/png", "image/jpeg"

_BEGINNINGS = {PNG: b"\x89PNG\r\n\x1a\n", JPEG: b"\xff\xd8\xff"}
_NAMED_SO = (".png", ".jpg", ".jpeg", ".svg", ".gif", ".webp")


def pictures_among(directory: Path, names: Iterable[str]) -> list[Picture]:
    """Read the PNG and JPEG files of a model directory, and say which pictures are left out, and
    why.

    What a file is its first bytes say, whatever its name is.

    Args:
        directory: Where the files are.
        names: Of the files; those in folders below are a matter of the model, such as its items.
    """
    pictures, total = list[Picture](), 0
    for name in sorted(name for name in names if "/" not in name):
        path = directory / name
        media, size = _media(path), path.stat().st_size
        if media is None:
            if name.lower().endswith(_NAMED_SO):
                _left_out(name, "it is neither a PNG nor a JPEG")
        elif size > LARGEST:
            _left_out(name, f"it has {size:,} bytes, and at most {LARGEST:,} are shown")
        elif len(pictures) == MOST:
            _left_out(name, f"there are {MOST} already")
        elif total + size > ALTOGETHER:
            _left_out(name, f"all together would have more than {ALTOGETHER:,} bytes")
        else:
            total += size
            content = base64.b64encode(path.read_bytes()).decode()
            pictures.append(Picture(name=name, media=media, base64=content))
    return pictures


def _media(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(max(map(len, _BEGINNINGS.values())))
    return next(
        (media for media, beginning in _BEGINNINGS.items() if head.startswith(beginning)), None
    )


def _left_out(name: str, why: str) -> None:
    say(f"the picture {name} is not in the report: {why}")
