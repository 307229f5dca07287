"""Prepare a dataset."""

from kfp.dsl import Dataset, Output, component

from podium.components.images import TRAINER_IMAGE


@component(base_image=TRAINER_IMAGE, install_kfp_package=False)
def prepare_data(
    prepared: Output[Dataset],
    dataset: str = "mnist",
    source: str = "",
    limit: int = 0,
    seed: int = 1,
) -> None:
    """Download, verify and split a dataset into one checksummed artifact.

    Args:
        prepared: The dataset artifact: train, validation and test parts and dataset.json.
        dataset: mnist or fashion-mnist.
        source: A directory or URI that holds the four idx files; empty for the known mirrors.
        limit: At most this many images for training and validation together; 0 takes all.
        seed: Decides which images form the validation part.
    """
    from podium.steps.prepare_data import DataSettings, prepare_data

    settings = DataSettings(dataset=dataset, source=source, limit=limit, seed=seed)
    info = prepare_data(settings, prepared.path)
    prepared.metadata.update(name=info.name, digest=info.digest, source=info.source)
