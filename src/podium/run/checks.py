"""Checks of `podium run` before a run starts: the values, the cluster, the storage and the trainer's flags."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput, require, suggestion
from podium.kfp.values import PipelineSettings, check_values

if TYPE_CHECKING:
    from podium.manifests.experiment import Experiment


def check_here(values: Mapping[str, Any]) -> None:
    """Refuse values that a later step would refuse after minutes of work.

    Args:
        values: All of the pipeline's parameters.

    Raises:
        PodiumError: A value breaks a rule, or there is no such cluster or storage.
    """
    from podium import cluster, storage
    from podium.steps.mlflow_log import check_tracking

    settings = check_values(values, here=True)
    for location in settings.data.locations if settings.data else ():
        path = storage.local_path(location)
        if path is not None and not path.exists():
            raise InvalidInput(f"there is nothing at {location}, which dataset={values['dataset']} names",
                               "name a file, a folder or a URI that is there")  # fmt: skip
    storage.connect(values["storage"])
    check_tracking(values.get("tracking") or "", here=True)
    with cluster.connect(values["cluster"]):
        pass
    if values["cluster"].startswith("local:"):
        _check_jobs(settings)


def _check_jobs(settings: PipelineSettings) -> None:
    """Check the Experiment, and the flags of podium's trainer: on this machine every image is this Python."""
    from podium.manifests.experiment import check
    from podium.manifests.experiment.adapt import is_podiums

    experiment = settings.experiment()
    if experiment:
        check(experiment)
    if is_podiums(experiment) if experiment else not (settings.train and settings.train.command):
        _check_flags(settings, experiment)


def _check_flags(settings: PipelineSettings, experiment: "Experiment | None") -> None:
    """Check the flags of podium's trainer with its own parser."""
    from podium.steps.recipe import as_arguments
    from podium.trainer import networks
    from podium.trainer.config import check_torch, parse

    assert settings.train is not None
    check_torch()
    network = settings.train.network
    rule = f"network is one of {', '.join(networks.OWN)} or a network of torchvision.models"
    hint = suggestion(network, (*networks.OWN, *networks.TORCHVISION))
    require(not network or networks.exists(network), rule, hint, network=network)
    config = parse(as_arguments({**settings.train.hyperparameters, **settings.train.fixed(gpus=0)}))
    batch = config.batch_size if experiment is None else _largest_batch(experiment)
    if settings.data and (images := settings.data.training_items) and batch and batch > images:
        problem = f"limit={settings.data.limit} leaves {images} training images, but a batch has {batch}"
        raise InvalidInput(problem, "raise limit, or train with a smaller batch-size")


def _largest_batch(experiment: "Experiment") -> int | None:
    """Return the most images that a trial has in a batch; None if no flag says so."""
    from podium.manifests.experiment.adapt import flags_of
    from podium.steps.recipe import as_arguments
    from podium.trainer.config import parse

    values = {
        parameter.name: max(parameter.choices, key=_number) if parameter.choices else parameter.text(parameter.high)
        for parameter in experiment.space
    }
    flags = flags_of(experiment, "trial", values)
    return parse(as_arguments({name: flags[name] for name in ("model", "batch-size") if name in flags})).batch_size


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
