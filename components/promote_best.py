"""Promote a version if it beats the champion."""

from kfp.dsl import HTML, Artifact, Dataset, Input, Metrics, Output, component

from podium.components.images import STEPS_IMAGE


@component(base_image=STEPS_IMAGE, install_kfp_package=False)
def promote_best(
    test: Input[Dataset],
    evaluation: Input[Artifact],
    decision: Output[Metrics],
    report: Output[HTML],
    version: str,
    model_name: str = "",
    rule: str = "likely",
    tracking: str = "",
    storage: str = "",
    cluster: str = "",
    pods: dict = {},  # noqa: B006  KFP takes the default from the signature
) -> str:
    """Compare a version with the champion on the same test part; returns promoted or kept.

    Args:
        test: The test part of the dataset.
        evaluation: What evaluate measured.
        decision: The comparison in figures.
        report: The whole run as one page.
        version: The version that challenges.
        model_name: Name of the model in the registry; empty for the dataset's.
        rule: What the challenger must do to win.
        tracking: Address of an MLflow server that logs the run and the version; empty for none.
        storage: URL of the storage; empty for a place beside the run's artifacts.
        cluster: URL of the cluster where a champion that is a command predicts; empty for the one this step runs on.
        pods: Settings of every launched pod, as in {"memory": "4Gi", "node_selector": {"pool": "gpu"}}.
    """
    parameters = locals()
    from podium.steps.process import predict_jobs, step_process
    from podium.steps.promote import promote

    with step_process(parameters) as step:
        result = promote(
            step,
            test.path,
            evaluation.path,
            decision.path,
            report.path,
            version=version,
            model_name=model_name,
            rule=rule,
            jobs=predict_jobs(step, parameters),
            tracking=tracking,
        )
    decision.metadata.update(result.metrics)
    return result.outcome
