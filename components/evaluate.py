"""Choose the better candidate and evaluate it."""

from kfp.dsl import Artifact, ClassificationMetrics, Dataset, Input, Metrics, Model, Output, component

from podium.components.images import STEPS_IMAGE


# Not Optional[Input[Model]]: KFP 2.0.5 does not tell a step the type of its inputs, and the SDK then calls the
# annotation itself, which a Union does not allow. The default makes an input optional.
@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def evaluate(
    data: Input[Dataset],
    trained: Input[Model],
    winner: Output[Model],
    evaluation: Output[Artifact],
    metrics: Output[Metrics],
    confusion: Output[ClassificationMetrics],
    best_model: Input[Model] = None,
    trials: Input[Artifact] = None,
) -> None:
    """Choose between the candidates by validation, then open the test part once, for the winner.

    Args:
        data: The dataset artifact.
        trained: Model directory of the training job.
        winner: Model directory of the better candidate, with its test predictions.
        evaluation: What was measured and why the winner won, as JSON.
        metrics: Validation and test metrics of the winner.
        confusion: Confusion matrix of the winner on the test part.
        best_model: Model directory of the best trial, if there was a sweep.
        trials: Table of the trials, if there was a sweep.
    """
    from podium.steps.evaluate import evaluate

    candidates = [model.path for model in (best_model, trained) if model]
    result = evaluate(data.path, candidates, winner.path, evaluation.path, trials=trials.path if trials else None)
    winner.metadata.update(result.metadata)
    metrics.metadata.update(result.metrics)
    confusion.log_confusion_matrix(result.classes, result.confusion)
