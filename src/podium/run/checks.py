"""Checks of `podium run` before a run starts: the values, the cluster, the storage and the trainer's flags."""

from collections.abc import Mapping
from typing import Any

from podium.errors import require, suggestion
from podium.kfp.values import PipelineSettings, check_values


def check_here(values: Mapping[str, Any]) -> None:
    """Refuse values that a later step would refuse after minutes of work.

    Args:
        values: All of the pipeline's parameters.

    Raises:
        PodiumError: A value breaks a rule, or there is no such cluster or storage.
    """
    from podium import cluster, storage

    settings = check_values(values)
    storage.connect(values["storage"])
    with cluster.connect(values["cluster"]):
        pass
    if values["cluster"].startswith("local:"):
        _check_jobs(settings)


def _check_jobs(settings: PipelineSettings) -> None:
    """Check flags and Experiment with the trainer: on this machine every trainer_image is this Python."""
    from podium.manifests.experiment import check
    from podium.steps.train import as_arguments
    from podium.trainer.config import MODELS, parse

    assert settings.train is not None
    network = settings.train.network
    require(network in ("", *MODELS), f"network is one of {', '.join(MODELS)}", suggestion(network, MODELS),
            network=network)  # fmt: skip
    parse(as_arguments(settings.train.flags(gpus=0)))
    if experiment := settings.experiment():
        check(experiment)
