"""Choose the better candidate and evaluate it."""

from typing import NamedTuple

from kfp.dsl import Artifact, ClassificationMetrics, Dataset, Input, Metrics, Output, component

from podium.components.images import STEPS_IMAGE


# Not Optional[Input[Artifact]]: KFP 2.0.5 does not tell a step the type of its inputs, and the SDK then calls the
# annotation itself, which a Union does not allow. The default makes an input optional.
@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def evaluate(
    data: Input[Dataset],
    test: Input[Dataset],
    trained: str,
    predictions: Output[Artifact],
    evaluation: Output[Artifact],
    metrics: Output[Metrics],
    confusion: Output[ClassificationMetrics],
    best_model: str = "",
    ensemble_model: str = "",
    trials: Input[Artifact] = None,
    metric: str = "",
    storage: str = "",
    cluster: str = "",
    pods: dict = {},  # noqa: B006  KFP takes the default from the signature
) -> NamedTuple("Outputs", [("winner", str)]):  # type: ignore[valid-type]
    """Choose between the candidates by validation, then open the test part once, for the winner; returns its URI.

    Args:
        data: The dataset artifact.
        test: Its test part.
        trained: URI of the training job's model directory.
        predictions: The winner's predictions for the test part, and its target.
        evaluation: What was measured and why the winner won, as JSON.
        metrics: Validation and test metrics of the winner.
        confusion: Confusion matrix of the winner on the test part.
        best_model: URI of the best trial's model directory, if there was a sweep.
        ensemble_model: URI of the model directory of several trials together, if there is one.
        trials: Table of the trials, if there was a sweep.
        metric: What candidates are chosen by; empty for the Experiment's objective, else accuracy or rmse.
        storage: URL under which models are kept; empty for the bucket of the run's artifacts.
        cluster: URL of the cluster where a model that is a command predicts; empty for the one this step runs on.
        pods: Settings of every launched pod, as in {"memory": "4Gi", "node_selector": {"pool": "gpu"}}.
    """
    parameters = locals()
    from podium.steps.evaluate import evaluate
    from podium.steps.process import predict_jobs, step_process

    with step_process(parameters) as step:
        result = evaluate(
            step,
            data.path,
            [uri for uri in (best_model, ensemble_model, trained) if uri],
            evaluation.path,
            predictions.path,
            trials=trials.path if trials else None,
            metric=metric,
            test=test.path,
            jobs=predict_jobs(step, parameters),
        )
    evaluation.metadata.update(result.metadata)
    metrics.metadata.update(result.metrics)
    result.log_confusion(confusion)
    return (result.winner,)
