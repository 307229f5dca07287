"""How all pipelines end: the winner of the evaluation is uploaded and challenges the champion."""

from typing import Any

from podium.components.promote_best import promote_best
from podium.components.upload_model import upload_model


def upload_and_promote(
    test: Any, evaluated: Any, *, model_name: str, rule: str, tracking: str, launch: dict[str, Any]
) -> None:
    """Add the last two steps to the pipeline that is being defined, after that of evaluate."""
    evaluation = evaluated.outputs["evaluation"]
    uploaded = upload_model(
        model=evaluated.outputs["winner"],
        predictions=evaluated.outputs["predictions"],
        evaluation=evaluation,
        model_name=model_name,
        storage=launch["storage"],
    )
    uploaded.set_display_name("Upload the model").set_caching_options(False)
    promoted = promote_best(
        test=test,
        evaluation=evaluation,
        version=uploaded.output,
        model_name=model_name,
        rule=rule,
        tracking=tracking,
        **launch,
    )
    promoted.set_display_name("Promote it if it is better").set_caching_options(False)
