"""Checks of `podium run` before a run starts: the values, the cluster, the storage and the
trainer's flags."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podium import cluster, storage
from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.scripts import check_imports, script_of
from podium.data.schema import DatasetInfo
from podium.errors import InvalidInput, suggestion
from podium.kfp.values import PipelineSettings, check_values
from podium.manifests.experiment import Experiment, check
from podium.manifests.experiment.build import flags_of
from podium.manifests.experiment.trainer import flag_name
from podium.models import PromotionRule
from podium.trainer import networks
from podium.trainer.config import TrainConfig, check_library, parse
from podium.trainer.task import read
from podium.training.dataset import DataSettings
from podium.training.preparation import check_data
from podium.training.recipe import as_arguments


def check_here(values: Mapping[str, Any], code: str = "") -> None:
    """Refuse values that a later step would refuse after minutes of work.

    Args:
        values: All of the pipeline's parameters.
        code: The directory that its parameter ``code`` was packed from; empty if it was packed
            before.

    Raises:
        PodiumError: A value breaks a rule, or there is no such cluster or storage.
    """
    _check_network(values.get("network") or "")
    settings = check_values(values, here=True)
    for location in settings.data.locations if settings.data else ():
        path = storage.local_path(location)
        if path is not None and not os.path.exists(path):
            raise InvalidInput(
                f"there is nothing at {location}, which dataset={values['dataset']} names",
                "name a file, a folder or a URI that is there",
            )
    storage.connect(values["storage"])
    names = {name: values.get(name) or "" for name in ("metric", "model_name")}
    info = None
    if settings.data:
        columns = PromotionRule.parse(values.get("rule") or "").columns
        info = check_data(settings.data, storage=values["storage"], columns=columns, **names)
        attributes = (info.meaning, info.kind) if info else (settings.data.kind, "")
        settings = settings.with_data(*attributes)
    with cluster.connect(values["cluster"]) as opened:
        if isinstance(opened, LocalCluster):
            _check_jobs(settings, info)
            _check_programs(settings, opened, "" if values.get("install_requirements") else code)


def _check_jobs(settings: PipelineSettings, info: DatasetInfo | None) -> None:
    """Check the Experiment, and the flags of podium's trainer: on this machine every image is this
    Python.

    Args:
        info: Facts about the data, if known.
    """
    experiment = settings.experiment()
    builtin = (
        experiment.uses_builtin_trainer
        if experiment
        else not (settings.train and settings.train.command)
    )
    if builtin and settings.train:
        _check_weights(settings.train.weights)
    if experiment:
        check(experiment)
    if builtin:
        _check_flags(settings, experiment, info)


def _check_programs(settings: PipelineSettings, cluster: LocalCluster, code: str) -> None:
    """Refuse a job that this machine cannot run, as where a script is not there, or imports what is
    not installed."""
    for _, job in settings.jobs():
        if isinstance(job, Experiment):
            values = {
                each.name: each.choices[0] if each.choices else each.text(each.low)
                for each in job.space
            }
            job = job.render("trial", values)
        _, plans = cluster.plan(job)
        for main in (plan.main for plan in plans.values() if code):
            argv = main.argv
            if all(each.name != "PYTHONPATH" for each in main.env):
                own = argv[argv.index("--") + 1 :] if "podium.code" in argv else argv
                _check_code(own, Path(code))


def _check_code(argv: Sequence[str], folder: Path) -> None:
    script = script_of(argv) if argv else None
    if script and (folder / script).is_file():
        check_imports(folder / script, argv)


def _check_network(network: str) -> None:
    if network and not networks.exists(network):
        raise InvalidInput(
            f"no network {network!r} in podium ({', '.join(networks.OWN)}) or torchvision.models",
            suggestion(network, (*networks.OWN, *networks.TORCHVISION)),
        )


def _check_weights(weights: str) -> None:
    path = storage.local_path(weights) if weights else None
    if path is not None and not os.path.isfile(path):
        raise InvalidInput(
            f"there is no file {path}, which weights={weights} names",
            "name a file of weights that is there, or its URI",
        )


def _check_flags(
    settings: PipelineSettings, experiment: Experiment | None, info: DatasetInfo | None
) -> None:
    """Check the flags of podium's trainer with its own parser, and whether its network takes the
    data."""
    assert settings.train is not None
    config = parse(as_arguments({**settings.train.hyperparameters, **settings.train.fixed(gpus=0)}))
    for each in _of_trials(experiment) if experiment else (config,):
        check_library(
            each.model, info.meaning if info else settings.data.kind if settings.data else "image"
        )
        if settings.data:
            _check_data(each, settings.data, info)


def _check_data(config: TrainConfig, data: DataSettings, info: DatasetInfo | None) -> None:
    meaning = info.meaning if info else data.kind
    if meaning in ("table", "array") and config.model not in networks.NUMBERS:
        noun = "a table" if meaning == "table" else "numbers"
        raise InvalidInput(
            f"network={config.model} learns from pictures, but {data.dataset} is {noun}",
            "network=trees",
        )
    if info:
        read(config, info)


def _of_trials(experiment: Experiment) -> list[TrainConfig]:
    """Return the networks of the trials, one for each that is searched."""
    values = {
        parameter.name: parameter.choices[0]
        if parameter.choices
        else parameter.text(parameter.high)
        for parameter in experiment.space
    }
    searched = {flag_name(parameter.name): parameter for parameter in experiment.space}
    network = searched.get("model")
    found = []
    for name in network.choices if network else ("",):
        assignments = {**values, network.name: name} if network else values
        flags = flags_of(experiment, "trial", assignments)
        found.append(parse(as_arguments({"model": flags["model"]} if "model" in flags else {})))
    return found
