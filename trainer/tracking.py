"""Experiment trackers as options: Weights & Biases, MLflow, TensorBoard behind three verbs.

They write to a directory on this machine, and connect to a server only if the user names one in
that tracker's own environment variables (WANDB_MODE=online, MLFLOW_TRACKING_URI=https://…), where
the keys belong as well. A tracker that fails is named once on stderr and left out; the training
continues.
"""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from podium.trainer.config import TrainConfig


class _Tracker(Protocol):
    """One tracker following one training."""

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        """Record the numbers of an epoch."""

    def close(self, succeeded: bool) -> None:
        """End the run."""


class _WandB:
    """Weights & Biases; offline unless WANDB_MODE says otherwise. One run per trial, grouped by
    sweep."""

    def __init__(self, config: dict[str, Any], name: str, group: str, directory: Path) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "podium"),
            name=name,
            group=group or None,
            config=config,
            dir=str(directory),
            mode=mode,
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=epoch)

    def close(self, succeeded: bool) -> None:
        import wandb

        self.run.finish(exit_code=0 if succeeded else 1)
        wandb.teardown()  # finish alone returns before its service process has written the run to disk


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Let one process at a time open a SQLite database: MLflow writes the tables of a new one
    without a lock."""
    if not uri.startswith("sqlite:///"):
        yield
        return
    with Path(f"{uri.removeprefix('sqlite:///')}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _MLflow:
    """MLflow; a SQLite database in the directory unless MLFLOW_TRACKING_URI names a server."""

    def __init__(self, config: dict[str, Any], name: str, group: str, directory: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read at the import
        from mlflow.tracking import MlflowClient

        uri = (
            os.environ.get("MLFLOW_TRACKING_URI")
            or f"sqlite:///{(directory / 'mlflow.db').absolute()}"
        )
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or group or "podium"
        with _alone(uri):
            self.client = MlflowClient(tracking_uri=uri)
            self.run_id = self.client.create_run(
                self._experiment(experiment), run_name=name
            ).info.run_id
        for key, value in config.items():
            self.client.log_param(self.run_id, key, value)

    def _experiment(self, name: str) -> str:
        """Return the id of an experiment; another trial may make it at the same moment."""
        from mlflow.exceptions import MlflowException

        if existing := self.client.get_experiment_by_name(name):
            return str(existing.experiment_id)
        try:
            return str(self.client.create_experiment(name))
        except MlflowException:
            if made := self.client.get_experiment_by_name(name):
                return str(made.experiment_id)
            raise

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self.client.log_metric(self.run_id, key, value, step=epoch)

    def close(self, succeeded: bool) -> None:
        self.client.set_terminated(self.run_id, "FINISHED" if succeeded else "FAILED")


class _TensorBoard:
    """TensorBoard event files, one directory per run: ``tensorboard --logdir
    DIRECTORY/tensorboard``."""

    def __init__(self, config: dict[str, Any], name: str, group: str, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(directory / "tensorboard" / group / name))
        self.writer.add_text(
            "config", "\n".join(f"    {key} = {value!r}" for key, value in config.items())
        )

    def log(self, epoch: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, epoch)

    def close(self, succeeded: bool) -> None:
        self.writer.close()


TRACKERS: dict[str, Callable[[dict[str, Any], str, str, Path], _Tracker]] = {
    "wandb": _WandB,
    "mlflow": _MLflow,
    "tensorboard": _TensorBoard,
}


class Tracking:
    """All trackers of a training; none of them can make it fail.

    Args:
        config: Names the trackers and where they write.
        environ: KATIB_TRIAL_NAME names the run; its sweep is the group.
    """

    def __init__(self, config: TrainConfig, environ: Mapping[str, str] = os.environ) -> None:
        self.active: dict[str, _Tracker] = {}
        trial = environ.get("KATIB_TRIAL_NAME", "")
        name = trial or config.output.rstrip("/").rpartition("/")[2] or "train"
        group = trial.rpartition("-")[0]  # Katib calls a trial <experiment>-<random>
        for kind in config.track:
            self._guard(kind, partial(self._open, kind, config, name, group))

    def log(self, record: dict[str, float]) -> None:
        """Record a finished epoch everywhere.

        Args:
            record: ``epoch`` and the epoch's numbers by name.
        """
        values = {name: value for name, value in record.items() if name != "epoch"}
        for kind, tracker in list(self.active.items()):
            self._guard(kind, partial(tracker.log, int(record["epoch"]), values))

    def __enter__(self) -> "Tracking":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for name, tracker in list(self.active.items()):
            self._guard(name, partial(tracker.close, kind is None))

    def _open(self, kind: str, config: TrainConfig, name: str, group: str) -> None:
        directory = Path(config.track_dir)
        directory.mkdir(parents=True, exist_ok=True)
        self.active[kind] = TRACKERS[kind](asdict(config), name, group, directory)

    def _guard(self, kind: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever a tracker does, the training matters more
            self.active.pop(kind, None)
            missing = isinstance(error, ImportError)
            reason = (
                f"pip install 'podium-ml[{kind}]'"
                if missing
                else f"{type(error).__name__}: {str(error)[:300]}"
            )
            print(f"notice: --track {kind} is left out: {reason}", file=sys.stderr, flush=True)
