"""Cross-validation: each trial trains on several folds, and its metrics are the means.

The program of a trial runs its folds (podium.trainer.folds, podium.code.folds), so whatever runs
the Experiment sees one trial with one figure.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from podium.errors import InvalidInput
from podium.manifests.options.base import Setting, SweepOption, Values
from podium.metrics import matches

if TYPE_CHECKING:
    from podium.manifests.experiment.experiment import Experiment

_GIVEN = ("PODIUM_DATA", "--data", "${podium.data}")


@dataclass(frozen=True, kw_only=True)
class Folds(SweepOption):
    """Number of folds."""

    title: ClassVar[str] = "folds"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            name="folds",
            kind=int,
            metavar="K",
            help="Cross-validate each trial on K folds of train and validation; 5 suits small data.",
        ),
    )

    count: int

    @classmethod
    def of(cls, values: Values) -> "Folds | None":
        count = values.get("folds")
        if count is not None and not 2 <= count <= 100:
            raise InvalidInput(
                f"2 <= folds <= 100 must hold, but got folds={count}", "5 folds are usual"
            )
        return None if count is None else cls(count=count)

    @classmethod
    def prepare(cls, spec: dict[str, Any], values: Values) -> Values:
        """Record the standard error of the objective, too."""
        if cls.of(values):
            objective = spec.setdefault("objective", {})
            error = f"{objective.get('objectiveMetricName')}_se"
            names = objective.get("additionalMetricNames") or []
            if error not in names:
                objective["additionalMetricNames"] = [*names, error]
                latest = {"name": error, "value": "latest"}
                strategies = objective.get("metricStrategies") or []
                objective["metricStrategies"] = [*strategies, latest]
        return values

    def describe(self, experiment: "Experiment") -> str:
        return (
            f"each trial is the mean of {self.count} folds of train and validation; "
            "models are fitted to both"
        )

    def check(self, experiment: "Experiment") -> None:
        """Refuse trials that do not run their folds, or whose results are wanted before the last
        fold."""
        if experiment.early_stopping is not None:
            problem = "a trial with folds reports when its last fold has ended: too late to stop it"
            raise InvalidInput(problem, "leave spec.earlyStopping or folds out")
        if experiment.search.facts.keeps_files:
            problem = (
                f"a trial of {experiment.search.name} continues from the weights of another, "
                "but each fold trains from the start"
            )
            raise InvalidInput(problem, "leave folds out, or choose another algorithm")
        job = json.dumps(experiment.template.workload.manifest)
        if f"--folds={self.count}" not in job:
            raise InvalidInput(
                f"folds: {self.count} is asked for, but the trials' command does not run folds",
                f"podium experiment render FILE --folds {self.count} writes it into the command",
            )
        if experiment.uses_builtin_trainer:
            return
        if not any(mark in job for mark in _GIVEN):
            raise InvalidInput(
                "folds divide a dataset of podium, but the trials get none",
                "--data DIRECTORY, which podium data prepare makes",
            )
        collector, metric = experiment.collector, experiment.objective.metric
        line = f"{metric}=0.5"
        if collector.kind != "StdOut" or (metric, "0.5") not in matches(line, collector.filters):
            raise InvalidInput(
                f"the mean of the folds is printed as {line}, which is not what is collected",
                "a StdOut collector whose metricsFormat reads name=value",
            )
