"""What `podium run` refuses before anything is made: cluster, storage and trainer are at hand."""

from collections.abc import Mapping
from typing import Any

from podium.errors import suggestion
from podium.kfp.values import adapted, check_values


def check_here(values: Mapping[str, Any]) -> None:
    """Refuse values that a later step would, after minutes of work.

    Args:
        values: All of the pipeline's parameters.

    Raises:
        PodiumError: A value breaks a rule, or there is no such cluster or storage.
    """
    from podium import cluster, storage

    check_values(values)
    storage.connect(values["storage"])
    with cluster.connect(values["cluster"]):
        pass
    if values["cluster"].startswith("local:"):
        _check_jobs(values)


def _check_jobs(values: Mapping[str, Any]) -> None:
    """Ask those who will: on this machine every trainer_image is this Python, whose trainer knows its flags."""
    from podium.errors import require
    from podium.manifests.experiment import check
    from podium.manifests.experiment.adapt import decided
    from podium.steps.train import as_arguments
    from podium.trainer.config import MODELS, parse

    network, law = values["network"], f"network is one of {', '.join(MODELS)}"
    require(network in ("", *MODELS), law, suggestion(network, MODELS), network=network)
    flags = decided(epochs=values["epochs"], network=network, seed=values["seed"], gpus=0)
    parse(as_arguments({**values.get("hyperparameters", {}), **flags}))
    if "experiment" in values:
        check(adapted(values))
