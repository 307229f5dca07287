"""An Experiment: objective, search space, algorithm, collector, trial template and limits."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Self

from podium.errors import InvalidInput
from podium.manifests.experiment.schema import EXPERIMENT, default_primary_labels, set_defaults
from podium.manifests.experiment.source import load
from podium.manifests.experiment.space import AlgorithmSpec, read_space, written_space
from podium.manifests.experiment.template import PLACEHOLDER, fill, meta_key, meta_value
from podium.manifests.fields import (
    Attribute,
    ManifestView,
    integer,
    mapping,
    objects,
    strings,
    text,
    texts,
    true,
    unshared,
)
from podium.manifests.job_editor import JobEditor
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.options import annotated, asked
from podium.manifests.options.algorithm import ChosenAlgorithm
from podium.manifests.options.base import Values
from podium.manifests.options.conditions import conditional
from podium.manifests.resource import Resource
from podium.manifests.rules import Rules, Violation, raise_for
from podium.manifests.shell import METRICS_FILE, join, redirected
from podium.manifests.structure import wrong_types
from podium.manifests.workload import Container, Replica, Workload
from podium.metrics.goals import objective_value
from podium.search.algorithms import Choice
from podium.search.space import Parameter

_SHAPE = Rules[Mapping[str, Any]]()


@_SHAPE.rule("fail", "Katib's webhook refuses the Experiment.", "refused-by-webhook", refuses=True)
def _well_formed(manifest: Mapping[str, Any]) -> Iterator[Violation]:
    return wrong_types(manifest, EXPERIMENT)


_WRAPPED = ("StdOut", "File", "TensorFlowEvent", "Custom")
"""Collectors for which Katib hands the primary container's command to a shell."""


TRIAL_LISTS = {
    "Killed": ("killedTrialList", "trialsKilled"),
    "Failed": ("failedTrialList", "trialsFailed"),
    "Succeeded": ("succeededTrialList", "trialsSucceeded"),
    "EarlyStopped": ("earlyStoppedTrialList", "trialsEarlyStopped"),
    "MetricsUnavailable": ("metricsUnavailableTrialList", "trialMetricsUnavailable"),
    "Running": ("runningTrialList", "trialsRunning"),
    "Waiting": ("waitingTrialList", "trialsWaiting"),
    "Created": ("pendingTrialList", "trialsPending"),
}
"""Fields of an Experiment's status with the names and the number of its trials in each phase; ended
phases first. Waiting is podium's own."""


Metrics = dict[str, dict[str, str]]
"""``min``, ``max`` and ``latest`` by metric, as text; empty where Katib omits one."""


def read_metrics(observation: Any) -> Metrics:
    """Read min, max and latest by metric from an observation; an empty text where Katib omits
    one."""
    return {
        text(metric.get("name")): {
            fold: text(metric.get(fold)) for fold in ("min", "max", "latest")
        }
        for metric in objects(mapping(observation).get("metrics"))
    }


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class Objective(ManifestView):
    """The objective metric, its direction and its goal."""

    metric = Attribute("manifest.objectiveMetricName", text)
    maximize = Attribute("manifest.type", lambda kind: bool(kind == "maximize"))
    goal = Attribute("manifest.goal", _number)

    additional = Attribute("manifest.additionalMetricNames", strings)

    strategies = Attribute(
        "manifest.metricStrategies",
        lambda value: {text(each.get("name")): text(each.get("value")) for each in objects(value)},
    )
    """``min``, ``max`` or ``latest`` by metric."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(name for name in (self.metric, *self.additional) if name)

    @property
    def strategy(self) -> str:
        """``min``, ``max`` or ``latest``: which of a trial's values counts."""
        return self.strategies.get(self.metric) or ("max" if self.maximize else "min")

    @property
    def direction(self) -> str:
        """``maximize`` or ``minimize``."""
        return "maximize" if self.maximize else "minimize"

    def value(self, metrics: Mapping[str, Mapping[str, str]]) -> float | None:
        """Return a trial's value by the strategy; None unless it is a finite number."""
        return objective_value(metrics.get(self.metric, {}), self.strategy)

    def is_reached(self, value: float | None) -> bool:
        if value is None or self.goal is None:
            return False
        return value >= self.goal if self.maximize else value <= self.goal

    def __str__(self) -> str:
        return f"{self.direction} {self.metric} ({self.strategy})"


@dataclass(frozen=True, kw_only=True)
class Collector:
    """Metrics collector: its kind, source and formats."""

    kind: str
    """``StdOut``, ``File``, ``TensorFlowEvent``, ``PrometheusMetric``, ``Custom`` or ``Push``."""

    path: str = ""
    """File or directory; empty for StdOut."""

    format: str = "TEXT"
    """``TEXT`` or ``JSON``."""

    filters: tuple[str, ...] = ()
    """metricsFormat; empty for Katib's default."""

    @classmethod
    def parse(cls, value: Any) -> "Collector":
        collecting = mapping(value)
        source = mapping(collecting.get("source"))
        file = mapping(source.get("fileSystemPath"))
        return cls(
            kind=text(mapping(collecting.get("collector")).get("kind")) or "StdOut",
            path=text(file.get("path")),
            format=text(file.get("format")) or "TEXT",
            filters=strings(mapping(source.get("filter")).get("metricsFormat")),
        )

    @property
    def reads_text(self) -> bool:
        return self.kind == "StdOut" or (self.kind == "File" and self.format != "JSON")

    @property
    def reads_json(self) -> bool:
        return self.kind == "File" and self.format == "JSON"

    @property
    def file(self) -> str:
        """File that it reads, or the directory of event files with a slash at its end."""
        path = self.path or METRICS_FILE
        return f"{path.rstrip('/')}/" if self.kind == "TensorFlowEvent" else path

    def wrap(self, words: Sequence[str], *, early_stopping: bool = False) -> tuple[str, str, str]:
        """Return the command that Katib runs instead of command and args: the shell, ``-c`` and its
        script.

        Args:
            early_stopping: Whether a stopping rule is in force.
        """
        shell, script = join(words)
        folder = self.file.rpartition("/")[0]
        if self.kind == "StdOut":
            script = redirected(script, self.file)
        if early_stopping:
            script += (
                f" || if test -f {folder}/$$.pid && …; then echo stopped early; else exit 1; fi"
            )
        return (*shell, f"{script} && echo completed > {folder}/$$.pid")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Numbers of trials."""

    parallel: int
    max_trials: int | None
    """In all; None goes on until the goal or the end of the suggestions."""

    max_failed: int | None
    """Failed trials that end the Experiment."""


class TrialTemplate(ManifestView):
    """Template of a trial's job, with placeholders."""

    workload = Attribute(
        "manifest.trialSpec",
        lambda job: Workload(manifest=dict(mapping(job)), path="spec.trialTemplate.trialSpec."),
    )
    """The trialSpec; empty if the job is in a ConfigMap."""

    primary_container = Attribute("manifest.primaryContainerName", text)

    @cached_property
    def primary_pod_labels(self) -> Mapping[str, str]:
        """Labels of the pods that report metrics; none: every pod does."""
        return (
            texts(self.manifest.get("primaryPodLabels"))
            or default_primary_labels(self.workload.kind)
            or {}
        )

    parameters = Attribute(
        "manifest.trialParameters",
        lambda value: tuple(
            (text(each.get("name")), text(each.get("reference"))) for each in objects(value)
        ),
    )
    """Name and reference of the trialParameters."""

    success_condition = Attribute("manifest.successCondition", text)
    failure_condition = Attribute("manifest.failureCondition", text)
    retain = Attribute("manifest.retain", true)
    """Whether the finished job and its pods stay."""

    in_config_map = Attribute("manifest.configMap", bool)

    @property
    def is_supported(self) -> bool:
        return JOB_KINDS.get(self.workload.kind) == self.workload.api_version

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names of the trialParameters that the job uses."""
        return tuple(
            PLACEHOLDER.findall(json.dumps(self.workload.manifest, ensure_ascii=False, default=str))
        )

    def is_primary(self, replica: Replica) -> bool:
        """Tell whether Katib collects from the pods of a replica, or from its first one alone."""
        return self._is_primary(replica.labels_of(0))

    def primary_pods(self, workload: Workload) -> tuple[str, ...]:
        """Return the pods of an operator's job from which Katib collects: ``worker-0``,
        ``worker-1`` …"""
        return tuple(
            f"{replica.role.lower()}-{index}"
            for replica in workload.replicas
            for index in range(replica.count)
            if self._is_primary(replica.labels_of(index))
        )

    def _is_primary(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.primary_pod_labels.items())

    def primary_containers(self, job: Workload | None = None) -> list[tuple[Replica, Container]]:
        """Return each replica's primary container, of a trial's job or of the template's."""
        return [
            (replica, container)
            for replica, container in (job or self.workload).containers()
            if container.name == self.primary_container
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment(Resource):
    """A Katib Experiment: its manifest as written, and all else with Katib's defaults. ``check``
    applies the rules.
    """

    defaulted: Mapping[str, Any] = field(repr=False)
    """The spec with Katib's defaults."""

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Self:
        """Read a manifest and fill in Katib's defaults.

        Raises:
            BrokenRules: A field has another type than an Experiment's.
        """
        raise_for(_well_formed.findings(Resource.parse(manifest).manifest))
        spec = unshared(manifest.get("spec")) or {}
        set_defaults(spec)
        return cls(manifest=dict(manifest), defaulted=spec)

    @classmethod
    def load(cls, name_or_text: str, network: str = "") -> Self:
        """Read YAML text, a file, or an Experiment that comes with podium.

        Args:
            name_or_text: The argument of ``load``.
            network: The trainer's ``--model``, by which one that comes with podium chooses its
                learning rates.

        Raises:
            InvalidInput: No such file or name, or it holds something else than one Experiment.
        """
        manifest = load(name_or_text, network)
        if (kind := manifest.get("kind")) != "Experiment":
            hint = f"podium job run runs a {kind}" if kind in JOB_KINDS else None
            name = "the given text" if "\n" in name_or_text else name_or_text
            held = f"holds a {kind}" if kind else "has no kind"
            raise InvalidInput(f"{name} must hold an Experiment, but {held}", hint)
        return cls.parse(manifest)

    spec = Attribute("defaulted", mapping)
    """The spec with Katib's defaults."""

    asked = Attribute("annotations", asked)
    """Settings of podium's sweep options by name; empty if the annotation breaks a rule."""

    objective = Attribute("spec.objective", Objective.parse)

    written_objective = Attribute("manifest.spec.objective", Objective.parse)
    """Without Katib's defaults."""

    written_space = Attribute("spec.parameters", written_space)

    @cached_property
    def space(self) -> tuple[Parameter, ...]:
        """The search space, each parameter with its conditions; parameters that break a rule are
        left out."""
        return conditional(read_space(self.spec.get("parameters")), self.asked)

    algorithm = Attribute("spec.algorithm", AlgorithmSpec.parse)
    """Katib's."""

    @property
    def choice(self) -> Choice | None:
        """The algorithm that podium chose in place of Katib's, or would choose; None unless the
        sweep leaves the choice to podium."""
        with suppress(InvalidInput):  # a rule says so
            option = ChosenAlgorithm.of(self.asked)
            return option.choice(self) if option else None
        return None

    @property
    def search(self) -> AlgorithmSpec:
        """The algorithm that podium's engine runs."""
        return self.algorithm.instead(self.choice.algorithm) if self.choice else self.algorithm

    early_stopping = Attribute(
        "spec.earlyStopping", lambda value: AlgorithmSpec.parse(value) if value else None
    )

    collector = Attribute("spec.metricsCollectorSpec", Collector.parse)

    template = Attribute("spec.trialTemplate", TrialTemplate.parse)

    limits = Attribute(
        "spec",
        lambda spec: Limits(
            parallel=integer(spec.get("parallelTrialCount")) or 3,
            max_trials=integer(spec.get("maxTrialCount")),
            max_failed=integer(spec.get("maxFailedTrialCount")),
        ),
    )

    resume_policy = Attribute("spec.resumePolicy", text)
    """``Never``, ``LongRunning`` or ``FromVolume``."""

    @property
    def uses_builtin_trainer(self) -> bool:
        return any(
            container.uses_builtin_trainer for _, container in self.template.primary_containers()
        )

    def wrapped_containers(self, job: Workload | None = None) -> list[tuple[Replica, Container]]:
        """Return the primary containers whose command Katib hands to a shell.

        Args:
            job: A trial's job; the template's if None.
        """
        containers = (
            self.template.primary_containers(job) if self.collector.kind in _WRAPPED else []
        )
        return [pair for pair in containers if self.template.is_primary(pair[0])]

    def wrapped_roles(self, job: Workload | None = None) -> set[str]:
        """Return the roles of these containers."""
        return {replica.role for replica, _ in self.wrapped_containers(job)}

    def render(self, trial: str, assignments: Mapping[str, str]) -> Workload:
        """Fill in a trial's job.

        Placeholders are replaced in the JSON text of the template, as Katib does it: a value with
        ``\\n`` becomes a line break, one with a double quote breaks the template. Values are not
        searched for placeholders again.

        Args:
            trial: Name of the trial, and of its job.

        Raises:
            InvalidInput: The values break the template, or a reference leads nowhere.
        """
        spec, values = self.template.workload.manifest, {}
        for name, reference in self.template.parameters:
            key = meta_key(reference)
            value = (
                meta_value(key, spec, trial, self.namespace) if key else assignments.get(reference)
            )
            if value is None:
                raise InvalidInput(f"{reference!r} of trialParameter {name!r} has no value")
            values[name] = value
        job = fill(spec, values)
        metadata = {**mapping(job.get("metadata")), "name": trial, "namespace": self.namespace}
        return Workload(manifest={**job, "metadata": metadata})

    def sample_job(self, name: str) -> Workload:
        """Fill in the job of a trial with the first value of each parameter."""
        values = {parameter.name: parameter.samples()[0] for parameter in self.space}
        return self.render(name, values)

    def changed_job(self, change: Callable[[JobEditor], None]) -> Self:
        if not self.template.workload.manifest:  # a template in a ConfigMap
            return self
        job = self.template.workload.changed_job(change)
        # No function changes the kind of the job, which alone decides further defaults.
        spec = _with_job(unshared(self.manifest["spec"]), job)
        manifest = {**self.manifest, "spec": spec}
        return replace(self, manifest=manifest, defaulted=_with_job(self.defaulted, job))

    def with_counts(self, counts: Mapping[str, int | None]) -> Self:
        return self.changed(lambda manifest: manifest["spec"].update(counts))

    def with_asked(self, values: Values) -> Self:
        annotations = annotated(self.annotations, {**self.asked, **values})
        return self.with_metadata({**self.metadata, "annotations": annotations})

    def changed(self, change: Callable[[dict[str, Any]], None]) -> Self:
        manifest = unshared(self.manifest)
        change(manifest)
        return type(self).parse(manifest)

    @property
    def opens_store(self) -> bool:
        return self.template.workload.opens_store

    @property
    def is_resumable(self) -> bool:
        """Whether it was stopped, or lost its process, before its end."""
        return self.state.phase == "Stopped" or self.state.lost

    @property
    def is_restartable(self) -> bool:
        """Whether it has ended, but continues when maxTrialCount is raised."""
        reached = self.state.reason == "ExperimentMaxTrialsReached"
        return reached and self.resume_policy in ("LongRunning", "FromVolume")

    started = Attribute(
        "status.startTime", lambda value: datetime.fromisoformat(value) if text(value) else None
    )
    """Start of the first attempt."""

    @property
    def outcome(self) -> str:
        """Its phase; ``Failed`` too where it has had its trials and none has a result."""
        is_empty = self.state.succeeded and not self.optimal_trial
        return "Failed" if is_empty else self.state.phase

    completed = Attribute("status.completionTime", text)
    """End, RFC3339; empty before, and of one that was stopped."""

    @property
    def trials(self) -> dict[str, tuple[str, ...]]:
        """Names of the trials by phase, those that ended first."""
        listed = {
            phase: strings(self.status.get(names)) for phase, (names, _) in TRIAL_LISTS.items()
        }
        return {phase: names for phase, names in listed.items() if names}

    optimal_trial = Attribute("status.currentOptimalTrial.bestTrialName", text)
    """Name of ``currentOptimalTrial``; empty if there is none yet."""

    @property
    def optimal_value(self) -> float | None:
        """The objective of that trial; None if there is none yet."""
        return self.objective.value(
            read_metrics(mapping(self.status.get("currentOptimalTrial")).get("observation"))
        )

    trial_count = Attribute("status.trials", lambda count: integer(count) or 0)


def _with_job(spec: Mapping[str, Any], job: Workload) -> dict[str, Any]:
    return {**spec, "trialTemplate": {**spec["trialTemplate"], "trialSpec": job.manifest}}


def job_of(manifest: Mapping[str, Any]) -> Workload:
    """Return the job that a manifest is, or that an Experiment's trials are, whatever else is wrong
    with it."""
    if manifest.get("kind") != "Experiment":
        return Workload.parse(manifest)
    return TrialTemplate.parse(mapping(manifest.get("spec")).get("trialTemplate")).workload
