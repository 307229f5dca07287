"""An Experiment that leaves its algorithm to podium: an annotation says so, and Katib gets one that takes any space."""

from collections.abc import Mapping
from importlib.util import find_spec

from podium.manifests.experiment.experiment import Experiment
from podium.manifests.labels import ALGORITHM, ALGORITHM_REASON
from podium.search.auto import AUTO, NEAREST


def katib_name(algorithm: str) -> str:
    """Return the algorithmName of what a user calls an algorithm."""
    return NEAREST if algorithm == AUTO else algorithm


def annotations(algorithm: str) -> dict[str, str]:
    """Return the annotations of what a user calls an algorithm."""
    return {ALGORITHM: AUTO} if algorithm == AUTO else {}


def settled(experiment: Experiment) -> Experiment:
    """Return an Experiment of this machine with the choice and its reason in it, so that they stay as they are."""
    if experiment.annotations.get(ALGORITHM) != AUTO:
        return experiment
    choice = experiment.choose(modeled=find_spec("torch") is not None)  # Optuna's Gaussian process is written in it
    chosen: Mapping[str, str] = {ALGORITHM: choice.algorithm, ALGORITHM_REASON: choice.reason}
    metadata = {**experiment.metadata, "annotations": {**experiment.annotations, **chosen}}
    return experiment.with_metadata(metadata)
