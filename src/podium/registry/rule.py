"""The promotion rule: when a challenger replaces the champion, decided image by image on the same test images."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, require
from podium.registry.comparison import compare, p_words

if TYPE_CHECKING:
    import numpy as np

CRITERIA = ("better", "not-worse", "significant")


@dataclass(frozen=True, kw_only=True)
class PromotionRule:
    """What a challenger must achieve."""

    minimum_accuracy: float = 0.0
    """On the test part, 0..1; required even without a champion."""

    criterion: str = "better"
    """better: more images right than the champion; not-worse: as many or more; significant: more, and the exact
    two-sided McNemar test gives at most p."""

    p: float = 0.05
    """For criterion significant."""

    max_class_drop: float | None = None
    """Refuse if the accuracy of any class is lower than the champion's by more than this, 0..1."""

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise InvalidInput(
                f"{self.criterion!r} is not a criterion", f"the criterion is one of {', '.join(CRITERIA)}"
            )
        require(
            0 <= self.minimum_accuracy <= 1,
            "0 <= minimum_accuracy <= 1",
            "accuracy is a share, not a percentage",
            minimum_accuracy=self.minimum_accuracy,
        )
        require(0 < self.p < 1, "0 < p < 1", p=self.p)
        drop = self.max_class_drop
        require(drop is None or 0 <= drop <= 1, "0 <= max_class_drop <= 1", max_class_drop=drop)

    @classmethod
    def parse(cls, text: str) -> "PromotionRule":
        """Parse the notation of pipelines and the command line.

        Args:
            text: ``better``, ``significant,p=0.01`` or ``criterion=not-worse,minimum_accuracy=0.98``; empty for the
                defaults.

        Raises:
            InvalidInput: A word is unknown, or a value out of range.
        """
        given: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                name, value = "criterion", name
            given[name] = value if name == "criterion" else _number(name, value)
        return cls(**given)

    def __str__(self) -> str:
        """Return the notation that parse reads."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return ",".join(f"{name}={value}" for name, value in named.items() if value is not None)


def _number(name: str, value: str) -> float:
    names = [field.name for field in fields(PromotionRule)]
    if name not in names:
        raise InvalidInput(f"a promotion rule has no {name!r}, only {', '.join(names)}", "try significant,p=0.01")
    try:
        return float(value)
    except ValueError:
        raise InvalidInput(f"{name} of a promotion rule must be a number, not {value!r}") from None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The outcome of a rule for one challenger."""

    promote: bool
    """Whether it becomes champion."""

    reasons: tuple[str, ...]
    """Every condition of the rule with its figures, in words."""

    figures: Mapping[str, Any]
    """rule, images, accuracy, champion_accuracy, only_challenger_right, only_champion_right, p_value, classes."""

    def evidence(self) -> dict[str, Any]:
        """Return it as plain JSON values for the history."""
        return {"decision": "promote" if self.promote else "keep", "reasons": list(self.reasons), **self.figures}

    def __str__(self) -> str:
        head = "promote" if self.promote else "keep the champion"
        return "\n".join([head, *(f"  {reason}" for reason in self.reasons)])


def decide(
    rule: PromotionRule, labels: "np.ndarray", challenger: "np.ndarray", champion: "np.ndarray | None"
) -> Decision:
    """Compare two models on the same images.

    Args:
        rule: The rule.
        labels: The truth, integers ``[n]``.
        challenger: Predicted classes, integers ``[n]``, of the same images in the same order.
        champion: The champion's; None if there is none: then only the minimum accuracy counts.

    Raises:
        InvalidInput: There are no images, or the lengths differ.
    """
    truth, new = _classes("labels", labels, None), _classes("challenger", challenger, len(labels))
    right = new == truth
    accuracy = float(right.mean())
    figures: dict[str, Any] = {"rule": str(rule), "images": len(truth), "accuracy": accuracy}
    conditions = [(accuracy >= rule.minimum_accuracy, f"accuracy {accuracy:.4f} >= minimum {rule.minimum_accuracy:g}")]
    if champion is None:
        conditions.append((True, "there is no champion yet"))
    else:
        before = _classes("champion", champion, len(labels)) == truth
        compared = compare(truth, right, before)
        figures |= compared
        conditions += [_criterion(rule, compared), *_drops(rule, compared["classes"])]
    reasons = tuple(f"{'ok' if holds else 'no'}: {words}" for holds, words in conditions)
    return Decision(promote=all(holds for holds, _ in conditions), reasons=reasons, figures=figures)


def _criterion(rule: PromotionRule, compared: Mapping[str, Any]) -> tuple[bool, str]:
    gained, lost, p_value = compared["only_challenger_right"], compared["only_champion_right"], compared["p_value"]
    counts = f"right where the champion is wrong: {gained}, wrong where it is right: {lost}, McNemar {p_words(p_value)}"
    holds = {
        "better": gained > lost,
        "not-worse": gained >= lost,
        "significant": gained > lost and p_value <= rule.p,
    }[rule.criterion]
    wanted = {
        "better": "better than",
        "not-worse": "not worse than",
        "significant": f"significantly better (p <= {rule.p:g}) than",
    }[rule.criterion]
    return holds, f"{wanted} the champion with {compared['champion_accuracy']:.4f} ({counts})"


def _drops(rule: PromotionRule, classes: Mapping[str, Mapping[str, Any]]) -> list[tuple[bool, str]]:
    if rule.max_class_drop is None:
        return []
    name, worst = min(classes.items(), key=lambda item: item[1]["change"])
    words = f"largest loss of a class: {worst['change']:+.4f} (class {name}), -{rule.max_class_drop:g} allowed"
    return [(-worst["change"] <= rule.max_class_drop, words)]


def _classes(what: str, values: "np.ndarray", count: int | None) -> "np.ndarray":
    import numpy as np

    array = np.asarray(values)
    require(
        array.ndim == 1 and len(array) > 0 and np.issubdtype(array.dtype, np.integer),
        f"{what} is a non-empty integer array [n]",
        "take the argmax of logits first",
        shape=array.shape,
        dtype=str(array.dtype),
    )
    require(count is None or len(array) == count, f"len({what}) == len(labels)", labels=count, given=len(array))
    return array.astype(np.int64)
