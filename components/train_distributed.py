"""Train one model, on several workers."""

from typing import NamedTuple

from kfp.dsl import Dataset, Input, Metrics, Output, component

from podium.components.images import STEPS_IMAGE


@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def train_distributed(
    data: Input[Dataset],
    metrics: Output[Metrics],
    trainer_image: str = "",
    podium_image: str = "podium-trainer:0.1.0",
    recipe: str = "",
    command: list = [],  # noqa: B006
    hyperparameters: dict = {},  # noqa: B006  KFP takes the default from the signature
    network: str = "",
    weights: str = "",
    epochs: int = -1,
    workers: int = -1,
    gpus_per_worker: int = 0,
    seed: int = 1,
    storage: str = "",
    cluster: str = "",
    pods: dict = {},  # noqa: B006
    code: str = "",
    install_requirements: bool = False,
    predict: list = [],  # noqa: B006
    job_kind: str = "auto",
) -> NamedTuple("Outputs", [("model", str)]):  # type: ignore[valid-type]
    """Train as the best trial was, or with a command; returns the URI of the model directory.

    Args:
        data: The dataset artifact.
        metrics: Metrics of the epoch whose weights were kept.
        trainer_image: Image of master and workers; empty for the trials' own.
        podium_image: Image that podium-trainer:0.1.0 stands for.
        recipe: What a sweep found; empty trains with command and hyperparameters.
        command: Command of a trainer of your own; empty for podium's.
        hyperparameters: Flags of the command without the dashes and their values.
        network: Network, a name podium's trainer knows; empty leaves it to the hyperparameters.
        weights: File or URI of weights that podium's trainer starts from, such as torchvision's; empty for new ones.
        epochs: Epochs of podium's trainer; -1: the best trial's, or its network's usual if more; 0: the trial's.
        workers: Workers besides the master; -1: one, none for tables and text, a trial's for a trainer of your own.
        gpus_per_worker: GPUs of the master and of each worker; 0 trains on the CPU.
        seed: Seed of the weights and of the order of images; 0 leaves it to the hyperparameters.
        storage: URL under which models are kept; empty for the bucket of the run's artifacts.
        cluster: URL of the cluster; empty for the one this step runs on.
        pods: Settings of every launched pod, as in {"memory": "4Gi", "node_selector": {"pool": "gpu"}}.
        code: URI of code in which the commands run, packed by podium; empty for what the image has.
        install_requirements: Install the code's requirements.txt in each pod first.
        predict: Command that predicts where a trainer leaves neither model.onnx nor model.json; see pipelines.
        job_kind: Kind of the training's job: pytorchjob, trainjob, job, or auto for what the cluster has.
    """
    parameters = locals()
    from podium.steps.process import read_settings, step_process
    from podium.steps.train import LaunchTarget, TrainSettings, train

    with step_process(parameters) as step:
        settings = read_settings(TrainSettings, parameters)
        target = read_settings(LaunchTarget, parameters)
        result = train(step, data.uri, task=metrics.uri, settings=settings, target=target)
    metrics.metadata.update(result.metrics)
    return (result.model,)
