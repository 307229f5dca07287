"""`podium predict`."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import podium
from podium.cli.options import registry_options
from podium.display.terminal import doing, echo
from podium.display.text import plural
from podium.errors import Failed, InvalidInput, NotFound, PodiumError, file_hint
from podium.files.drafts import appearing

if TYPE_CHECKING:
    from podium.data.rows import Problem
    from podium.models import Registry, Version
    from podium.prediction import Outcome
    from podium.prediction.predictions import UnknownValues


@click.command()
@click.argument("items", nargs=-1, required=True)
@click.option(
    "--model",
    "name",
    help="Model in the registry; by default that of podium.yaml, or the only one.",
)
@click.option(
    "--alias",
    default="champion",
    show_default=True,
    help="Version to use: an alias or an id.",
)
@click.option(
    "--file",
    type=click.Path(exists=True, path_type=Path),
    help="A model directory, or the model.onnx or model.json in it, instead of a model in the registry.",
)
@click.option(
    "--data",
    default="",
    help="The dataset it was trained on, for a model without preprocessing.json.",
)
@click.option(
    "--delimiter", default="", help="Delimiter of CSV files; by default detected from the header."
)
@click.option(
    "--encoding", default="utf-8", show_default=True, help="Encoding of CSV and text files."
)
@click.option(
    "--strict", is_flag=True, help="Refuse tables with many values that did not occur in training."
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a CSV file."
)
@registry_options
def predict(
    items: tuple[str, ...],
    name: str | None,
    alias: str,
    file: Path | None,
    output: Path | None,
    strict: bool,
    storage: str | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Predict new pictures, rows or sentences with the champion.

    ITEMS are what the model was trained on: pictures or folders of them; CSV, Parquet or JSON lines
    files with the columns of the training data; text files with one sentence per line, or
    sentences. Files and folders may be in a bucket. They are preprocessed exactly as the training
    data were, by the model's preprocessing.json; a model without it is refused unless --data names
    its dataset. The exit code is 1 if an item could not be predicted; the others are predicted, in
    order. Columns with many values that did not occur in training are reported; with --strict no
    file is written then, and the exit code is 1.

    A model without ONNX predicts by the command stored with it. That command runs on this machine
    with your permissions, and only if --model, podium.yaml or --file names the model.

    \b
    Examples:
      podium predict photo.jpg s3://photos/new
      podium predict new-customers.csv --model churn --output predicted.csv
      podium predict "what a film" "never again" --model reviews --json
      podium predict drawings/ --file trained/ --data prepared/
    """
    from podium.data.items import check_files, is_sentence
    from podium.data.option_text import options_as

    if file and (name or alias != "champion"):
        raise InvalidInput(
            f"--file {file} is a model itself, but --model and --alias name one of the registry",
            "leave --file out, or both of the others",
        )
    if output and as_json:
        raise InvalidInput(
            f"--output writes {output} as CSV, and --json prints JSON", "give one of them"
        )
    check_files(item for item in items if not is_sentence(item))
    if file:
        from podium.models.signature import open_trusted

        title, model = str(file), open_trusted(file)
    else:
        version = _version(podium.registry(storage), name, alias)
        title, model = version.title, version.opened
    if model.threshold:
        echo(f"{title} decides for {model.threshold}", err=True)
    tally = _Tally(strict=strict)
    outcomes = tally.good(model.stream(items, **reading, on_unknown=tally.judge))
    with options_as("flags"), doing(lambda: f"predicting: {plural(tally.count, 'item')} so far"):
        if output:
            _write_csv(outcomes, output)
        elif as_json:
            _print_json(outcomes, title, tally.problems)
        else:
            for outcome in outcomes:
                echo(_line(outcome))
    if tally.problems:
        raise Failed(
            f"{len(tally.problems):,} of {tally.count + len(tally.problems):,} items could not be predicted"
        )
    if not tally.count:
        echo("warning: the items hold nothing to predict", err=True)
    if output:
        echo(f"{tally.count:,} predictions in {output}", err=True)


@dataclass
class _Tally:
    strict: bool
    count: int = 0
    problems: "list[Problem]" = field(default_factory=list)

    def good(self, results: "Iterable[Outcome | Problem]") -> "Iterator[Outcome]":
        from podium.prediction import Outcome

        for result in results:
            if isinstance(result, Outcome):
                self.count += 1
                yield result
            else:
                self.problems.append(result)
                echo(str(result), err=True)

    def judge(self, unknown: "UnknownValues") -> None:
        """Name the columns with many unknown values.

        Raises:
            Failed: There are some, and they are not accepted.
        """
        said = unknown.sentences()
        if said and self.strict:
            raise Failed(
                "\n".join(said),
                "compare these columns with the training data, or leave out --strict",
            )
        for sentence in said:
            echo(f"warning: {sentence}", err=True)


def _version(registry: "Registry", name: str | None, alias: str) -> "Version":
    """Return the version to predict with.

    Raises:
        InvalidInput: Several models may be meant; or it predicts by a command, and nothing names
            the model.
    """
    from podium.kfp.project import Project

    if name is None and (project := Project.find()):
        name = str(project.values.get("model_name", "")) or None
    names = list(registry)
    if name and name not in names and Path(name).exists():
        raise InvalidInput(
            f"{name} is a path, but --model names a model of the registry", f"--file {name}"
        )
    if name is None and len(names) > 1:
        raise InvalidInput(
            f"{registry.url} holds {len(names)} models", f"--model {' or '.join(names[:5])}"
        )
    if name is None and not names:
        raise NotFound(f"{registry.url} holds no model", "train one: podium run")
    version = registry[name or names[0]].version(alias)
    if name is None and version.is_command:
        problem = f"{version.title} predicts by a command that is stored with it"
        raise InvalidInput(problem, f"to run it: --model {version.name}")
    return version


def _line(outcome: "Outcome") -> str:
    name = ", ".join(
        f"row {value}" if key == "row" else str(value) for key, value in outcome.name.items()
    )
    if outcome.values:
        return f"{name}  {' '.join(f'{value:.6g}' for value in outcome.values)}"
    if not outcome.probabilities:
        return f"{name}  {outcome.label}"
    others = [pair for pair in outcome.ranked if pair[0] != outcome.label]
    runners = ", ".join(f"{other} {probability:.1%}" for other, probability in others[:2])
    share = outcome.probabilities[outcome.label]
    return f"{name}  {outcome.label}  {share:.1%}  (then {runners})"


def _print_json(outcomes: "Iterable[Outcome]", model: str, problems: "list[Problem]") -> None:
    echo(f'{{"model": {json.dumps(model)}, "predictions": [')
    before = ""
    for outcome in outcomes:
        if before:
            echo(f"{before},")
        before = json.dumps(outcome.to_json(), ensure_ascii=False)
    if before:
        echo(before)
    failed = [
        {"row": problem.row, "where": problem.where, "reason": problem.reason}
        for problem in problems
    ]
    echo(f'], "failed": {json.dumps(failed, ensure_ascii=False)}}}')


def _write_csv(outcomes: "Iterable[Outcome]", output: Path) -> None:
    try:
        with (
            appearing(output) as draft,
            draft.open("w", newline="", encoding="utf-8", errors="backslashreplace") as stream,
        ):
            writer = csv.writer(stream)
            for at, row in enumerate(outcome.row() for outcome in outcomes):
                if at == 0:
                    writer.writerow(row)
                writer.writerow(row.values())
    except OSError as error:
        problem = f"{output} cannot be written: {error.strerror or error}"
        raise PodiumError(problem, file_hint(error)) from error
