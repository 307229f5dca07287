"""An Experiment that gives the same trials and the same best one each time, by its annotation."""

from podium.errors import InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.labels import DETERMINISTIC, MAX_COST, MAX_TIME


def counted(trials: int | None) -> dict[str, str]:
    """Return the annotation, nothing for None."""
    return {} if trials is None else {DETERMINISTIC: str(trials)}


def behind(experiment: Experiment) -> int | None:
    """Return of how many of the newest trials a search must not hear; None if the order of their ends may matter.

    Raises:
        InvalidInput: The annotation is not a number of trials, fewer than may run at a time, or something else in the
            Experiment depends on what ends first.
    """
    if (given := experiment.annotations.get(DETERMINISTIC)) is None:
        return None
    count = int(given) if given.isascii() and given.isdigit() else 0
    if not count:
        raise InvalidInput(f"annotation {DETERMINISTIC} is a number of trials, not {given!r}", f'{DETERMINISTIC}: "16"')
    if (parallel := experiment.limits.parallel) > count:
        raise InvalidInput(
            f"{parallel} trials at a time are more than the {count} that a search waits for ({DETERMINISTIC})",
            f"--deterministic {2 * parallel}, the same in each run that is to be compared",
        )
    reasons = {
        "spec.objective.goal": experiment.objective.goal is not None,
        "spec.earlyStopping": experiment.early_stopping is not None,
        "a budget": any(name in experiment.annotations for name in (MAX_TIME, MAX_COST)),
    }
    for what, found in reasons.items():
        if found:
            raise InvalidInput(f"{what} depends on which trial ends first: no two runs are the same ({DETERMINISTIC})",
                               f"leave {what} or the annotation out")  # fmt: skip
    return count
