"""Prepare a dataset."""

from kfp.dsl import Dataset, Output, component

from podium.components.images import STEPS_IMAGE


@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def prepare_data(
    prepared: Output[Dataset],
    prepared_test: Output[Dataset],
    dataset: str = "mnist",
    source: str = "",
    target: str = "",
    limit: int = 0,
    data_options: dict = {},  # noqa: B006  KFP takes the default from the signature
    metric: str = "",
    model_name: str = "",
    rule: str = "",
    fingerprint: str = "",
    storage: str = "",
) -> None:
    """Read, verify and split data into a checksummed artifact, and another for its test part.

    Args:
        prepared: The dataset artifact for trials and trainings: train and validation parts and dataset.json.
        prepared_test: Its test part, for evaluate and promote alone.
        dataset: mnist, fashion-mnist, images:DIRECTORY, table:FILE, text:FILE, npz:FILE, or a prepared dataset's URI.
        source: A directory or URI that holds the four idx files of mnist; empty for the known mirrors.
        target: Name of the target column of a table or of text.
        limit: At most this many items for training and validation together; 0 takes all.
        data_options: Options of the source, as in {"group": "patient", "test": 0.2}.
        metric: What models are chosen by; one that does not fit the data is refused here.
        model_name: Name of the model in the registry, empty for the dataset's; data of another task are refused here.
        rule: Rule by which a challenger is promoted; the step says what it can show on the test part.
        fingerprint: From fingerprint_data: the step is skipped while it and all else is the same.
        storage: URL under which models and the step's log are kept; empty for the bucket of the run's artifacts.
    """
    parameters = locals()
    from podium.steps.prepare_data import DataSettings, prepare_data
    from podium.steps.process import read_settings, step_process

    with step_process(parameters) as step:
        info = prepare_data(
            read_settings(DataSettings, parameters),
            prepared.path,
            test=prepared_test.path,
            metric=metric,
            model_name=model_name,
            rule=rule,
            fingerprint=fingerprint,
            uri=prepared.uri,
            step=step,
        )
    prepared.metadata.update(name=info.name, digest=info.digest, source=info.source)
