"""Train one model on several workers."""

from typing import NamedTuple

from kfp.dsl import Dataset, Input, Metrics, Output, component

from podium.components.images import STEPS_IMAGE


@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def train_distributed(
    data: Input[Dataset],
    metrics: Output[Metrics],
    image: str,
    hyperparameters: dict = {},  # noqa: B006  KFP takes the default from the signature
    network: str = "",
    epochs: int = 3,
    workers: int = 1,
    gpus_per_worker: int = 0,
    seed: int = 1,
    storage: str = "",
    cluster: str = "",
    pods: dict = {},  # noqa: B006
) -> NamedTuple("Outputs", [("model", str)]):  # type: ignore[valid-type]
    """Train with a PyTorchJob of one master and some workers; returns the URI of its model directory.

    Args:
        data: The dataset artifact.
        metrics: Metrics of the epoch whose weights were kept.
        image: Image of master and workers.
        hyperparameters: Flags of the trainer without the dashes and their values.
        network: Network, a name the trainer knows; empty leaves it to the hyperparameters.
        epochs: Passes over the training part; 0 leaves them to the hyperparameters.
        workers: Workers besides the master; 0 trains in one process.
        gpus_per_worker: GPUs of the master and of each worker; 0 trains on the CPU.
        seed: Seed of the weights and of the order of images; 0 leaves it to the hyperparameters.
        storage: URL under which models are kept; empty for the bucket of the run's artifacts.
        cluster: URL of the cluster; empty for the one this step runs on.
        pods: Settings of every launched pod, as in {"memory": "4Gi", "node_selector": {"pool": "gpu"}}.
    """
    from podium.steps.train import LaunchTarget, TrainSettings, train

    settings = TrainSettings(
        hyperparameters=hyperparameters, network=network, epochs=epochs, workers=workers, seed=seed
    )
    target = LaunchTarget(trainer_image=image, cluster=cluster, storage=storage, gpus_per_worker=gpus_per_worker,
                          pods=pods)  # fmt: skip
    result = train(data.uri, task=metrics.uri, settings=settings, target=target)
    metrics.metadata.update(result.metrics)
    return (result.model,)
