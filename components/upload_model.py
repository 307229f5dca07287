"""Store a model in the registry."""

from kfp.dsl import Artifact, Input, component

from podium.components.images import STEPS_IMAGE


@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def upload_model(
    model: str,
    predictions: Input[Artifact],
    evaluation: Input[Artifact],
    model_name: str = "",
    storage: str = "",
) -> str:
    """Write a version of a model; returns its name. Uploading the same twice makes one version.

    Args:
        model: URI of the model directory.
        predictions: The model's predictions, from evaluate.
        evaluation: What evaluate measured.
        model_name: Name of the model in the registry; empty for the dataset's.
        storage: URL of the storage; empty for a place beside the run's artifacts.
    """
    parameters = locals()
    from podium.steps.process import step_process
    from podium.steps.upload_model import upload_model

    with step_process(parameters) as step:
        return upload_model(step, model, predictions.path, evaluation.path, model_name=model_name)
