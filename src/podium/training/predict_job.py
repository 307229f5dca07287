"""Run a model's predict command as a job on a cluster, on inputs it may see and never on the
target."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.errors import Failed, NotFound, PodiumError
from podium.manifests.job_kinds import job_manifest
from podium.manifests.workload import Workload
from podium.models import Version
from podium.prediction.command import (
    OUTPUT,
    PredictCommand,
    read_predictions,
    write_inputs,
)
from podium.prediction.directory import ModelDirectory
from podium.storage import connect as open_storage
from podium.training.base import say
from podium.training.follow import follow
from podium.training.identity import StepContext, object_name
from podium.training.origin import Runtime
from podium.training.target import DEADLINE, KEPT, LaunchTarget, launched, local_path

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class PredictJobs:
    """Where predict commands run."""

    step: StepContext
    target: LaunchTarget

    def predict(
        self,
        directory: ModelDirectory,
        runtime: Runtime,
        inputs: "Mapping[str, np.ndarray]",
        *,
        part: str,
        classes: int | None,
        name: str,
    ) -> "np.ndarray":
        """Return a model's predictions; see read_predictions for what they are.

        Args:
            runtime: What it was trained in.
            inputs: The dataset's, each ``[n, ...]``.
            part: The dataset's; tells the job from others of this model.
            classes: How many classes the dataset has; None for regression.

        Raises:
            InvalidInput: The predictions do not fit the inputs.
            Failed: The command failed; the error holds the end of its log.
        """
        import numpy as np

        command, items = directory.command, len(next(iter(inputs.values())))
        order = np.random.default_rng(items).permutation(
            items
        )  # labels that it found somewhere would be in another
        job_name = object_name(f"predict-{part}", self.step.run.id, directory.uri)
        root = self.step.url(job_name)
        with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
            try:
                for file in write_inputs(inputs, Path(scratch, "inputs"), order):
                    open_storage(root).put(f"inputs/{file.name}", file)
                self._run(self._job(command, directory.uri, runtime, root, job_name), command)
                open_storage(root).fetch(OUTPUT, Path(scratch, OUTPUT))
            except NotFound:
                raise Failed(
                    f"{name} left no {OUTPUT}", f"the log of Job {job_name} says why"
                ) from None
            finally:
                _clear(root)
            shuffled = read_predictions(
                Path(scratch, OUTPUT), items=items, classes=classes, name=name
            )
            return shuffled[np.argsort(order)]

    def predict_version(
        self, version: Version, inputs: "Mapping[str, np.ndarray]", *, classes: int | None
    ) -> "np.ndarray":
        """Return a version's predictions of a test part; raises like predict."""
        code = version.metadata.get("code")
        brought = code if isinstance(code, Mapping) else {}
        runtime = Runtime(
            image=str(version.metadata.get("image") or ""),
            code=str(brought.get("uri") or ""),
            install_requirements=brought.get("install_requirements") is True,
        )
        directory = ModelDirectory(version.storage.join(version.prefix))
        return self.predict(
            directory, runtime, inputs, part="test", classes=classes, name=version.title
        )

    def _job(
        self, command: PredictCommand, uri: str, runtime: Runtime, root: str, name: str
    ) -> Workload:
        run = self.step.run
        words = command.job_words(*map(local_path, (uri, f"{root}/inputs", f"{root}/{OUTPUT}")))
        job = job_manifest(
            name,
            image=self.target.image(runtime.image),
            command=words,
            labels=run.labels,
            owner=run.owner,
            active_deadline_seconds=DEADLINE,
            ttl_seconds_after_finished=KEPT,
        )
        brought = runtime.code and not command.uris  # an image without podium cannot fetch code
        target = replace(
            self.target,
            code=runtime.code if brought else "",
            install_requirements=bool(brought) and runtime.install_requirements,
        )
        return target.place(Workload.parse(job))

    def _run(self, job: Workload, command: PredictCommand) -> None:
        with connect(self.target.cluster_url()) as cluster, _launched(cluster, job):
            say(f"Job {job.name}: {' '.join(command.predict)}")
            try:
                follow(cluster, "Job", job.name)
            except Failed as error:
                if "No module named podium" not in str(
                    error
                ) and "No module named 'podium'" not in str(error):
                    raise
                hint = 'install podium in the image, or write "uris": true into model.json and take URIs'
                raise Failed(
                    f"the image {job.images[0]} of the model has no podium to fetch its inputs",
                    hint,
                ) from None


@contextmanager
def _launched(cluster: Cluster, job: Workload) -> Iterator[None]:
    """Launch as ``launched`` does, but never adopt a finished job: its output was removed."""
    with suppress(NotFound):
        if cluster.get("Job", job.name).state.finished:
            cluster.delete("Job", job.name)
    with launched(cluster, job):
        yield


def _clear(root: str) -> None:
    with suppress(PodiumError):
        storage = open_storage(root)
        for entry in list(storage.list()):
            storage.delete(entry.key)
