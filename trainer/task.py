"""Task of a network: from one input of a dataset to its target."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from podium.data import artifact
from podium.data.schema import DatasetInfo, InputInfo
from podium.errors import Damaged, InvalidInput, NotFound
from podium.trainer import networks
from podium.trainer.config import TrainConfig

_SMALLEST = 8
"""Least height and width of a picture."""

_LEAST_SPREAD = 1e-6
"""Least standard deviation of a target, by its mean: beneath it float32, in which models answer,
loses more than a thousandth of the variance."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """From one input to classes or numbers."""

    kind: str

    input: str
    """Name of the input, in the dataset and in model.onnx."""

    info: InputInfo
    """Meaning, shape and statistics of the input."""

    outputs: int
    """Number of classes, or of values for each item."""

    class_counts: tuple[int, ...] = ()
    """Training items of each class."""

    target_mean: tuple[float, ...] = ()
    """Mean of each value of a regression over the training part."""

    target_std: tuple[float, ...] = ()
    """Standard deviation of each, never zero."""

    @property
    def output(self) -> str:
        """Name of the output in model.onnx."""
        return "values" if self.kind == "regression" else "logits"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a picture."""
        return self.info.shape[0], self.info.shape[1]

    @property
    def channels(self) -> int:
        """Channels of a picture: 1 if its array has no channel axis."""
        return self.info.shape[2] if len(self.info.shape) == 3 else 1


@contextmanager
def readable(config: TrainConfig) -> Iterator[DatasetInfo]:
    """Yield the description of the dataset that is named, and turn what is wrong with its files
    into bad input: starting a trainer again changes nothing about it.

    Raises:
        InvalidInput: No dataset, a damaged one, or not the one asked for.
    """
    hint = "podium data prepare --output DIRECTORY makes a dataset"
    if not config.data:
        raise InvalidInput("--data names no dataset", hint)
    try:
        info = artifact.describe(config.data)
        if config.dataset not in ("", info.name):
            raise InvalidInput(
                f"--data {config.data} holds {info.name}, not {config.dataset}",
                f"--dataset {info.name}",
            )
        yield info
    except (NotFound, Damaged) as error:
        raise InvalidInput(error.message, error.hint or hint) from error


def read(config: TrainConfig, info: DatasetInfo) -> Task:
    """Return what is to be learned from a dataset with a configured network.

    Raises:
        InvalidInput: The network does not take such a dataset, a setting does not fit its pictures,
            or a target's values are equal as float32.
    """
    name, source = _only_input(config.model, info)
    if info.kind == "classification":
        counts = info.parts["train"].class_counts
        task = Task(
            kind=info.kind, input=name, info=source, outputs=len(info.classes), class_counts=counts
        )
    else:
        mean, std = info.target.mean or (0.0,), info.target.std or (1.0,)
        for average, deviation in zip(mean, std, strict=True):
            if 0 < deviation < _LEAST_SPREAD * abs(average):
                raise InvalidInput(
                    f"the target {info.target.name} lies around {average:g} and differs by "
                    f"{deviation:.2g}: float32, in which models answer, cannot tell its values apart",
                    f"subtract a number near {average:g} from it",
                )
        task = Task(
            kind=info.kind,
            input=name,
            info=source,
            outputs=len(mean),
            target_mean=mean,
            target_std=tuple(value or 1.0 for value in std),
        )
    if source.meaning == "image":
        _check_picture(config, task)
    else:
        _check_numbers(config, info.name, source)
    return task


def _only_input(model: str, info: DatasetInfo) -> tuple[str, InputInfo]:
    """Return the input of a dataset; of sentences, which the linear model takes, the words.

    Raises:
        InvalidInput: It has several, or sentences for another model.
    """
    (name, source), *others = info.inputs.items()
    if source.meaning == "tokens" and model == networks.LINEAR:
        return name, source
    hint = "train it with a trainer of your own, which any command can be: docs/trainer.md"
    if others:
        names = " and ".join(info.inputs)
        raise InvalidInput(
            f"podium.trainer takes one input, but the dataset {info.name} has {names}", hint
        )
    if source.meaning == "tokens":
        raise InvalidInput(
            f"podium.trainer takes sentences with --model linear alone, but the input {name} of the "
            f"dataset {info.name} holds tokens",
            hint,
        )
    return name, source


def _check_picture(config: TrainConfig, task: Task) -> None:
    (height, width), dtype = task.size, task.info.dtype
    if min(height, width) < _SMALLEST:
        raise InvalidInput(
            f"pictures of {height}x{width} pixels are too small: {_SMALLEST}x{_SMALLEST} is the least",
            "podium data prepare images:DIRECTORY --option resize=64,64 enlarges them",
        )
    if not config.is_own and task.channels not in (1, 3):
        raise InvalidInput(
            f"--model {config.model} takes pictures of 1 or 3 channels, but these have {task.channels}",
            "--model fast and best take any number",
        )
    for name in ("shift", "erase"):
        value, most = getattr(config, name), min(height, width) // 2
        if value > most:
            raise InvalidInput(
                f"--{name} {value} is more than half of pictures of {height}x{width} pixels",
                f"at most --{name} {most}",
            )
    if config.augment and dtype != "uint8":
        raise InvalidInput(
            f"--augment {config.augment} takes pixels of uint8, but these are {dtype}",
            "--shift, --rotate, --flip and --erase take any",
        )


def _check_numbers(config: TrainConfig, dataset: str, source: InputInfo) -> None:
    kind = f"the input of {dataset} is {'a table' if source.meaning == 'table' else 'an array'}"
    if config.model not in networks.NUMBERS:
        raise InvalidInput(
            f"--model {config.model} learns from pictures, but {kind}",
            "--model trees, mlp and linear take tables and arrays",
        )
    for name in ("shift", "rotate", "flip", "erase", "augment"):
        if getattr(config, name):
            raise InvalidInput(f"--{name} changes pictures, but {kind}", f"leave --{name} out")
