"""Settings of sweeps and trainings, and the job that a training launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from podium.errors import InvalidInput, require
from podium.manifests.experiment import Experiment
from podium.manifests.experiment.build import adapt, decided, tuned_for_numbers, usual_epochs
from podium.manifests.experiment.source import (
    AUTO as CHOSEN,
    LINEAR,
    QUICKEST,
    RANDOM,
    TABLES,
    TREES,
    is_bundled,
)
from podium.manifests.experiment.trainer import DATA, NAME, OUTPUT
from podium.manifests.job_kinds import (
    AUTO,
    Admits,
    admits_all,
    check_choice,
    choose_kind,
    trials_as,
)
from podium.manifests.options import read_settings
from podium.manifests.options.folds import Folds
from podium.manifests.shell import is_shell
from podium.manifests.workload import Workload, uses_builtin_trainer
from podium.prediction.directory import ModelDirectory
from podium.training.base import require_at_least
from podium.training.identity import RunIdentity, StepContext
from podium.training.origin import Origin
from podium.training.own_files import complete
from podium.training.recipe import TRAINER, Recipe, as_arguments
from podium.training.target import LaunchTarget, local_path
from podium.training.trained import TrainedMetrics


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Settings of a sweep; fields are named as in the pipelines."""

    experiment: str
    """Name of a bundled Experiment, or YAML; auto for the one that suits the data."""

    max_trials: int
    """spec.maxTrialCount"""

    parallel_trials: int
    """spec.parallelTrialCount; lowered to max_trials."""

    trial_epochs: int = -1
    """``--epochs`` of podium's trainer; 0 leaves it to the Experiment, and so does -1, but where
    podium chooses it for pictures or arrays: one."""

    trial_workers: int = 0
    """Workers of each trial, besides its master; 0: none, or those of the Experiment for another
    trainer."""

    network: str = ""
    """``--model`` of podium's trainer; empty leaves it to the Experiment, if that does not come
    with podium."""

    weights: str = ""
    """``--weights`` of podium's trainer; empty leaves it to the Experiment."""

    data_meaning: str = "image"
    """Meaning of the data's input: image, table, array or tokens."""

    data_kind: str = ""
    """``classification`` or ``regression``, where that is known."""

    ensemble: bool = False
    """Whether trials become a candidate together."""

    confirm: str = ""
    """Sweep option of that name, ``3x3``; empty leaves it to the Experiment."""

    folds: int = -1
    """Sweep option of that name; 0 leaves it to the Experiment, and so does -1, unless podium
    chooses the Experiment of a small table; see with_folds."""

    seed: int = 0
    """``random_state`` of the algorithm and ``--seed`` of podium's trainer; 0 leaves both to the
    Experiment."""

    job_kind: str = AUTO
    """Kind of its trials: auto, pytorchjob, trainjob or job, see podium.manifests.job_kinds."""

    def __post_init__(self) -> None:
        check_choice(self.job_kind, self.trial_workers)
        require_at_least(self, max_trials=1, parallel_trials=1, trial_epochs=-1, trial_workers=0)
        Folds.of(read_settings({"confirm": self.confirm or None, "folds": self._folds}))
        _require_seed(self.seed)

    @property
    def model(self) -> str:
        """``--model`` of the trials; empty for what the Experiment says."""
        if self.data_meaning == "tokens" and not self.network and is_bundled(self.source):
            return LINEAR
        return (
            self.network
            if self.names_network
            else QUICKEST.get(self.data_meaning, QUICKEST["image"])
        )

    @property
    def names_network(self) -> bool:
        """Whether somebody chose the network, or the Experiment does."""
        return bool(self.network) or self.source == TABLES or not is_bundled(self.source)

    @property
    def decided_epochs(self) -> int:
        """Epochs of a trial of podium's trainer; 0 leaves them to the Experiment."""
        if self.trial_epochs >= 0:
            return self.trial_epochs
        return 1 if self.experiment == CHOSEN and self.source == RANDOM else 0

    @property
    def source(self) -> str:
        """Name or YAML of the Experiment."""
        if self.experiment != CHOSEN:
            return self.experiment
        is_fitted = self.data_meaning in ("table", "tokens") or self.network == TREES
        return TABLES if is_fitted else RANDOM

    def with_folds(self, usual: int) -> "SweepSettings":
        """Return the settings with the folds that suit the data, where podium chooses them."""
        is_chosen = self.folds < 0 and self.experiment == CHOSEN and self.source == TABLES
        return replace(self, folds=usual) if is_chosen else self

    @property
    def _folds(self) -> int | None:
        return None if self.folds in (-1, 0) else self.folds

    def load(self) -> Experiment:
        """Read the Experiment as it is written."""
        return Experiment.load(self.source, self.model)

    def adapt(
        self, target: LaunchTarget, *, name: str, run: RunIdentity, admits: Admits = admits_all
    ) -> Experiment:
        """Return the Experiment as part of a run, with placeholders for data and outputs.

        Args:
            target: Where and with what it runs.
            run: The run it belongs to.

        Raises:
            InvalidInput: There is no such Experiment, or a setting makes no sense for it.
        """
        experiment = self.load()
        if self.network and not experiment.uses_builtin_trainer:
            problem = f"network={self.network} is for podium's trainer, but the trials run another"
            raise InvalidInput(
                problem, "make it a parameter of the Experiment or a word of its command"
            )
        if self.data_kind == "regression" and experiment.uses_builtin_trainer:
            experiment = tuned_for_numbers(experiment)
        experiment = self._as_kind(experiment, admits)
        fixed = decided(
            epochs=self.decided_epochs,
            network=self.model,
            weights=self.weights,
            seed=self.seed,
            gpus=target.gpus_per_worker,
        )
        seeded = self.seed and "random_state" in experiment.algorithm.facts.settings
        own_workers = not self.trial_workers and not experiment.uses_builtin_trainer
        return adapt(
            experiment,
            fixed=fixed,
            gpus=target.gpus_per_worker,
            name=name,
            image_for=target.image,
            max_trials=self.max_trials,
            workers=None if own_workers else self.trial_workers,
            parallel_trials=min(self.parallel_trials, self.max_trials),
            seed=self.seed if seeded else None,
            confirm=self.confirm or None,
            folds=self._folds,
            labels=run.labels,
            owner=run.owner,
        )

    def _as_kind(self, experiment: Experiment, admits: Admits) -> Experiment:
        own = experiment.template.workload
        workers = (
            self.trial_workers
            if self.trial_workers or experiment.uses_builtin_trainer
            else own.workers
        )
        if own.kind == "Job" and self.job_kind == AUTO:
            return experiment
        kind = choose_kind(own.kind, self.job_kind, workers, admits)
        return trials_as(experiment, kind, workers)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of a training job; fields are named as in the pipelines."""

    recipe: str = ""
    """How the best trial was trained, as the sweep wrote it; empty runs the command."""

    command: Sequence[str] = ()
    """Command of the trainer where there is no recipe; none is podium's own."""

    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Flags of the command without the dashes, and their values."""

    network: str = ""
    """``--model`` of podium's trainer; empty leaves it to recipe or hyperparameters, else it is the
    one that suits the data."""

    weights: str = ""
    """``--weights`` of podium's trainer; empty leaves it to the hyperparameters."""

    data_meaning: str = "image"
    """Meaning of the data's input: image, table, array or tokens."""

    epochs: int = -1
    """``--epochs`` of podium's trainer; 0 leaves it to recipe or hyperparameters, and so does -1,
    but where the trials took fewer than their network usually takes."""

    workers: int = -1
    """Workers besides the master; -1 takes 1 for podium's trainer, but none for tables and
    sentences, whose steps take less than to share them, and for another as many as its trials
    have."""

    seed: int = 0
    """``--seed`` of podium's trainer; 0 leaves it to the hyperparameters."""

    job_kind: str = AUTO
    """Kind of job to launch: auto, pytorchjob, trainjob or job, see podium.manifests.job_kinds."""

    def __post_init__(self) -> None:
        require_at_least(self, epochs=-1, workers=-1)
        check_choice(self.job_kind, self.workers)
        _require_seed(self.seed)
        if isinstance(self.command, str) or not all(isinstance(word, str) for word in self.command):
            raise InvalidInput(
                f"command is a list of words, but got {self.command!r}", '["python", "train.py"]'
            )
        if self.hyperparameters and is_shell(self.command):
            hint = "write them into the command, or train with a sweep"
            raise InvalidInput(
                f"a shell takes no hyperparameters, but got {dict(self.hyperparameters)}", hint
            )
        if not self.recipe:
            self.refuse_network(self.command or TRAINER)

    def refuse_network(self, words: Sequence[str]) -> None:
        """Refuse a network for a trainer that is not podium's.

        Raises:
            InvalidInput: A network is given.
        """
        if self.network and not uses_builtin_trainer(words):
            problem = f"network={self.network} is for podium's trainer, but the command is {' '.join(words):.80}"
            raise InvalidInput(
                problem, "make it a parameter of the Experiment or a word of the command"
            )

    def read_recipe(self) -> Recipe:
        """Return what is trained.

        Raises:
            InvalidInput: The recipe is not readable, or a network is given for a trainer that takes
                none.
        """
        if not self.recipe:
            return Recipe.of_command(self.command or TRAINER, self.hyperparameters)
        recipe = Recipe.parse(self.recipe)
        self.refuse_network(recipe.command)
        return recipe

    @property
    def names_network(self) -> bool:
        """Whether somebody chose the network."""
        return bool(self.network or self.recipe or self.command or "model" in self.hyperparameters)

    def fixed(self, gpus: int) -> dict[str, Any]:
        """Return the flags of podium's trainer that the run decides, for replicas with this many
        GPUs."""
        suited = TREES if self.data_meaning == "table" else QUICKEST.get(self.data_meaning)
        network = self.network if self.names_network else suited or QUICKEST["image"]
        epochs = self._least_epochs() if self.epochs < 0 else self.epochs
        return decided(
            epochs=epochs, network=network, weights=self.weights, seed=self.seed, gpus=gpus
        )

    def _least_epochs(self) -> int:
        recipe = self.read_recipe()
        hyperparameters = (
            recipe.hyperparameters if self.recipe and recipe.uses_builtin_trainer else {}
        )
        usual = usual_epochs(str(self.network or hyperparameters.get("model") or ""))
        return (
            usual if "epochs" in hyperparameters and float(hyperparameters["epochs"]) < usual else 0
        )

    def plan(
        self,
        data: str,
        name: str,
        *,
        target: LaunchTarget,
        step: StepContext,
        admits: Admits = admits_all,
    ) -> "PlannedTraining":
        """Return the job that trains, and what is known of it.

        Args:
            data: URI of the dataset artifact.
            target: Where and with what to run it.
            step: Its run and storage.

        Raises:
            InvalidInput: A setting breaks a rule.
        """
        run, output = step.run, step.url(name)
        recipe, fixed = self.read_recipe(), self.fixed(target.gpus_per_worker)
        values = {DATA: local_path(data), OUTPUT: local_path(output), NAME: name}
        is_small = recipe.uses_builtin_trainer and self.data_meaning in ("table", "tokens")
        job = recipe.job(
            target,
            workers=0 if is_small and self.workers < 0 else self.workers,
            fixed=fixed,
            values=values,
            run=run,
            job_kind=self.job_kind,
            admits=admits,
        )
        hyperparameters = {
            **recipe.hyperparameters,
            **(fixed if recipe.uses_builtin_trainer else {}),
        }
        return PlannedTraining(
            job=job,
            recipe=recipe,
            data=data,
            output=output,
            hyperparameters=hyperparameters,
            run=run,
        )


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Result of a training job."""

    model: str
    metrics: dict[str, float]
    """Validation metrics of the final weights, measured by the trainer."""

    @classmethod
    def of(cls, uri: str) -> "TrainingResult":
        """Return the result of the training that left a model."""
        trained = TrainedMetrics.read(ModelDirectory(uri))
        epoch = {} if trained.epoch is None else {"epoch": float(trained.epoch)}
        return cls(model=uri, metrics={**trained.metrics, **epoch})


@dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """A training before it is launched."""

    job: Workload
    recipe: Recipe
    data: str
    output: str
    hyperparameters: dict[str, Any]
    run: RunIdentity

    def repeats_trial(self, digest: str) -> bool:
        """Return whether it is the training of the best trial over again: podium's trainer in the
        same image with the same data, flags, the seed among them, and as many processes.

        Args:
            digest: Of the dataset.
        """
        trial = self.recipe
        return bool(
            trial.model
            and trial.uses_builtin_trainer
            and set(trial.workload.images) == set(self.job.images)
            and trial.workload.processes_at_once == self.job.processes_at_once
            and TrainedMetrics.read(ModelDirectory(trial.model)).dataset == digest
            and as_arguments(trial.hyperparameters) == as_arguments(self.hyperparameters)
        )

    def result(self, epochs: Sequence[Mapping[str, float]], target: LaunchTarget) -> TrainingResult:
        """Return what the job left, once it has succeeded, and record where it comes from.

        Args:
            epochs: The metrics of each line of its log.
            target: Where and with what it ran.

        Raises:
            NotFound: The job left no model.
        """
        directory = ModelDirectory(self.output)
        complete(directory, target)
        if epochs and not TrainedMetrics.read(directory).metrics:
            TrainedMetrics.write(directory, epochs)
        image = next(iter(self.job.images), "")
        Origin(
            kind="training",
            name=self.job.name,
            run_id=self.run.id,
            uri=self.output,
            hyperparameters=self.hyperparameters,
            image=image,
            code=target.code,
            install_requirements=target.install_requirements,
        ).write(directory)
        return TrainingResult.of(self.output)


def _require_seed(seed: int) -> None:
    require(0 <= seed < 2**32, "0 <= seed < 2**32", seed=seed)
