"""The tasks that all pipelines have: how they begin, and how they end."""

from collections.abc import Mapping
from typing import Any

from podium.components.fingerprint_data import fingerprint_data
from podium.components.prepare_data import prepare_data
from podium.components.promote_best import promote_best
from podium.components.upload_model import upload_model


def add(
    component: Any,
    title: str,
    parameters: Mapping[str, Any],
    *,
    cached: bool = False,
    **inputs: Any,
) -> Any:
    """Add a task to the pipeline that is being defined.

    Args:
        component: Takes those of the pipeline's parameters that it has an input of the same name
            for.
        title: Shown to people.
        parameters: The pipeline's.
        cached: Whether its outputs are taken from the cache while its inputs are the same.
        inputs: Outputs of other tasks, and what no parameter says.
    """
    names = component.component_spec.inputs
    arguments = {name: value for name, value in parameters.items() if name in names}
    task = component(**arguments, **inputs)
    task.set_display_name(title).set_caching_options(cached)
    return task


def prepare(parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    """Add the first two tasks; return the dataset and its test part."""
    found = add(fingerprint_data, "Look at the data", parameters)
    prepared = add(
        prepare_data,
        "Prepare the data",
        parameters,
        cached=True,
        fingerprint=found.outputs["Output"],
    )
    return prepared.outputs["prepared"], prepared.outputs["prepared_test"]


def upload_and_promote(parameters: Mapping[str, Any], test: Any, evaluated: Any) -> None:
    """Add the last two tasks, after that of evaluate: its winner is uploaded and challenges the
    champion."""
    evaluation = evaluated.outputs["evaluation"]
    uploaded = add(
        upload_model,
        "Upload the model",
        parameters,
        model=evaluated.outputs["winner"],
        predictions=evaluated.outputs["predictions"],
        evaluation=evaluation,
    )
    add(
        promote_best,
        "Promote it if it is better",
        parameters,
        test=test,
        evaluation=evaluation,
        version=uploaded.output,
    )
