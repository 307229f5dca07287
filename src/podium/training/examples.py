"""For the report: the items a model is most wrong about, shown as what they are, and points of a
regression."""

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from podium.data.schema import DatasetInfo, InputInfo
    from podium.data.split import Split
    from podium.scoring import Scores

MOST_EXAMPLES = 12
MOST_POINTS = 2_000
"""Points of a scatter plot; more would make the report slow."""
LARGEST_SIDE = 160
"""Pixels of a picture in the report."""
MOST_COLUMNS = 40
"""Columns of a row in the report."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A test item and what was predicted for it."""

    item: int
    """Its index in the test part."""
    target: str
    predicted: str
    score: float | None
    """Probability of the true class, or absolute error."""
    image: str | None = None
    """A PNG as a data URL."""
    row: dict[str, str] | None = None
    """Values by column."""
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Points:
    """True and predicted numbers of some items, for a plot."""

    true: list[float]
    predicted: list[float]


def worst_examples(
    info: "DatasetInfo",
    part: "Split",
    scores: "Scores",
    items: "np.ndarray",
    most: int = MOST_EXAMPLES,
) -> list[Example]:
    """Describe the items that a model is most wrong about, the worst first; in classification only
    wrong ones.

    Args:
        part: The part that was scored.
        scores: On some of its items.
        items: Positions of these in the part, [m].
    """
    import numpy as np

    order, values = _by_class(scores) if info.kind == "classification" else _by_error(scores)
    return [
        Example(
            item=int(items[at]),
            target=_name(info, scores.target[at]),
            predicted=_name(info, predicted),
            score=None if np.isnan(values[at]) else float(values[at]),
            **_shown(info, part, int(items[at])),
        )
        for at, predicted in zip(order[:most], _predicted(scores, order[:most]), strict=True)
    ]


def _by_class(scores: "Scores") -> tuple["np.ndarray", "np.ndarray"]:
    """Return the wrong items, the surest mistakes first, and the probability of each item's true
    class."""
    import numpy as np

    from podium.scoring import class_indices

    wrong = np.flatnonzero(class_indices(scores.decided) != scores.target)
    values = np.full(len(scores.target), np.nan)
    if scores.predictions.ndim == 2:
        values[wrong] = scores.predictions[wrong, scores.target[wrong]]
        wrong = wrong[np.argsort(values[wrong], kind="stable")]
    return wrong, values


def _by_error(scores: "Scores") -> tuple["np.ndarray", "np.ndarray"]:
    """Return the items by their absolute error, the largest first, and the errors."""
    import numpy as np

    errors = np.abs(
        scores.target.reshape(len(scores.target), -1)
        - scores.predictions.reshape(len(scores.target), -1)
    )
    values = errors.mean(1)
    return np.argsort(-values, kind="stable"), values


def _predicted(scores: "Scores", items: "np.ndarray") -> "np.ndarray":
    from podium.scoring import class_indices

    chosen = scores.decided[items]
    return chosen if scores.confusion is None else class_indices(chosen)


def _name(info: "DatasetInfo", value: Any) -> str:
    import numpy as np

    if info.kind == "classification":
        return info.classes[int(value)]
    return ", ".join(f"{number:.6g}" for number in np.atleast_1d(value))


def _shown(info: "DatasetInfo", part: "Split", at: int) -> dict[str, Any]:
    for name, described in info.inputs.items():
        values = part.inputs[name][at]
        if described.meaning == "image":
            return {"image": _picture_url(values)}
        if described.meaning == "table":
            return {"row": _row(described, values)}
        if described.meaning == "tokens" and (text := _text(info, name, values)):
            return {"text": text}
    return {}


def _row(described: "InputInfo", values: "np.ndarray") -> dict[str, str]:
    columns = list(zip(described.columns, values.tolist(), strict=True))[:MOST_COLUMNS]
    return {
        column.name: column.categories[int(value)]
        if column.kind == "category" and 0 <= value < len(column.categories)
        else f"{value + column.center:.{12 if column.center else 6}g}"
        for column, value in columns
    }


def _text(info: "DatasetInfo", name: str, tokens: "np.ndarray") -> str:
    if info.preprocessing.get("tokens") != name:
        return ""
    vocabulary = info.preprocessing.get("vocabulary", [])
    return " ".join(vocabulary[token] for token in tokens.tolist() if 0 < token < len(vocabulary))


def _picture_url(picture: "np.ndarray") -> str:
    """Return a picture ``[height, width]`` or ``[height, width, 3]`` as a data URL of a PNG."""
    import numpy as np
    from PIL import Image

    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) / (high - low or 1) * 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def regression_points(scores: "Scores", most: int = MOST_POINTS) -> list[Points]:
    """Return true and predicted numbers of some items for a plot, for each number of the target.

    Args:
        most: How many items; more are thinned out evenly.
    """
    import numpy as np

    items = np.unique(np.linspace(0, len(scores.target) - 1, most).astype(int))
    true, predicted = (
        array[items].reshape(len(items), -1).T for array in (scores.target, scores.predictions)
    )
    return [
        Points(true=values.astype(float).tolist(), predicted=guesses.astype(float).tolist())
        for values, guesses in zip(true, predicted, strict=True)
    ]
