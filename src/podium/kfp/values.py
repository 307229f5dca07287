"""Rules for the values of the parameters of podium's own pipelines, checked before anything is
launched."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from podium.errors import InvalidInput, suggestion

if TYPE_CHECKING:
    from podium.manifests.experiment import Experiment
    from podium.manifests.workload import Workload
    from podium.models import PromotionRule
    from podium.training.dataset import DataSettings
    from podium.training.settings import SweepSettings, TrainSettings
    from podium.training.target import LaunchTarget

PIPELINES = ("tune-and-promote", "train-and-promote")
"""Names of the compiled pipelines; another pipeline may mean something else by the same
parameters."""

_WITH_COLUMNS = ("table", "text")
"""Sources whose items are rows of a file."""

_FOR_PROJECT = "podium's {} for a project: "
"""Prefix of the description of a pipeline that was compiled for a named project."""

T = TypeVar("T")


def own_name(spec: Mapping[str, Any]) -> str | None:
    """Return the name in PIPELINES of a compiled pipeline, whatever its own name; None for a user's
    pipeline."""
    info = spec["pipelineInfo"]
    begins = str(info.get("description", ""))
    renamed = (name for name in PIPELINES if begins.startswith(_FOR_PROJECT.format(name)))
    return info["name"] if info.get("name") in PIPELINES else next(renamed, None)


def rename(spec: Mapping[str, Any], title: str) -> None:
    """Rename a compiled pipeline, so that own_name still recognizes it."""
    own, info = own_name(spec), spec["pipelineInfo"]
    if own:
        info["description"] = _FOR_PROJECT.format(own) + info.get("description", "")
    info["name"] = title


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """The settings of a pipeline's steps; None for a step it does not have."""

    data: "DataSettings | None"
    sweep: "SweepSettings | None"
    train: "TrainSettings | None"
    target: "LaunchTarget | None"

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "PipelineSettings":
        """Build the settings from a pipeline's parameters, which have the names of their fields.

        Raises:
            InvalidInput: A value breaks a rule.
        """
        from podium.training.dataset import DataSettings
        from podium.training.settings import SweepSettings, TrainSettings
        from podium.training.target import LaunchTarget

        return cls(
            data=_read(DataSettings, values),
            sweep=_read(SweepSettings, values),
            train=_read(TrainSettings, values),
            target=_read(LaunchTarget, values),
        )

    def with_data(self, meaning: str, kind: str = "") -> "PipelineSettings":
        """Return the settings for data whose input is an image, a table or an array, and their kind
        if known."""
        sweep = self.sweep and replace(self.sweep, data_meaning=meaning, data_kind=kind)
        return replace(
            self, sweep=sweep, train=self.train and replace(self.train, data_meaning=meaning)
        )

    def experiment(self) -> "Experiment | None":
        """Return the Experiment that the sweep will run, except for its name, data and output.

        Raises:
            InvalidInput: There is no such Experiment, or a setting makes no sense for it.
        """
        from podium.manifests.experiment.build import locate
        from podium.training.identity import RunIdentity

        if self.sweep is None or self.target is None:
            return None
        adapted = self.sweep.adapt(self.target, name="sweep", run=RunIdentity(id="check"))
        return self.target.place(
            locate(adapted, data="data", root="output"), adapted.template.primary_container
        )

    def jobs(self) -> "Iterator[tuple[str, Workload | Experiment]]":
        """Yield a description and the job or Experiment that each step launches, as far as known.

        The training of a sweep's winner is known before it runs if it uses podium's trainer.
        """
        from podium.training.identity import RunIdentity, StepContext

        experiment = self.experiment()
        if experiment:
            yield "the sweep", experiment
        if self.train and self.target and (experiment is None or experiment.uses_builtin_trainer):
            step = StepContext.of(RunIdentity(id="check"), "s3://bucket")
            planned = self.train.plan("s3://bucket/data", "train", target=self.target, step=step)
            yield "the training", planned.job


def _read(kind: type[T], values: Mapping[str, Any]) -> T | None:
    """Build settings from values; None if a required one is missing, as in an old version on a
    server."""
    from podium.training.base import read_settings

    declared = fields(kind)  # type: ignore[arg-type]
    needed = (field.name for field in declared if field.default is field.default_factory is MISSING)
    if any(values.get(name) is None for name in needed):
        return None
    return read_settings(kind, values)


def check_values(values: Mapping[str, Any], *, here: bool = False) -> PipelineSettings:
    """Refuse now the values that a later step would refuse after hours of training.

    Args:
        values: The parameters of one of podium's pipelines; an older version of it on a server may
            lack some.
        here: Whether the steps run on this machine, so that a metric of the user's own, and MLflow
            if runs are logged to it, must be on it.

    Raises:
        InvalidInput: A value breaks its rule, or there is no such Experiment.
    """
    from podium.manifests.experiment import check
    from podium.models import PromotionRule
    from podium.models.document import check_name
    from podium.models.mlflow import check_tracking

    settings = PipelineSettings.read(values)
    experiment = settings.experiment()
    if experiment:
        check(experiment, ())  # a cluster may have Katib, or podium's own engine
    rule = PromotionRule.parse(values.get("rule") or "")
    if here:
        rule.require_ready()
    _check_bounds(rule, experiment)
    _check_columns(rule, settings.data)
    check_tracking(values.get("tracking") or "", here=here)
    _check_metric(values.get("metric") or "", rule, settings.data, experiment, here=here)
    if values.get("model_name"):
        check_name("model name", values["model_name"])
    return settings


def _check_bounds(rule: "PromotionRule", experiment: "Experiment | None") -> None:
    metrics = experiment.objective.metrics if experiment else ()
    for bound in rule.bounds:
        if bound.metric not in metrics:
            hint = "leave it out; it is for podium run tune_and_promote"
            if experiment:
                hint = f"additionalMetricNames: [{bound.metric}] in spec.objective, or leave it out"
            raise InvalidInput(
                f"the rule has trial.{bound}, but no trial will report {bound.metric}", hint
            )


def _check_columns(rule: "PromotionRule", data: "DataSettings | None") -> None:
    if rule.window and data and not data.is_prepared and not data.data_options.get("time"):
        words = f"the rule has window={rule.window}, but the data are not divided by time"
        raise InvalidInput(words, 'data_options=\'{"time": "COLUMN"}\', or leave it out')
    reader = data.reader.name if data and not data.is_prepared else ""
    for column in rule.columns:
        if reader and reader not in _WITH_COLUMNS and (reader, column) != ("images", "folder"):
            words = f"the rule has slice={column}, but {data and data.dataset} has no columns"
            hint = f"leave it out; only {' and '.join(_WITH_COLUMNS)} have columns, and images have slice=folder"
            raise InvalidInput(words, hint)


def _check_metric(
    text: str,
    rule: "PromotionRule",
    data: "DataSettings | None",
    experiment: "Experiment | None",
    *,
    here: bool,
) -> None:
    """Refuse a metric that is not known or does not work, or that contradicts the data, the
    Experiment or the rule.

    One of the user's own is imported and tried where its package is on this machine.
    """
    from podium.scoring import METRICS, FunctionMetric, choose_metric, find_metric
    from podium.scoring.own_metric import try_out
    from podium.scoring.threshold import require_tunable, split

    tune, text = split(text)
    objective, maximize = (
        (experiment.objective.metric, experiment.objective.maximize) if experiment else ("", None)
    )
    builtin = METRICS.get(text.rpartition(":")[2] or objective)
    always = data.reader.kind if data and not data.is_prepared else ""
    kind = always or (builtin.kind if builtin else None)
    if text or kind or rule.metric:
        metric = choose_metric(text, kind or "classification", objective, maximize)
        decisive = find_metric(rule.metric) if rule.metric else metric
        if tune:
            require_tunable(metric)
        rule.check(decisive)
        for own in {metric, decisive}:
            if isinstance(own, FunctionMetric) and (here or own.is_found):
                try_out(own, kind)


def with_experiment_text(
    values: Mapping[str, Any], folder: Path = Path(), names: Iterable[str] = ("experiment",)
) -> dict[str, Any]:
    """Replace the path of an Experiment's file by its text: the step's pod does not have the file.

    Args:
        values: Parameters of a pipeline; names of bundled Experiments and text stay.
        folder: Folder that a relative path starts from.
        names: The parameters that hold an Experiment.

    Raises:
        InvalidInput: There is no such file, or it does not hold a single YAML object.
    """
    return {
        **values,
        **{name: experiment_text(values[name], folder) for name in names if name in values},
    }


def experiment_text(value: Any, folder: Path = Path()) -> Any:
    """Return the text of an Experiment's file; a bundled name, text, and other values stay.

    Raises:
        InvalidInput: There is no such file, or it does not hold a single YAML object.
    """
    from podium.manifests.experiment import Experiment, bundled, load
    from podium.manifests.experiment.source import AUTO

    if not isinstance(value, str) or value == AUTO or "\n" in value or "{" in value:
        return value
    if not value:
        raise InvalidInput(
            "no experiment is given", "a file, YAML, or one of " + ", ".join(bundled())
        )
    file = folder / value
    if os.path.isfile(file):  # also of a text that is too long for a path
        if load(str(file)).get("kind") != "Experiment":
            Experiment.load(str(file))  # which refuses it by its name
        return file.read_text(encoding="utf-8")
    if value not in bundled():
        raise InvalidInput(
            f"no file {file} and no bundled experiment {value!r}", suggestion(value, bundled())
        )
    return value
