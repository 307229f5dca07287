"""Trainer's OptimizationJobs of a namespace: podium-engine runs each as the Experiment that says
the same, which belongs to it."""

from collections.abc import Callable

from podium.cluster.kubernetes.api import Api
from podium.errors import Conflict, Denied, InvalidInput, PodiumError, UnknownKind
from podium.manifests.conditions import timestamp
from podium.manifests.experiment.optimization_job import KIND, experiment_of, with_status
from podium.manifests.labels import OPTIMIZATION_JOB
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
        self._is_denied = False

    def look(self) -> None:
        """Take up what is new, and write each status that has changed.

        Raises:
            PodiumError: The API server did not answer.
        """
        jobs = [job for job in self._unfinished() if not job.is_leaving]
        if not jobs:
            return
        experiments = map(Resource.parse, self._api.all_of("Experiment")[0])
        made = {experiment.name: experiment for experiment in experiments}
        for job in jobs:
            if experiment := made.get(job.name):
                self._follow(job, experiment)
            elif not job.conditions:
                self._begin(job)

    def _unfinished(self) -> list[Resource]:
        try:
            items, _ = self._api.all_of(KIND)
        except UnknownKind:
            return []
        except Denied as error:
            if not self._is_denied:
                self._report(f"no {KIND} is run: {error.message}")
            self._is_denied = True
            return []
        jobs = [Resource.parse(item) for item in items]
        return [job for job in jobs if not (job.condition("Complete") or job.condition("Failed"))]

    def _begin(self, job: Resource) -> None:
        try:
            self._api.create("Experiment", experiment_of(job).manifest)
        except (InvalidInput, Conflict) as error:
            return self._refuse(job, error)
        self._report(f"{KIND} {job.name}: begun as an Experiment")

    def _follow(self, job: Resource, experiment: Resource) -> None:
        if OPTIMIZATION_JOB not in experiment.annotations:
            problem = f"an Experiment {job.name} is there that was not made for it"
            return self._refuse(job, Conflict(problem, "give one of the two another name"))
        if job.uid in [owner.get("uid") for owner in experiment.owners]:  # else it is going away
            after = Resource.parse(with_status(experiment.manifest))
            if after.status != job.status:
                self._api.patch_status(KIND, job.name, dict(after.status))

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
