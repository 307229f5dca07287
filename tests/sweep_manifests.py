"""Experiments for tests, written as a user would."""

from typing import Any


def job(command: list[str], **container: Any) -> dict[str, Any]:
    """Write a Job of one container, ``training``, that is not tried again."""
    main = {"name": "training", "image": "python", "command": command, **container}
    pod = {"restartPolicy": "Never", "containers": [main]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }


def space(name: str, kind: str = "double", **feasible: Any) -> dict[str, Any]:
    """Write a parameter: ``space("lr", min="0.1", max="1")``, ``space("x", "categorical", list=["a", "b"])``."""
    return {"name": name, "parameterType": kind, "feasibleSpace": feasible}


def write_experiment(
    trial: dict[str, Any],
    *,
    name: str = "e",
    container: str = "training",
    template: Any = None,
    **spec: Any,
) -> dict[str, Any]:
    """Write an Experiment of two trials, one at a time, over x from 0 to 1; it minimizes loss by random search.

    Args:
        trial: The job of a trial.
        name: Its name.
        container: Name of the container that trains.
        template: More of its trialTemplate; a parameter of the trial for each of the search space is there.
        **spec: More of its spec, or instead.
    """
    given = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": "random"},
        "parallelTrialCount": 1,
        "maxTrialCount": 2,
        "parameters": [space("x", min="0", max="1")],
        **spec,
    }
    names = [parameter["name"] for parameter in given["parameters"]]
    given["trialTemplate"] = {
        "primaryContainerName": container,
        "trialParameters": [{"name": name, "reference": name} for name in names],
        "trialSpec": trial,
        **(template or {}),
    }
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": given,
    }


SEEDED = {"algorithmName": "random", "algorithmSettings": [{"name": "random_state", "value": "1"}]}
"""An algorithm that always asks for the same."""
