"""`podium predict`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.registry_options import open_registry, output, registry_options
from podium.errors import Failed, InvalidInput
from podium.terminal import echo

if TYPE_CHECKING:
    from podium.registry.version import Facts
    from podium.steps.predict import Prediction


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("pictures", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--model", "name", default="mnist", show_default=True, help="Model in the registry.")
@click.option("--alias", default="champion", show_default=True, help="Which version: an alias or a version's id.")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A model.onnx instead of one from the registry.",
)
@click.option("--dataset", help="How to prepare pictures: mnist or fashion-mnist; what the model says if missing.")
@registry_options
def predict(
    pictures: tuple[Path, ...],
    name: str,
    alias: str,
    file: Path | None,
    dataset: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Classify pictures with the champion.

    PICTURES are .png and .jpg files or folders of them: one dark digit on light paper, light on dark, in color, of any
    size. For a model of Fashion-MNIST, one piece of clothing on a plain background. A model of other data is refused
    without --dataset: how its pictures are prepared is not known. Exit 1 if a picture could not be classified; the
    others are.

    \b
    Examples:
      podium predict photo.jpg
      podium predict drawings/ --json
      podium predict shoe.png --model fashion-mnist --storage s3://models
      podium predict digit.png --file trained/model.onnx --dataset mnist
    """
    from podium.steps import predict as step

    if dataset:
        from podium.data.sources.known import known_dataset

        known_dataset(dataset)
    model: bytes | Path
    known: Facts | None = None
    if file:
        model, source = file, str(file)
    else:
        registered = open_registry(storage)[name]
        version = registered.version(alias)
        model, known = registered.read(version, "model.onnx"), version.facts
        source = f"{name} {version.version}"
    trained_on = dataset or (known.dataset if known else None)
    if trained_on is None:
        raise InvalidInput(f"{source} does not say what it was trained on", "say it: --dataset mnist")
    predictions, unread = step.predict(
        model, pictures, dataset=trained_on, classes=known.dataset_classes if known else None
    )
    value = {
        "model": source,
        "dataset": trained_on,
        "predictions": [prediction.to_json() for prediction in predictions],
        "failed": [asdict(picture) for picture in unread],
    }
    output(as_json, value, lambda: "\n".join(_line(prediction) for prediction in predictions))
    if unread:
        for picture in unread:
            echo(picture.reason, err=True)
        raise Failed(f"{len(unread)} of {len(predictions) + len(unread)} pictures could not be classified")


def _line(prediction: "Prediction") -> str:
    runners = [f"{label} {share:.1%}" for label, share in list(prediction.probabilities.items())[1:3]]
    share = prediction.probabilities[prediction.label]
    return f"{prediction.picture}  {prediction.label}  {share:.1%}  (then {', '.join(runners)})"
