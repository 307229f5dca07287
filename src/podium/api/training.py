"""Train one model: ``podium.train(data, epochs=3, workers=1)``."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from podium.api.cluster_spec import ClusterSpec
from podium.api.experiments import check_here
from podium.api.jobs import Job, read_job
from podium.api.launched import Session
from podium.api.prepare import prepared
from podium.cluster.traits import traits_of
from podium.data.artifact import describe
from podium.display.notebook import LiveCell, data_frame, in_notebook, say, table
from podium.display.text import duration, figure, one_line
from podium.errors import Denied, InvalidInput, NotFound, PodiumError, Unavailable
from podium.manifests.workload import Workload
from podium.metrics import PACE
from podium.prediction import Predictions, open_model
from podium.storage import absolute
from podium.system.arguments import checked, plain
from podium.system.interrupts import signals_interrupt
from podium.system.settings import Settings
from podium.trainer.config import check_library, parse
from podium.training.follow import epochs_of
from podium.training.identity import RunIdentity, StepContext, new_run_id, object_name, storage_url
from podium.training.recipe import Recipe, as_arguments
from podium.training.settings import PlannedTraining, TrainingResult, TrainSettings
from podium.training.target import LaunchTarget, data_url, launch

if TYPE_CHECKING:
    from pandas import DataFrame


class Training(Job):
    """A training that is running or has ended: a job that reports epochs and leaves a model.

    Args:
        session: The cluster it runs on.
        target: Cluster, image and pod settings.
    """

    def __init__(self, session: Session, planned: PlannedTraining, target: LaunchTarget) -> None:
        super().__init__(session, planned.job.kind, planned.job.name)
        self._planned, self._target, self.model = planned, target, planned.output
        self._shown, self._began = 0, time.monotonic()
        self._epochs: list[dict[str, float]] = []
        self._last = ""

    @property
    def job(self) -> Workload:
        """The job that trains, typed."""
        return self._planned.job

    @property
    def is_remote(self) -> bool:
        """Whether it runs elsewhere than on this machine."""
        return not self.cluster.traits.shares_files

    @property
    def status(self) -> str:
        """``Created``, ``Running``, ``Waiting``, ``Stopped``, ``Succeeded`` or ``Failed``."""
        state = self.workload.state
        return "Stopped" if state.reason.endswith("Stopped") else state.phase  # PyTorchJobStopped

    @property
    def metrics(self) -> dict[str, float]:
        """Validation metrics of the weights that were kept; the latest ones while it runs.

        Raises:
            NotFound: It left no model.
        """
        if self.status == "Succeeded":
            return dict(self._trained.metrics)
        return dict(self._read()[-1]) if self._read() else {}

    @property
    def _figures(self) -> dict[str, float]:
        with suppress(NotFound):
            return self.metrics
        return {}

    @property
    def epochs(self) -> "DataFrame":
        """Metrics reported during training, one row per epoch."""
        epochs = self._read()
        return data_frame(epochs, list(dict.fromkeys(name for epoch in epochs for name in epoch)))

    @cached_property
    def _trained(self) -> TrainingResult:
        return self._planned.result(self._read(), self._target)

    def _read(self) -> list[dict[str, float]]:
        """Return the metrics of each line of its log; those read before if it cannot be read any
        more."""
        metrics, formats = self._planned.recipe.metrics, self._planned.recipe.formats
        with suppress(NotFound, Unavailable, Denied):
            lines = list(self.cluster.logs(self.kind, self.name))
            self._last = next((one_line(line) for line in reversed(lines) if line.strip()), "")
            self._epochs = max(self._epochs, epochs_of(lines, metrics, formats), key=len)
        return self._epochs

    def wait(self) -> Self:
        """Show its epochs until it has ended, as Job.wait does its replicas.

        Raises:
            Failed: The training failed.
            NotFound: It left no model.
        """
        self._shown, self._began = 0, time.monotonic()
        return super().wait()

    def check(self) -> None:
        """Raise the error of a failed training; does nothing if it succeeded or was stopped.

        Raises:
            Failed: The training failed.
            NotFound: It left no model.
        """
        super().check()
        if self.status == "Succeeded":
            self._trained  # noqa: B018  records what there is

    def _show(self, cell: LiveCell) -> None:
        epochs = self._read()
        if in_notebook():
            cell.show(_table(self.name, epochs))
            return
        for number, values in enumerate(epochs[self._shown :], self._shown + 1):
            say(
                f"epoch {number}: {' '.join(f'{name}={value:g}' for name, value in values.items())}"
            )
        self._shown = len(epochs)

    def _sign_of_life(self) -> str:
        """Describe progress by the last printed line: an epoch may take minutes."""
        last = self._last.removeprefix(PACE) or "nothing printed yet"
        return f"{self.name}, {duration(time.monotonic() - self._began)} so far: {last}"

    def predict(self, items: Any, *, data: str | Path = "") -> Predictions:
        """Predict new items as ``Version.predict`` does; raw data become inputs as those it was
        trained on did."""
        return open_model(self.model).predict(items, data=data or self._planned.data)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {figure(value)}" for name, value in self._figures.items())
        return f"<training {self.name}: {self.status}, {metrics or 'no metrics'}>"

    def _repr_html_(self) -> str:
        rows = [(name, figure(value)) for name, value in self._figures.items()]
        return table(("METRIC", ">VALUE"), rows, title=f"{self.name}: {self.status}, {self.model}")


@checked
def train(
    data: str | Path | Any,
    *,
    target: str = "",
    command: Sequence[str] = (),
    job: str | Path | Mapping[str, Any] | None = None,
    workers: int = 0,
    gpus: int = 0,
    cluster: str | Path | None = None,
    storage: str | Path | None = None,
    image: str = "",
    queue: str = "",
    queue_priority: str = "",
    wait: bool = True,
    **hyperparameters: Any,
) -> Training:
    """Train one model, in one or several processes or pods, and show its epochs as they run.

    Args:
        data: A dataset, or its directory or URI; or ``(X, y)``, arrays by name, a DataFrame, which
            are prepared first.
        target: Name of the target column of a DataFrame.
        command: The trainer; podium's own if empty. It gets ``--data``, ``--output`` and the
            hyperparameters.
        job: A Job, PyTorchJob or TrainJob instead: a file, or a manifest as a dict. Its command may
            hold ``${podium.data}`` and ``${podium.output}``, or read PODIUM_DATA and PODIUM_OUTPUT.
        workers: Processes beside the master; -1 leaves it to the job.
        gpus: GPUs of each process; 0 trains on the CPU.
        cluster: ``kubernetes://NAMESPACE`` or a directory of this machine; the local cluster of
            PODIUM_HOME if None.
        storage: Directory or URI that keeps the model; ``$PODIUM_HOME/store`` on this machine if
            None.
        image: Image of the pods, on Kubernetes.
        queue: Kueue's local queue, in which the job waits for its turn on a cluster.
        queue_priority: Kueue's WorkloadPriorityClass, with a queue.
        wait: Whether to return at the end, or at once while it trains in the background:
            ``.status``, ``.metrics``, ``.wait()`` and ``.stop()`` watch it. On this machine it is
            stopped when this process ends.
        **hyperparameters: Flags of the trainer, for podium's own ``epochs=3, lr=0.5,
            model="fast"``.

    Raises:
        InvalidInput: A setting breaks a rule; nothing was started.
        Failed: The training failed.
        NotFound: It left no model.

    Example:
        >>> import podium
        >>> training = podium.train(dataset, epochs=1, model="fast", seed=1)
        >>> sorted(training.metrics)
        ['accuracy', 'epoch', 'loss']
    """
    spec = ClusterSpec.of(cluster)
    pods = {"queue": queue, "queue_priority": queue_priority}
    launched = LaunchTarget(
        trainer_image=image, cluster=spec.url, gpus_per_worker=plain(gpus), pods=pods
    )
    settings = _settings(job, command, plain(workers), hyperparameters)
    if traits_of(spec.url).shares_files and not (job or command):
        _check_flags(hyperparameters)
    with signals_interrupt():
        data = prepared(data, target)
        check_here(data)
        if traits_of(spec.url).shares_files and not (job or command):
            settings = _fitting(settings, str(data))
        begun = _begin(absolute(data), _storage(storage, spec), spec, settings, launched)
        try:
            return begun.wait() if wait else begun
        except KeyboardInterrupt:
            if begun.is_remote:  # nobody has it, so that it could be stopped later
                with suppress(PodiumError):
                    begun.delete()
            raise


def _check_flags(hyperparameters: Mapping[str, Any]) -> None:
    """Refuse what podium's trainer would refuse once its job runs."""
    if "name" in hyperparameters:
        hint = "it is named by its run: training.name"
        raise InvalidInput("a training takes no name", hint)
    parse(as_arguments(hyperparameters))


def _fitting(settings: TrainSettings, data: str) -> TrainSettings:
    meaning = describe(data).meaning
    fitting = replace(settings, data_meaning=meaning)
    flags = {**fitting.fixed(gpus=0), **fitting.hyperparameters}
    check_library(parse(as_arguments(flags)).model, meaning)
    return fitting


def _begin(
    data: str, storage: str, spec: ClusterSpec, settings: TrainSettings, target: LaunchTarget
) -> Training:
    run, session = RunIdentity(id=new_run_id()), Session(spec)
    step = StepContext(lambda: run, lambda: storage_url(storage, data))
    try:
        cluster = session.cluster
        uri, name = data_url(data, step, cluster), object_name("train", run.id, "train")
        planned = settings.plan(uri, name, target=target, step=step, admits=cluster.admits)
        launch(cluster, planned.job)
    except BaseException:
        session.close()
        raise
    say(f"{planned.job.kind} {name}, at {cluster.url}")
    session.keep_open(planned.job.kind, name)
    return Training(session, planned, target)


def _storage(named: str | Path | None, spec: ClusterSpec) -> str:
    if named:
        return absolute(named)
    return Settings.from_environment().storage if traits_of(spec.url).shares_files else ""


def _settings(
    job: str | Path | Mapping[str, Any] | None,
    command: Sequence[str],
    workers: int,
    hyperparameters: dict[str, Any],
) -> TrainSettings:
    if job is None:
        return TrainSettings(command=command, workers=workers, hyperparameters=hyperparameters)
    if hyperparameters:
        names = ", ".join(hyperparameters)
        raise InvalidInput(
            f"a job has its hyperparameters in its command, but got {names}", "write them there"
        )
    recipe = Recipe.of_job(read_job(job).manifest).to_text()
    return TrainSettings(recipe=recipe, command=command, workers=workers, hyperparameters={})


def _table(name: str, epochs: Sequence[Mapping[str, float]]) -> str:
    metrics = list(dict.fromkeys(metric for epoch in epochs for metric in epoch))
    rows = [
        [str(number), *(figure(epoch[metric]) if metric in epoch else "" for metric in metrics)]
        for number, epoch in enumerate(epochs, 1)
    ]
    return table([">EPOCH", *(f">{metric}" for metric in metrics)], rows, title=name)
