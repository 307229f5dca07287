"""Let the new version challenge the champion, and write the report of the run."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from podium.data.artifact import describe
from podium.errors import PodiumError
from podium.models.championship import Championship
from podium.models.comparison import judge
from podium.models.decision import Decision
from podium.models.document import name_for
from podium.models.ledger import names_below
from podium.models.mlflow import check_tracking
from podium.models.rule import PromotionRule
from podium.models.shared_items import VersionJobs
from podium.models.task import is_alike
from podium.models.version import version_prefix
from podium.scoring import find_metric
from podium.storage import connect
from podium.training.base import say
from podium.training.handover import Evaluation
from podium.training.identity import ATTEMPT, StepContext
from podium.training.mlflow_log import log_to_mlflow


@dataclass(frozen=True, kw_only=True)
class _PromoteResult:
    """The outcome of a challenge."""

    outcome: str
    """``promoted`` or ``kept``."""

    metrics: dict[str, float]
    """The comparison in figures."""


def promote(
    step: StepContext,
    data: str | Path,
    evaluation: str | Path,
    decision: str | Path,
    report: str | Path,
    *,
    version: str,
    model_name: str,
    rule: str = "likely",
    jobs: VersionJobs,
    tracking: str = "",
) -> _PromoteResult:
    """Compare a version with the champion on the same test items and promote it if the rule says
    so.

    Both are compared by the rule's metric, else by the one that the candidates of this run were
    chosen by, whatever the champion was chosen by.

    Running it twice changes nothing: a version that is champion already stays champion.

    Args:
        data: URI of the dataset's test part.
        evaluation: The file written by evaluate.
        decision: JSON file to write the decision to.
        report: HTML file to write the report to.
        model_name: Empty for that of the dataset.
        rule: In the notation of PromotionRule.parse.
        jobs: Where a champion that is a command predicts.
        tracking: Address of an MLflow server that gets the run and the version, see check_tracking;
            empty for none.

    Raises:
        InvalidInput: The rule cannot be parsed, or tracking is not an address of MLflow.
        NotFound: There is no such version.
        Damaged: A file of the challenger or the champion is.
    """
    from podium.reports.page import render

    check_tracking(tracking)
    parsed, measured = PromotionRule.parse(rule), Evaluation.read(Path(evaluation))
    own = measured.metric
    metric = find_metric(parsed.metric) if parsed.metric else find_metric(own.name, own.maximize)
    parsed.check(metric)
    info = describe(data)
    model = Championship(connect(step.storage), model_name or name_for(info.name))
    evidence = {
        "run_id": step.run.id,
        "dataset": info.digest,
        "test_part": info.test_part,
        **({"tracking": tracking} if tracking else {}),
        # It is compared again when a person has said yes.
        **({"data": str(data)} if "approved" in parsed else {}),
    }
    say(f"the test part of {info.name} is opened for the comparison")
    contest = model.challenge(version, judge(str(data), parsed, metric, jobs), evidence)
    decided = contest.decision
    assert decided
    result = _decision(
        model, version, contest.champion, decided, promoted=contest.record is not None
    )
    Path(decision).write_text(json.dumps(result, indent=1) + "\n")
    try:
        Path(report).write_text(render(asdict(measured), result))
    except OSError as error:  # what is decided is decided
        say(f"warning: the report could not be written: {report}: {error.strerror}")
    for said in (*decided.reasons, f"{model.name} {version}: {result['outcome']}"):
        say(said)
    if not model_name and (other := _alike(model, version)):
        say(
            f"{model.name} is a new model, named after its dataset; {other} predicts the same from the same "
            f"columns: model_name={other} challenges its champion"
        )
    log_to_mlflow(
        tracking, measured, result, model.storage.join(version_prefix(model.name, version))
    )
    metrics = {
        _named(name, metric.name): float(value)
        for name, value in decided.figures.items()
        if isinstance(value, int | float)
    }
    return _PromoteResult(outcome=result["outcome"], metrics=metrics)


def _named(figure: str, metric: str) -> str:
    """Return the name of a figure as the user knows it: accuracy, not value."""
    return {"value": metric, "champion_value": f"champion_{metric}"}.get(figure, figure)


def _run_of(model: Championship, version: str) -> str | None:
    """Return the run that made a version, without its attempt; None for one uploaded by hand."""
    with suppress(PodiumError):  # deleted since it was compared with: what is decided is decided
        run = model.version(version).facts.run_id
        return run.partition(ATTEMPT)[0] if run else None
    return None


def _alike(model: Championship, version: str) -> str:
    """Return the name of another model whose champion predicts what the first version of a model
    predicts; empty if there is none, or it cannot be told: what is decided is decided."""
    with suppress(PodiumError):
        own = model.version(version) if len(model.ledger.versions()) == 1 else None
        others = {*names_below(model.storage, "models")} - {model.name} if own else set()
        for name in sorted(others):
            with suppress(PodiumError):  # another team's may be damaged, or not for our eyes
                champion = Championship(model.storage, name).find_champion()
                if own and champion and is_alike(own, champion):
                    return name
    return ""


def _decision(
    model: Championship, version: str, champion: str | None, decision: Decision, *, promoted: bool
) -> dict[str, Any]:
    return {
        "outcome": "promoted" if promoted else "kept",
        "model_name": model.name,
        "version": version,
        "champion": version if promoted else champion,
        "compared_with": champion if champion != version else None,
        "champion_run": _run_of(model, champion) if champion and champion != version else None,
        "storage": model.storage.url,
        **decision.evidence(),
    }
