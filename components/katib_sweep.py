"""Search for the best hyperparameters."""

from typing import NamedTuple

from kfp.dsl import Artifact, Dataset, Input, Metrics, Output, component

from podium.components.images import STEPS_IMAGE


@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def katib_sweep(
    data: Input[Dataset],
    trials: Output[Artifact],
    metrics: Output[Metrics],
    trainer_image: str = "",
    podium_image: str = "podium-trainer:0.1.0",
    experiment: str = "auto",
    network: str = "",
    weights: str = "",
    trial_epochs: int = -1,
    max_trials: int = 4,
    parallel_trials: int = 2,
    trial_workers: int = 0,
    gpus_per_worker: int = 0,
    confirm: str = "",
    folds: int = -1,
    seed: int = 1,
    storage: str = "",
    cluster: str = "",
    pods: dict = {},  # noqa: B006
    code: str = "",
    install_requirements: bool = False,
    predict: list = [],  # noqa: B006
    ensemble: bool = False,
    job_kind: str = "auto",
) -> NamedTuple(  # type: ignore[valid-type]
    "Outputs",
    [
        ("hyperparameters", dict),
        ("recipe", str),
        ("best_trial", str),
        ("best_model", str),
        ("ensemble_model", str),
    ],
):
    """Run a Katib Experiment; every trial keeps its own model. Returns the best trial, its recipe and its model's URI.

    Args:
        data: The dataset artifact.
        trials: Table of all trials as JSON: parameters, metrics, model URI.
        metrics: Metrics of the best trial.
        trainer_image: Image of the trials; empty for the Experiment's own.
        podium_image: Image that podium-trainer:0.1.0 in an Experiment stands for.
        experiment: Name of a bundled Experiment or the YAML of one; auto: tables for tables, else random.
        network: Network of the trials, a name podium's trainer knows; empty leaves it to the Experiment.
        weights: File or URI of weights that podium's trainer starts from, such as torchvision's; empty for new ones.
        trial_epochs: Epochs of a trial of podium's trainer; -1: one where auto has pictures or arrays; 0: the YAML's.
        max_trials: Trials in all.
        parallel_trials: Trials at a time.
        trial_workers: Workers of each trial, besides its master; 0: none, or the Experiment's for your own trainer.
        gpus_per_worker: GPUs of a trial's master and of each of its workers; 0 trains on the CPU.
        confirm: Reruns of the best trials as TRIALSxSEEDS, as in 3x3; empty for none.
        folds: Folds of the cross-validation of each trial; -1: 5 for small tables and texts of auto; 0: none.
        seed: Seed of the search and of every trial; 0 leaves both to the Experiment.
        storage: URL under which models are kept; empty for the bucket of the run's artifacts.
        cluster: URL of the cluster; empty for the one this step runs on.
        pods: Settings of every launched pod, as in {"memory": "4Gi", "node_selector": {"pool": "gpu"}}.
        code: URI of code in which the commands run, packed by podium; empty for what the image has.
        install_requirements: Install the code's requirements.txt in each pod first.
        predict: Command that predicts where a trainer leaves neither model.onnx nor model.json; see pipelines.
        ensemble: Whether the trials that do best together become a model of their own.
        job_kind: What trials run as: pytorchjob, trainjob, job, or auto for their own kind where the cluster has it.
    """
    parameters = locals()
    from podium.steps.process import read_settings, step_process
    from podium.steps.sweep import LaunchTarget, SweepSettings, sweep

    with step_process(parameters) as step:
        settings = read_settings(SweepSettings, parameters)
        target = read_settings(LaunchTarget, parameters)
        result = sweep(
            step, data.uri, trials.path, task=metrics.uri, settings=settings, target=target
        )
    trials.metadata.update(result.metadata)
    metrics.metadata.update(result.metrics)
    return result.hyperparameters, result.recipe, result.trial, result.model, result.ensemble
