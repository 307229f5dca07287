"""Pipelines as YAML for a Kubeflow cluster."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from podium.errors import require


def compile_pipeline(
    name: str,
    words: Sequence[str] = (),
    *,
    steps_image: str | None = None,
    trainer_image: str | None = None,
    platform: Sequence[str] = (),
) -> str:
    """Compile a pipeline to KFP v2 YAML: one document that old servers take too, a second one with platform settings.

    Args:
        name: Name of the pipeline.
        words: Parameters as ``name=value``; they become the defaults of the compiled pipeline.
        steps_image: Image of the steps; the one the components name if None.
        trainer_image: Image of trials, training and prepare_data; the one the components name if None.
        platform: Settings for kfp-kubernetes as ``name=value``, see podium.platforms.configure.

    Raises:
        InvalidInput: Unknown pipeline, parameter or setting, or an image that is no image name.
    """
    from kfp.compiler import Compiler

    from podium.components.images import STEPS_IMAGE, TRAINER_IMAGE
    from podium.parameters import parameters_of, read_parameters
    from podium.pipelines import load
    from podium.platforms import configured, read_settings
    from podium.values import check_values

    pipeline = load(name)
    known = parameters_of(pipeline.pipeline_func)
    values = read_parameters(words, known)
    check_values({**{one.name: one.default for one in known}, **values})
    for image in filter(None, (steps_image, trainer_image)):
        require(bool(re.fullmatch(r"\w[\w./:@-]*", image)), "an image is a name like host/name:tag", image=image)
    if trainer_image:
        values.setdefault("trainer_image", trainer_image)
    settings = read_settings(platform)
    if settings:
        pipeline = configured(pipeline, settings)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "pipeline.yaml")
        Compiler().compile(pipeline, str(file), pipeline_parameters=values)
        text = _with_plain_names(file.read_text())
    for standard, other in ((STEPS_IMAGE, steps_image), (TRAINER_IMAGE, trainer_image)):
        text = re.sub(rf"^(\s+image: ){re.escape(standard)}$", rf"\g<1>{other or standard}", text, flags=re.MULTILINE)
    return text


def _with_plain_names(text: str) -> str:
    """Name every task by its key: KFP 2.0.5 finds the producer of an artifact by the display name (observed)."""
    import yaml

    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    documents = list(yaml.safe_load_all(text))
    for key, task in documents[0]["root"]["dag"]["tasks"].items():
        task["taskInfo"]["name"] = key
    return head + str(yaml.dump_all(documents, sort_keys=True))
