"""Look at the source of a dataset."""

from kfp.dsl import Artifact, Output, component

from podium.components.images import STEPS_IMAGE


@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def fingerprint_data(
    listing: Output[Artifact],
    dataset: str = "mnist",
    source: str = "",
    target: str = "",
    limit: int = 0,
    data_options: dict = {},  # noqa: B006  KFP takes the default from the signature
    metric: str = "",
    storage: str = "",
) -> str:
    """Return a digest of what a source holds now and how it is read; prepare_data is skipped while it is the same.

    Args:
        listing: Every file or object that was found, with its digest or etag and size.
        dataset: mnist, fashion-mnist, images:DIRECTORY, table:FILE, text:FILE, npz:FILE, or a prepared dataset's URI.
        source: A directory or URI that holds the four idx files of mnist; empty for the known mirrors.
        target: Name of the target column of a table or of text.
        limit: At most this many items for training and validation together; 0 takes all.
        data_options: Options of the source, as in {"group": "patient", "test": 0.2}.
        metric: What models are chosen by.
        storage: URL under which models are kept; empty for the bucket of the run's artifacts.
    """
    parameters = locals()
    from podium.steps.fingerprint_data import DataSettings, fingerprint_data
    from podium.steps.process import read_settings, step_process

    with step_process(parameters) as step:
        settings = read_settings(DataSettings, parameters)
        return fingerprint_data(settings, listing.path, step, metric=metric)
