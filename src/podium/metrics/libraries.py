"""Output formats of well-known libraries, metricsFormats for those that Katib's own format does not
read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from podium.errors import InvalidInput, suggestion
from podium.metrics.goals import COLON_NAME

_CALL = r"(?:[A-Za-z][\w.]*\()?"
"""NumPy and PyTorch print numbers in a dict as np.float64(0.93), tensor(0.93)."""

_VERB = r"(?:\s+(?:is|was|of|at|to|now|improved|rose|fell|dropped|increased|decreased)){0,2}"
_NUMBER = r"([+-]?\d*\.?\d+([Ee][+-]?\d+)?)"


_HELD_OUT = re.compile(r"(?i)(val|test|eval|dev)")
"""Beginning of the name of what is measured on other data than the training's."""

_TOP_K = re.compile(r"(?i)(@|top|acc|accuracy|prec)[\W_]?([2-9]|[1-9]\d+)$")
"""End of the name of what counts the k best guesses, as Acc@5 and top5 do."""


def is_short_for(name: str, wanted: str) -> bool:
    """Return whether a name holds the wanted one or a short form of it, as val_acc has of
    accuracy."""
    name, wanted = name.lower(), wanted.lower()
    words = [word for word in re.split(r"[\W_]", name) if not _HELD_OUT.match(word)]
    return wanted in name or any(len(word) > 2 and wanted.startswith(word) for word in words)


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library's output format of metrics."""

    key: str

    name: str

    line: re.Pattern[str]
    """Tells its lines from others; a group (?>…) keeps it from looking for a later beginning."""

    patterns: tuple[str, ...]
    """metricsFormats that read them."""

    metric: str
    """A metric of validation data, as it prints its name."""

    training: re.Pattern[str]
    """Names of metrics that are not measured on validation data."""

    def meant(self, wanted: str, printed: Sequence[str]) -> str:
        """Return which of the metrics that it printed is meant by a name."""
        measured = [name for name in printed if not self.training.fullmatch(name)] or list(printed)
        if wanted in measured:
            return wanted
        near = [name for name in measured if is_short_for(name, wanted)]
        near = near or get_close_matches(wanted, measured, 1, 0.5) or measured
        near = sorted(near, key=lambda name: not _TOP_K.search(name))
        return sorted(near, key=lambda name: bool(_HELD_OUT.match(name)))[-1]


_COUNTED = r"(?i:epoch|step|iter|iteration|batch|round|fold)s?\s*[\[(#]?\d+(?:\s*/\s*\d+)?[])]?"
_LEVEL = r"DEBUG|INFO|WARN(?:ING)?|ERROR"
_BEFORE = rf"(?:(?:[A-Za-z][\w/@' -]*\s)?(?:{_COUNTED}|{_LEVEL})(?:\s+-)?\s+)?"
"""A counter or a level of logging, which is no part of the name behind it."""

_MEAN = r"[^\r]*?\(\s*[\d.]+(?:[eE][+-]?\d+)?\s*\)"
_OF = r"\[\s*\d+/\d+\s*"
_BATCH = rf"(?:(?i:step|iter|iteration|batch)\s*)?{_OF}(?:\(\s*\d+%\)\s*)?\]"
_METERS = rf"(?i:epoch|fold)s?:?\s*{_OF}\]|{_BATCH}(?:{_MEAN}){{2}}[^\r]*"
"""A line of a batch, with the means so far in parentheses, as PyTorch's examples and timm print it:
``[10/20] Loss 0.2 (0.3) Acc@1 97.2 (71.4)``. It is no metric, though its names are. Of an epoch or
a fold only its number is none: there the best so far or a deviation may be in parentheses."""

COLON = Library(
    key="colon",
    name="a program",
    line=re.compile(r"(?!)"),  # any program might
    # "epoch 3 val_loss: 0.2" is a line of val_loss, "top 5 accuracy: 0.9" one of that name.
    patterns=(rf"{_METERS}|{_BEFORE}({COLON_NAME})\s*[:=]\s*{_CALL}{_NUMBER}",),
    metric="Accuracy",
    training=re.compile(r"(?i)train(ing)?([\W_].*)?"),
)
"""Hand-written print statements: ``Accuracy: 0.93``."""

JSON = replace(
    COLON,
    key="json",
    patterns=(rf"[\"']([\w/@ .|-]+)[\"']\s*:\s*[\"']?{_CALL}{_NUMBER}",),
    metric="accuracy",
)
"""A dict or JSON a line: ``{"val_acc": 0.93}``."""

WORDS = replace(
    JSON,
    key="words",
    patterns=(rf"{_METERS}|([A-Za-z][\w/@-]*){_VERB}[\s:=|│]+{_CALL}{_NUMBER}",),
)
"""Prose: ``loss 0.21 - acc 0.93``, ``test accuracy is 0.93``; a name is one word."""

BY_HAND = (COLON, JSON, WORDS)
"""How people print metrics themselves; what fits most narrowly first."""

LIBRARIES = (
    Library(
        key="huggingface",
        name="Hugging Face's Trainer",
        line=re.compile(r"(?>^.*?\{'(?:eval_|train_)?loss': '?[\d.eE+-]+'?, ).*'epoch': "),
        patterns=(rf"'([\w/|-]+)': '?{_NUMBER}",),
        metric="eval_accuracy",
        training=re.compile(r"loss|train_.*|grad_norm|learning_rate|epoch|.*_(runtime|per_second)"),
    ),
    Library(
        key="lightning",
        name="Lightning",
        line=re.compile(
            r"(?>^.*?Epoch \d+(?:/\d+ +|: +\d+%\|))(?>.*?\d/\d).*it/s"
            r"|(?>^.*?(?:Validate|Test) metric ).*DataLoader 0"
        ),
        # The bar of tqdm, that of rich, which has a line for each metric, and the table of
        # validate() and test().
        patterns=(
            rf"([A-Za-z_][\w/.@-]*)(?:=|: ){_NUMBER}",
            rf"^[│ ]+([\w/.@-]+)[│ ]+{_NUMBER}[│ ]*$",
        ),
        metric="val_acc",
        training=re.compile(r"loss(_step|_epoch)?|train.*|v_num"),
    ),
    Library(
        key="keras",
        name="Keras",
        line=re.compile(r"(?>^.*?\d/\d+(?:\x1b\[0m)? ).*? - \w+: [\d.e+-]+"),
        patterns=(rf"([\w/|-]+): {_NUMBER}",),
        metric="val_accuracy",
        training=re.compile(r"(?!val_).*"),
    ),
    Library(
        key="xgboost",
        name="XGBoost",
        line=re.compile(r"^\[\d+\]\t(?>[\w-]+?-)[\w@.-]+:[\d.eE+-]+"),
        patterns=(rf"([\w@.-]+):{_NUMBER}",),
        metric="eval-logloss",
        training=re.compile(r"d?train(ing)?-.*"),
    ),
    Library(
        key="lightgbm",
        name="LightGBM",
        line=re.compile(
            r"^\[\d+\]\t[^\t]+'s [\w@]+: [\d.eE+-]+|Iteration:\d+, \w+ [\w@]+ : [\d.eE+-]+"
        ),
        patterns=(
            rf"([\w-]+'s [\w@]+): {_NUMBER}",
            rf"(\w+ [\w@]+) : {_NUMBER}",
        ),  # Python's, its command line's
        metric="valid_0's auc",
        training=re.compile(r"train(ing)?('s)? .*"),
    ),
    Library(
        key="catboost",
        name="CatBoost",
        line=re.compile(r"^\d+:\t(?:learn|test): [\d.e+-]+"),
        patterns=(rf"\b(learn|test\d*): {_NUMBER}",),
        metric="test",
        training=re.compile("learn"),
    ),
    Library(
        key="sklearn",
        name="scikit-learn",
        line=re.compile(r"^ +precision +recall +f1-score +support$"),
        patterns=(rf"^ *(accuracy) +{_NUMBER} +\d+$", *COLON.patterns),
        metric="accuracy",
        training=COLON.training,
    ),
    *BY_HAND,
)
"""scikit-learn prints nothing by itself: its own entry reads its classification_report."""


def printed_by(text: str) -> Library | None:
    """Return the library that printed a line, if it is known."""
    return next((library for library in LIBRARIES if library.line.search(text)), None)


def library_of(key: str) -> Library:
    """Return a library by its key.

    Raises:
        InvalidInput: There is none.
    """
    keys = [library.key for library in LIBRARIES]
    if key not in keys:
        raise InvalidInput(
            f"prints is one of {', '.join(keys)}, not {key!r}", suggestion(key, keys)
        )
    return LIBRARIES[keys.index(key)]
