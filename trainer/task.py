"""What a network learns: from one input of a dataset to its target."""

from dataclasses import dataclass

from podium.data.schema import DatasetInfo, InputInfo
from podium.errors import InvalidInput, require
from podium.trainer.config import TrainConfig

SMALLEST = 8
"""Least height and width of a picture."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """From one input to classes or numbers."""

    kind: str
    """``classification`` or ``regression``."""

    input: str
    """Name of the input, in the dataset and in model.onnx."""

    info: InputInfo
    """Meaning, shape and statistics of the input."""

    outputs: int
    """Number of classes, or of values for each item."""

    target_mean: tuple[float, ...] = ()
    """Regression: of each value in the training part."""

    target_std: tuple[float, ...] = ()
    """As target_mean, never zero."""

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


def read(config: TrainConfig, info: DatasetInfo) -> Task:
    """Return what is to be learned from a dataset with a configured network.

    Raises:
        InvalidInput: The network does not take such a dataset, or a setting does not fit its pictures.
    """
    name, source = _only_input(info)
    if info.kind == "classification":
        task = Task(kind=info.kind, input=name, info=source, outputs=len(info.classes))
    else:
        mean, std = info.target.mean or (0.0,), info.target.std or (1.0,)
        task = Task(kind=info.kind, input=name, info=source, outputs=len(mean), target_mean=mean,
                    target_std=tuple(value or 1.0 for value in std))  # fmt: skip
    if source.meaning == "image":
        _check_picture(config, task)
    else:
        _check_numbers(config, info.name, source)
    return task


def _only_input(info: DatasetInfo) -> tuple[str, InputInfo]:
    """Return the input of a dataset.

    Raises:
        InvalidInput: It has several, or sentences.
    """
    (name, source), *others = info.inputs.items()
    hint = "train it with a trainer of your own, which any command can be: docs/trainer.md"
    if others:
        names = " and ".join(info.inputs)
        raise InvalidInput(f"podium.trainer takes one input, but the dataset {info.name} has {names}", hint)
    if source.meaning == "tokens":
        raise InvalidInput(f"podium.trainer takes pictures, tables and arrays, but the input {name} of the dataset "
                           f"{info.name} holds tokens", hint)  # fmt: skip
    return name, source


def _check_picture(config: TrainConfig, task: Task) -> None:
    (height, width), dtype = task.size, task.info.dtype
    require(min(height, width) >= SMALLEST, f"pictures are at least {SMALLEST} pixels high and wide",
            "podium data prepare images:DIRECTORY --option resize=64,64 enlarges them",
            height=height, width=width)  # fmt: skip
    require(config.is_own or task.channels in (1, 3), "networks of torchvision take 1 or 3 channels",
            "--model fast and best take any number", channels=task.channels, model=config.model)  # fmt: skip
    for name in ("shift", "erase"):
        value, most = getattr(config, name), min(height, width) // 2
        require(value <= most, f"--{name} <= {most}, half of the pictures", "for example 2",
                **{name: value, "height": height, "width": width})  # fmt: skip
    require(not config.augment or dtype == "uint8", "--augment has pixels of uint8",
            "--shift, --rotate, --flip and --erase take any", dtype=dtype, augment=config.augment)  # fmt: skip


def _check_numbers(config: TrainConfig, dataset: str, source: InputInfo) -> None:
    require(config.model == "mlp", f"--model {config.model} has pictures to learn from", "--model mlp takes "
            "tables and arrays", dataset=dataset, input=source.meaning)  # fmt: skip
    for name in ("shift", "rotate", "flip", "erase", "augment"):
        value = getattr(config, name)
        require(not value, f"--{name} has pictures to change", f"leave --{name} out", dataset=dataset,
                input=source.meaning, **{name: value})  # fmt: skip
