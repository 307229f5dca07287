"""How to mend what is missing or misspelt: a short piece of an Experiment as it should be, or the nearest name."""

import difflib
from collections.abc import Iterable
from typing import Any

OBJECTIVE = "objective: {type: maximize, objectiveMetricName: accuracy}"
SPACE = '- {name: lr, parameterType: double, feasibleSpace: {min: "0.1", max: "1"}}'
TEMPLATE = (
    "a trialTemplate has a primaryContainerName, trialParameters like {name: lr, reference: lr}, and as trialSpec a "
    "Job or PyTorchJob with apiVersion and kind that says ${trialParameters.lr}"
)
PODS = (
    "containers stand in spec.template.spec of a Job, in spec.pytorchReplicaSpecs.Master.template.spec of a PyTorchJob"
)


def nearest(given: Any, known: Iterable[Any]) -> str:
    """Return the name that was probably meant, or all there are."""
    names = [str(one) for one in known]
    close = difflib.get_close_matches(str(given), names, 1)
    return f"did you mean {close[0]}?" if close else f"choose one of {', '.join(names)}"
