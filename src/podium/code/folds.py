"""``python -m podium.code.folds --folds=5 -- COMMAND…``: cross-validate a training that any command
is.

The command runs once for each fold, then once for all items. In place of the dataset and of the
output that it is given, in its words and in its environment, it finds a fold and a directory of
this program's: it needs to know nothing of folds if it opens the dataset by podium.load_dataset or
podium.trainer.kit. The means of the metrics it prints are printed, line by line; the model of the
last run stays.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.data import artifact
from podium.data.folds import each_fold
from podium.data.validated import VALIDATED, Validated
from podium.display.text import figure
from podium.errors import Failed, InvalidInput, PodiumError
from podium.files.documents import load_json
from podium.metrics import matches, metric_line, number, over_folds
from podium.storage import connect

LAST_LINES = 20
"""Lines of a failed fold that are shown."""

METRICS = "metrics.json"


@dataclass(frozen=True, kw_only=True)
class _Training:
    """A command, and the data and output that it was given."""

    command: Sequence[str]
    data: str
    output: str

    @classmethod
    def read(cls, command: Sequence[str]) -> "_Training":
        """Find data and output in the command's flags, else in the environment.

        Raises:
            InvalidInput: There are no data.
        """
        data = _given(command, "data")
        if not data:
            raise InvalidInput(
                "folds divide a dataset, but neither --data nor PODIUM_DATA is given",
                "podium data prepare --output DIRECTORY makes a dataset",
            )
        return cls(command=command, data=data, output=_given(command, "output"))

    def run(self, data: str, output: str) -> list[dict[str, float]]:
        """Run the command with other data and output, and return the metrics of its lines.

        Raises:
            Failed: It failed.
        """
        others = {self.data: data} | ({self.output: output} if self.output else {})
        words = [_replaced(word, others) for word in self.command]
        env = {
            **{name: _replaced(value, others) for name, value in os.environ.items()},
            "PODIUM_DATA": data,
            "PODIUM_OUTPUT": output,
        }
        lines = []
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as process:
            signal.signal(signal.SIGTERM, lambda *_: process.terminate())
            for line in process.stdout or ():
                lines.append(line.rstrip("\n"))
        if process.returncode:
            for line in lines[-LAST_LINES:]:
                print(line.replace("=", ": "), file=sys.stderr)  # it is no result of the trial
            if process.returncode < 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), -process.returncode)
            raise Failed(f"{words[0]} ended with exit code {process.returncode} on {data}")
        return list(filter(None, map(_metrics, lines)))


def _given(command: Sequence[str], name: str) -> str:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name}", dest="given", default=os.environ.get(f"PODIUM_{name.upper()}"))
    return str(parser.parse_known_args(list(command))[0].given or "")


def _replaced(text: str, others: dict[str, str]) -> str:
    """Return a text that names some of the paths with others in their places, wherever it does: a
    path that only begins or ends like one is another one."""
    paths = sorted(others, key=len, reverse=True)  # one may lie below another
    named = rf"(?<![\w.-])(?:{'|'.join(map(re.escape, paths))})(?![\w.-])"
    return re.sub(named, lambda found: others[found[0]], text)


def _metrics(line: str) -> dict[str, float]:
    pairs = ((name, number(text)) for name, text in matches(line))
    return {name: value for name, value in pairs if value is not None}


def _cross_validate(training: _Training, folds: int, seed: int) -> None:
    """Run a training on each fold, print the means, and leave the model of all items.

    Raises:
        InvalidInput: The data cannot be divided so, or the command does not print a metric.
    """
    artifact.check_folds(training.data, folds)
    *parts, everything = each_fold(training.data, folds, seed)
    records, predicted = [], []
    with tempfile.TemporaryDirectory(prefix="podium-folds-") as scratch:
        for at, part in enumerate(parts, 1):
            output = f"{scratch}/{at}"
            Path(output).mkdir()
            records.append(training.run(part, output))
            if not records[-1]:
                hint = "print metric lines name=value, as podium.report and kit.report do"
                raise InvalidInput(f"the command printed no metric on fold {at}", hint)
            predicted.append(_predictions(output, part))
            words = ", ".join(f"{name} {figure(value)}" for name, value in records[-1][-1].items())
            print(f"fold {at} of {folds}: {words}", flush=True)
        training.run(everything, training.output or f"{scratch}/all")
    means = [record for record in over_folds(records) if record]
    if len(set(map(len, records))) > 1:  # each stopped by itself: its last figures are its result
        means += over_folds([[_latest(lines)] for lines in records])
    for record in means:
        print(metric_line(record), flush=True)
    if training.output:
        _leave(training, means, [_latest(lines) for lines in records], predicted)


def _latest(lines: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: value for line in lines for name, value in line.items()}


def _predictions(output: str, part: str) -> tuple[Any, Any] | None:
    """Return target and predictions of a fold: what the command left, else by its model.onnx; None
    if it left neither."""
    if left := Validated.read(connect(output)):
        return left.target, left.predictions
    model = Path(output, "model.onnx")
    if not model.is_file():
        return None
    from podium.scoring import OnnxModel

    split = artifact.load(part, "validation")
    classes = len(artifact.describe(part).classes) or None
    with contextlib.suppress(PodiumError):  # a model that fits its dataset only later
        return split.target, OnnxModel(model).predict(split.inputs, classes=classes)
    return None


def _leave(
    training: _Training,
    means: Sequence[dict[str, float]],
    folds: Sequence[dict[str, float]],
    predicted: Sequence[tuple[Any, Any] | None],
) -> None:
    """Put the figures of the folds beside the model, in place of those of the last run."""
    storage, info = connect(training.output), artifact.describe(training.data)
    details: dict[str, Any] = {"dataset": info.digest}
    if storage.head(METRICS):
        found = load_json(storage.get(METRICS), METRICS)
        details |= {
            name: value
            for name, value in (found.items() if isinstance(found, dict) else ())
            if not isinstance(value, int | float | list)
        }
    storage.delete(VALIDATED)
    pairs = [pair for pair in predicted if pair]
    if len(pairs) == len(predicted):
        Validated.joined(pairs, info.has_groups).write(storage)
    epochs = [{"epoch": at, **record} for at, record in enumerate(means, 1)]
    record = {**details, **epochs[-1], "epochs": epochs, "folds": list(folds)}
    storage.put(METRICS, (json.dumps(record, indent=1) + "\n").encode())


def _main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m podium.code.folds", description="Cross-validate a training."
    )
    parser.add_argument("--folds", type=int, required=True)
    parser.add_argument("command", nargs="+", help="the command, after --")
    options = parser.parse_args(argv)
    try:
        seed = os.environ.get("PODIUM_SEED", "1")
        training = _Training.read(options.command)
        _cross_validate(training, options.folds, int(seed) if seed.isdecimal() else 1)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
