"""Let the new version challenge the champion, and write the page that tells the whole run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.documents import read_json
from podium.identity import current_run
from podium.steps.base import say, step
from podium.steps.evaluate import PREDICTIONS
from podium.steps.target import storage_url

if TYPE_CHECKING:
    import numpy as np

    from podium.data.schema import DatasetInfo
    from podium.registry import Contest, Registry, Version


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """How the challenge ended."""

    outcome: str
    """``promoted`` or ``kept``."""

    metrics: dict[str, float]
    """The comparison in figures."""


@step
def promote(
    data: str | Path,
    evaluation: str | Path,
    decision: str | Path,
    report: str | Path,
    *,
    beside: str,
    version: str,
    model_name: str,
    rule: str = "better",
    storage: str = "",
) -> Promotion:
    """Compare a version with the champion on the same test images and promote it if the rule says so.

    Running it twice changes nothing: a version that is champion already stays it.

    Args:
        data: The dataset artifact.
        evaluation: What evaluate wrote.
        decision: File for the decision, JSON.
        report: File for the page, HTML.
        beside: URI of an artifact of the run, for a storage that is not given.
        version: The challenger.
        model_name: Name in the registry.
        rule: As PromotionRule.parse reads it.
        storage: URL of the storage.

    Raises:
        InvalidInput: The rule cannot be read.
        NotFound: There is no such version.
        Damaged: The challenger's or the champion's files are.
    """
    from podium.data.artifact import describe, load
    from podium.registry import PromotionRule, challenge, open_registry
    from podium.report import render

    parsed = PromotionRule.parse(rule)
    registry = open_registry(storage_url(storage, beside))
    info, part = describe(data), load(data, "test")
    predictor = Predictor(registry, info, part.images)
    evidence = {"run_id": current_run().id, "dataset": info.digest}
    ended = challenge(registry, model_name, version, parsed, predictor, part.labels, evidence)
    told = _told(ended, model_name, version, registry.storage.url)
    Path(decision).write_text(json.dumps(told, indent=1) + "\n")
    Path(report).write_text(render(read_json(Path(evaluation)), told))
    for reason in ended.decision.reasons:
        say(reason)
    say(f"{model_name} {version}: {told['outcome']}")
    figures = ended.decision.figures
    return Promotion(
        outcome=told["outcome"],
        metrics={name: float(value) for name, value in figures.items() if isinstance(value, int | float)},
    )


class Predictor:
    """Gives what a version predicts for the test images: as stored with it if that was for these very images."""

    def __init__(self, registry: "Registry", info: "DatasetInfo", images: "np.ndarray") -> None:
        self.registry = registry
        self.info = info
        self.images = images

    def __call__(self, version: "Version") -> "np.ndarray":
        """Return classes [n]."""
        from podium.scoring import Model
        from podium.steps.compare import stored_array

        same = version.facts.test_digest == self.info.parts["test"].images.sha256
        if same and PREDICTIONS in version.files:
            stored = stored_array(self.registry, version, PREDICTIONS)
            if stored.shape == (len(self.images),):
                return stored
        return Model(self.registry.read(version, "model.onnx")).logits(self.images).argmax(1)


def _told(ended: "Contest", name: str, version: str, storage: str) -> dict[str, Any]:
    promoted = ended.record is not None
    return {
        "outcome": "promoted" if promoted else "kept",
        "model_name": name,
        "version": version,
        "champion": version if promoted else ended.champion,
        "compared_with": ended.champion if ended.champion != version else None,
        "storage": storage,
        **ended.decision.evidence(),
    }
