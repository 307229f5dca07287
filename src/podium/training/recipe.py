"""Recipe of the best trial's training, as the sweep hands it to the training, and the job that
trains the same way again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.files.documents import load_json, parse, with_whole_numbers
from podium.manifests.experiment import Experiment, Trial
from podium.manifests.experiment.build import flags_of, give_gpus
from podium.manifests.experiment.trainer import FLAGS, NAME, connect_trainer, fill, set_flags
from podium.manifests.job_editor import JobEditor
from podium.manifests.job_kinds import (
    AUTO,
    CONTAINER,
    Admits,
    admits_all,
    as_kind,
    build_pytorchjob,
    choose_kind,
    with_workers,
)
from podium.manifests.labels import ISTIO_INJECT
from podium.manifests.shell import run_by_shell
from podium.manifests.workload import Workload, role_of
from podium.metrics.goals import less_is_better
from podium.system.settings import TRAINER_IMAGE
from podium.training.identity import RunIdentity
from podium.training.target import DEADLINE, KEPT, LaunchTarget

TRAINER = ("python", "-m", "podium.trainer")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A job with placeholders for data, output and name: enough to train the same way again."""

    workload: Workload
    """A Job, PyTorchJob or TrainJob."""

    container: str
    hyperparameters: Mapping[str, Any]
    """By name: all flags of podium's trainer but data and output, or the search parameters of
    another."""

    metrics: tuple[str, ...]
    """Metrics that the trainer reports, the objective first."""

    formats: tuple[str, ...] = ()
    """metricsFormat of its lines; none stands for Katib's default."""

    model: str = ""
    """URI of the model that a trial left; empty where no trial was trained so."""

    @classmethod
    def of_command(cls, command: Sequence[str], hyperparameters: Mapping[str, Any]) -> "Recipe":
        """Describe the training of a command; hyperparameters become its flags."""
        job = build_pytorchjob(
            image=TRAINER_IMAGE, command=command, args=as_arguments(hyperparameters)
        )
        return cls(
            workload=Workload.parse(job),
            container=CONTAINER,
            hyperparameters=hyperparameters,
            metrics=tuple(reported_metrics()),
        )

    @classmethod
    def of_job(cls, manifest: Mapping[str, Any]) -> "Recipe":
        """Describe the training of a job's manifest; its first container trains, in a PyTorchJob
        the one called so."""
        workload = Workload.parse(manifest)
        names = [container.name for _, container in workload.containers()]
        container = CONTAINER if CONTAINER in names else next(iter(names), "")
        return cls(
            workload=workload,
            container=container,
            hyperparameters={},
            metrics=tuple(reported_metrics()),
        )

    @classmethod
    def of_trial(cls, experiment: Experiment, trial: Trial, model: str) -> "Recipe":
        """Describe a trial's training.

        Args:
            experiment: As adapted, before its data and outputs were located.
            model: URI of the trial's model.
        """
        assignments = dict(trial.assignments)
        hyperparameters = (
            flags_of(experiment, trial.name, assignments)
            if experiment.uses_builtin_trainer
            else assignments
        )
        collector = experiment.collector
        workload = experiment.render(NAME, assignments)
        return cls(
            workload=workload.changed_job(
                lambda editor: _leave_shell(editor, workload, experiment)
            ),
            container=experiment.template.primary_container,
            hyperparameters=hyperparameters,
            metrics=experiment.objective.metrics,
            formats=collector.filters if collector.reads_text else (),
            model=model,
        )

    @property
    def uses_builtin_trainer(self) -> bool:
        """Whether it runs podium's trainer."""
        return any(
            body.uses_builtin_trainer
            for _, body in self.workload.containers()
            if body.name == self.container
        )

    @property
    def command(self) -> tuple[str, ...]:
        """Command and arguments of the container that trains."""
        return next(
            (body.words for _, body in self.workload.containers() if body.name == self.container),
            (),
        )

    def to_text(self) -> str:
        return json.dumps(
            {
                "workload": self.workload.manifest,
                "container": self.container,
                "hyperparameters": dict(self.hyperparameters),
                "metrics": self.metrics,
                "formats": self.formats,
                "model": self.model,
            }
        )

    @classmethod
    def parse(cls, text: str) -> "Recipe":
        """Read what to_text wrote.

        Raises:
            InvalidInput: It is not JSON, or a field is missing or of another type.
        """
        document = parse(_Document, load_json(text, "the recipe"), "the recipe")
        return cls(
            workload=Workload.parse(document.workload),
            container=document.container,
            hyperparameters=document.hyperparameters,
            metrics=tuple(document.metrics),
            formats=tuple(document.formats),
            model=document.model,
        )

    def job(
        self,
        target: LaunchTarget,
        *,
        workers: int,
        fixed: Mapping[str, Any],
        values: Mapping[str, str],
        run: RunIdentity,
        job_kind: str = AUTO,
        admits: Admits = admits_all,
    ) -> Workload:
        """Return the job that trains.

        Args:
            target: Where and with what it runs.
            workers: Pods beside the first one; negative takes 1 for podium's trainer, or none where
                a Job is asked for, and for another trainer those of the trials. A Job without
                workers stays a Job.
            fixed: Flags for podium's trainer.
            values: What stands for the placeholders.
            run: The run it belongs to.
            job_kind: What it is launched as, see podium.manifests.job_kinds.

        Raises:
            InvalidInput: The job cannot be of the kind that is asked for.
        """
        if workers < 0:
            workers = self._usual_workers(job_kind)
        kind = choose_kind(self.workload.kind, job_kind, workers, admits)
        job, container = as_kind(*with_workers(self.workload, self.container, workers), kind)

        def change(editor: JobEditor) -> None:
            for _, body in editor.containers(container):
                self._prepare(body, target, fixed)
            give_gpus(editor, container, target.gpus_per_worker)
            _limit(editor, job.kind, workers, builtin=self.uses_builtin_trainer)
            fill(editor, values)
            editor.identify(values[NAME], run.owner)
            editor.label(run.labels)
            editor.label_pods({**run.labels, ISTIO_INJECT: "false"})

        return target.place(job.changed_job(change), container)

    def _usual_workers(self, job_kind: str) -> int:
        if job_kind == "job":
            return 0
        return 1 if self.uses_builtin_trainer else self.workload.workers

    def _prepare(
        self, body: dict[str, Any], target: LaunchTarget, fixed: Mapping[str, Any]
    ) -> None:
        body["image"] = target.image(str(body.get("image") or ""))
        if self.uses_builtin_trainer:
            set_flags(
                body,
                {**{f"--{name}": str(value) for name, value in fixed.items()}, **FLAGS},
                quoted=False,
            )
        connect_trainer(body)


def _leave_shell(editor: JobEditor, job: Workload, experiment: Experiment) -> None:
    """Let the commands that Katib hands to a shell do without it what they do there."""
    shells = experiment.wrapped_roles(job)
    for role, body in editor.containers(experiment.template.primary_container):
        if role_of(role, job.operator) in shells and body.get("command"):
            names = [entry["name"] for entry in body.get("env") or ()]
            words = [*body["command"], *(body.pop("args", None) or ())]
            body["command"] = run_by_shell(words, names)


@dataclass(frozen=True, kw_only=True)
class _Document:
    workload: dict[str, Any]
    container: str
    hyperparameters: dict[str, Any]
    metrics: list[str]
    formats: list[str]
    model: str


def _limit(editor: JobEditor, kind: str, workers: int, *, builtin: bool) -> None:
    """Bound a job's time; podium's trainer is started again where another attempt may succeed."""
    editor.limit(deadline=DEADLINE, kept=KEPT, tries=3 * (workers + 1) + 1 if builtin else None)
    if kind == "PyTorchJob":
        editor.run_policy["cleanPodPolicy"] = "Running"
    if builtin:
        # The trainer exits with 1 or 2 for good, and with more than 128 where another attempt may
        # succeed.
        editor.set_restart_policy("ExitCode")


def as_arguments(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Write flags as ``--name=value``, or ``--name`` for True and nothing for False."""
    values = with_whole_numbers(
        {name: value for name, value in flags.items() if value is not False}
    )
    written = {f"--{name.replace('_', '-')}": value for name, value in values.items()}
    return tuple(name if value is True else f"{name}={value}" for name, value in written.items())


def reported_metrics(*first: str) -> dict[str, bool]:
    """Return the metrics to look for in the log of a training, and whether more of each is better.

    Args:
        first: Metrics of the user's own, or an Experiment's; empty names do not count.
    """
    from podium.scoring import METRICS

    names = [*filter(None, first), *METRICS, "loss"]
    return {name: not less_is_better(name) for name in names}
