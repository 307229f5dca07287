"""A metric to optimize, a bound on one, and what their names and texts mean."""

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from podium.display.text import exact
from podium.errors import InvalidInput

UNAVAILABLE = "unavailable"
"""Value that Katib stores for a metric that was never reported."""

COLON_NAME = r"[A-Za-z](?:[\w/@' -]*\w)?"
"""Names of metrics in lines such as ``Top 1 accuracy: 0.9``."""

_LESS = {
    "err", "perplexity", "time", "seconds", "latency", "cost", "regret", "rmsle", "l1", "l2", "wer", "cer", "nll",
    "ppl", "bpb", "bpc", "brier", "ece", "eer", "fid", "msle", "deviance", "divergence", "distance", "crossentropy",
    "bce", "nloglik", "kullback", "kld", "hinge", "hamming", "huber", "pinball", "crps", "mase", "medae", "mphe",
    "fpr", "fnr", "lpips", "hausdorff", "hd95", "mpjpe", "rmsd", "kl", "aic", "bic", "bpd", "runtime", "wape", "mdape",
    "rmspe", "rae", "rrse", "fdr", "ade", "fde", "chamfer", "wasserstein", "levenshtein", "xent", "jsd", "fvd", "kid",
    "niqe", "silog", "dcf", "mindcf", "misclassification", "misclassified", "bouldin", "inertia", "duration", "delay",
    "memory", "flops", "violations", "collisions", "ttft", "tpot", "itl", "gflops", "mflops", "rmsse", "wql", "epe",
    "assd", "emd", "mmd", "ter", "frr", "misclass", "toxicity", "overshoot", "unfairness", "distortion", "co2",
    "emissions", "timeouts",
}  # fmt: skip
_LESS_ENDS = ("loss", "losses", "error", "errors", "mse", "mae", "mape")
"""Ends of words, as of valloss, merror, nrmse and smape."""

_LIBRARIES_LOSS = re.compile(
    r"((train(ing)?|learn|val(id(ation)?)?|test|eval)(_?\d+)?('s)?[\W_]+)?"
    r"(poisson|tweedie|gamma|quantile|expectile|fair|log_?cosh|multi_?class(_one_vs_all)?)(:.*)?"
)
"""What LightGBM and CatBoost call losses, of a part of the data; in other names such a word says
another thing."""

_NEGATED = re.compile(
    r"((val|valid|test|eval)[\W_]+)?"
    r"(neg(ative)?_(log_?loss|(mean|median|root|max)_\w*error|brier|r?mse|mae|mape|r?msle)|d2_\w+_score$)"
)
"""What scikit-learn calls losses of which more is better: neg_log_loss, neg_mean_squared_error,
d2_absolute_error_score; and their short names."""

_LOSS_BY_WORDS = re.compile(
    r"cross[\W_]entropy|neg(ative)?_(log_?lik(elihood)?|ll|elbo)(?![^\W_])"
    r"|(bits_per_(byte|char(acter)?|dim(ension)?)|false_(positive|negative|alarm|discovery)|(mean|median)_rank"
    r"|(failure|violation|crash|collision|miss|fault|rejection|churn|abort)_rate"
    r"|(abs|sq)_rel)s?(?![^\W_])"
)
"""Losses whose words do not tell one each."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word begins in valLoss and in MSELoss."""

_SHARE = re.compile(r"acc|precision|recall|f1|auc|iou", re.IGNORECASE)
_CONSTRAINT = re.compile(r"\s*([\w /@'.-]*?\w)\s*(<=|>=|<|>)\s*(\S+)\s*")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([Ee][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A metric to optimize and its direction."""

    metric: str
    maximize: bool

    @classmethod
    def read(cls, text: str, *, any_name: bool = False) -> "Goal":
        """Read ``accuracy``, ``min:loss`` or ``max:score``; without a direction the name decides.

        Args:
            any_name: Whether any library's name of a metric is valid, such as ``valid_0's auc``.

        Raises:
            InvalidInput: The name is empty, or has characters that no metric line can have.
        """
        prefix, colon, rest = text.partition(":")
        name = rest if colon and prefix in ("min", "max") else text
        printed = re.search(r"\w", name) and re.fullmatch(r"[\w /@'.-]+", name)
        if not printed or not (any_name or re.fullmatch(r"[\w-]+", name)):
            hint = "accuracy, or min:loss"
            if printed and re.fullmatch(COLON_NAME, name):
                hint += f'; --prints colon, or prints="colon" in Python, reads `{name}: 0.9`'
            raise InvalidInput(f"an objective is the name of a metric, but got {text!r}", hint)
        if colon:
            return cls(metric=name, maximize=prefix == "max")
        return cls(metric=name, maximize=not less_is_better(name))

    @property
    def direction(self) -> str:
        """``max`` or ``min``."""
        return "max" if self.maximize else "min"

    def __str__(self) -> str:
        return f"{self.direction}imize {self.metric}"


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """A bound on a metric of a trial."""

    metric: str
    sign: str
    """``<=``, ``<``, ``>=`` or ``>``."""

    limit: float

    @classmethod
    def read(cls, text: str) -> "Constraint":
        """Read ``latency_ms<=20``.

        Raises:
            InvalidInput: It is something else.
        """
        match = _CONSTRAINT.fullmatch(text)
        limit = number(match[3]) if match else None
        if match is None or limit is None:
            raise InvalidInput(
                f"a constraint is a metric, <=, <, >= or >, and a number, not {text!r}",
                "latency_ms<=20",
            )
        return cls(metric=match[1], sign=match[2], limit=limit)

    def broken_by(self, value: float) -> float:
        """Return by how much a value breaks it, as a share of the limit so that constraints weigh
        alike."""
        beyond = (value - self.limit if "<" in self.sign else self.limit - value) / (
            abs(self.limit) or 1.0
        )
        return sys.float_info.min if beyond == 0 and "=" not in self.sign else beyond

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{exact(self.limit)}"


def less_is_better(name: str) -> bool:
    """Guess by the words in a metric's name whether less of it is better."""
    name = _HUMP.sub("_", name).lower()
    first, *_ = re.split(r"@|[\W_]at[\W_]", name)  # a rate at a rate of errors
    words = re.split(r"[\W_]+", _LOSS_BY_WORDS.sub("crossentropy", first))
    words = [word if word in _LESS else word.rstrip("0123456789") for word in words]
    less = any(word in _LESS or word.endswith(_LESS_ENDS) for word in words)
    return (less or bool(_LIBRARIES_LOSS.fullmatch(name))) and not _NEGATED.match(name)


def is_share(name: str) -> bool:
    """Guess by a metric's name whether its values lie between 0 and 1."""
    return _SHARE.search(name) is not None


def number(text: str) -> float | None:
    """Return a metric's text as a finite number, or None."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def objective_value(metric: Mapping[str, str], strategy: str) -> float | None:
    """Return the number that the strategy ``min``, ``max`` or ``latest`` selects, or None."""
    return number(metric.get(strategy, UNAVAILABLE))
