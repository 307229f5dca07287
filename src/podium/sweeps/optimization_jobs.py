"""Trainer's OptimizationJobs of a namespace: podium-engine runs each as the Experiment that says
the same, which belongs to it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from podium.cluster.kubernetes.api import Api
from podium.errors import Conflict, InvalidInput, PodiumError, Unavailable, UnknownKind
from podium.manifests.conditions import timestamp
from podium.manifests.experiment.optimization_job import KIND, experiment_of, status_of_job
from podium.manifests.resource import Resource


class OptimizationJobs:
    """Makes their Experiments, and hands back what becomes of these.

    One that has a status and no Experiment is left alone: a controller of Trainer runs it, or
    somebody has deleted the Experiment.

    Args:
        api: The namespace.
        report: Called with each line about them.
    """

    def __init__(self, api: Api, report: Callable[[str], None]) -> None:
        self._api, self._report = api, report
        self._said: dict[str, str] = {}  # what keeps one from being run, by name; "" for all

    def look(self, experiments: Mapping[str, Resource]) -> None:
        """Take up what is new, and write each status that has changed.

        Args:
            experiments: The Experiments of the namespace by name, as they were seen last.

        Raises:
            Unavailable: The API server did not answer.
        """
        jobs: list[Resource] = []
        with self._reporting():
            jobs = self._unfinished()
        for job in jobs:
            with self._reporting(job.name):
                if experiment := experiments.get(job.name):
                    self._follow(job, experiment)
                elif not job.conditions:
                    self._begin(job)

    @contextmanager
    def _reporting(self, name: str = "") -> Iterator[None]:
        """Say once what keeps one of them, or all, from being run; the next look tries it again."""
        try:
            yield
            self._said.pop(name, None)
        except Unavailable:
            raise
        except PodiumError as error:
            if self._said.get(name) != error.message:
                self._report(f"{KIND} {name}: {error.message}" if name else error.message)
            self._said[name] = error.message

    def _unfinished(self) -> list[Resource]:
        with suppress(UnknownKind):
            jobs = map(Resource.parse, self._api.all_of(KIND)[0])
            ended = ("Complete", "Failed")
            return [job for job in jobs if not (job.is_leaving or any(map(job.condition, ended)))]
        return []

    def _begin(self, job: Resource) -> None:
        try:
            self._api.create("Experiment", experiment_of(job).manifest)
        except Conflict:
            return None  # perhaps it was made by the engine before: the next look sees whose it is
        except InvalidInput as error:
            return self._refuse(job, error)
        self._report(f"{KIND} {job.name}: begun as an Experiment")

    def _follow(self, job: Resource, experiment: Resource) -> None:
        owners = [owner.get("uid") for owner in experiment.owners if owner.get("kind") == KIND]
        if not owners:
            problem = f"an Experiment {job.name} is there that was not made for it"
            return self._refuse(job, Conflict(problem, "give one of the two another name"))
        if job.uid in owners:  # else it is going away, with an earlier one of the name
            status = status_of_job(experiment.manifest)
            if status != job.status:
                self._api.patch_status(KIND, job.name, status)

    def _refuse(self, job: Resource, error: PodiumError) -> None:
        hint = f" (hint: {error.hint})" if error.hint else ""
        self._report(f"{KIND} {job.name}: refused: {error.message}")
        condition = {
            "type": "Failed",
            "status": "True",
            "reason": f"{KIND}Failed",
            "message": f"{KIND} has failed: {error.message}{hint}",
            "lastTransitionTime": timestamp(),
        }
        self._api.patch_status(KIND, job.name, {"conditions": [condition]})
