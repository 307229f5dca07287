"""The networks. Each takes a batch of a dataset's input as it is stored, and returns logits or
values [n, outputs].

podium's own consist of layers that `podium.trainer.onnx_graph` writes itself, which is faster than
torch's exporter.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium.data.schema import InputInfo
from podium.trainer import networks
from podium.trainer.config import TrainConfig
from podium.trainer.task import Task

Numbers = tuple[float, ...]

LEAST = 64
"""Least height and width that the networks get: smaller pictures are enlarged, or little of them
would be left."""

_LEAST_OF_INCEPTION = 128
_FIXED = 224


class Normalize(nn.Module):
    """Turn pixels [n, h, w] or [n, h, w, c] into float [n, c, h, w] with mean 0 and standard
    deviation 1.

    It is part of the network, so that the exported model takes pixels.

    Args:
        mean: One for each channel of the pixels, which are scaled to 0..1 if they are uint8.
        std: One for each channel.
        levels: What pixels are divided by first: 255 for uint8, 1 for floats.
        has_channels: Whether pixels have an axis of channels.
    """

    def __init__(
        self, mean: Numbers, std: Numbers, *, levels: int = 255, has_channels: bool = False
    ) -> None:
        super().__init__()
        self.has_channels = has_channels
        scale = [1 / (levels * (value or 1.0)) for value in std]
        shift = [-average / (value or 1.0) for average, value in zip(mean, std, strict=True)]
        if not has_channels:
            self.scale, self.shift = scale[0], shift[0]
            return
        self.register_buffer("scale", torch.tensor(scale).view(-1, 1, 1), persistent=False)
        self.register_buffer("shift", torch.tensor(shift).view(-1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        pixels = pixels.permute(0, 3, 1, 2) if self.has_channels else pixels.unsqueeze(1)
        copy = pixels.to(torch.float32, copy=True)  # floats are those of the dataset itself
        return copy.mul_(self.scale).add_(self.shift)


class Columns(nn.Module):
    """Turn a table [n, columns] into float [n, features]: numbers standardized, categories as one
    value for each.

    A value that is not the index of a category belongs to none.
    """

    numbers: Tensor
    mean: Tensor
    scale: Tensor
    categories: Tensor
    codes: Tensor

    def __init__(self, info: InputInfo) -> None:
        super().__init__()
        numbers = [index for index, column in enumerate(info.columns) if column.kind == "number"]
        pairs = [
            (index, code)
            for index, column in enumerate(info.columns)
            for code in range(len(column.categories))
            if column.kind == "category"
        ]
        constants = {
            "numbers": torch.tensor(numbers, dtype=torch.int64),
            "mean": torch.tensor([info.mean[index] for index in numbers]),
            "scale": torch.tensor([1 / (info.std[index] or 1.0) for index in numbers]),
            "categories": torch.tensor([index for index, _ in pairs], dtype=torch.int64),
            "codes": torch.tensor([float(code) for _, code in pairs]),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)
        self.features = len(numbers) + len(pairs)

    def forward(self, table: Tensor) -> Tensor:
        table = table.float()
        numbers = (table[:, self.numbers] - self.mean) * self.scale
        categories = (table[:, self.categories] == self.codes).float()
        return torch.cat([numbers, categories], 1)


class Standardize(nn.Module):
    """Turn an array of numbers [n, …] into float [n, features] with mean 0 and standard deviation
    1."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.scale, self.shift = 1 / (std or 1.0), -mean / (std or 1.0)

    def forward(self, values: Tensor) -> Tensor:
        return values.flatten(1).float() * self.scale + self.shift


class Unscale(nn.Module):
    """Turn standardized values [n, k] into those of the target, in its own units."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Numbers, std: Numbers) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        return values.float() * self.std + self.mean


class _Flatten(nn.Flatten):
    """Flatten images to rows; in the backward pass convert gradients to the layout that the layer
    before computes in.

    Pooling is three times slower with a gradient in another layout than its own: a tenth of a step
    of the tutorial's network.
    """

    def forward(self, value: Tensor) -> Tensor:
        if value.requires_grad:
            value.register_hook(
                lambda gradient: gradient.contiguous(memory_format=torch.channels_last)
            )
        return super().forward(value)


def _tutorial(config: TrainConfig, task: Task) -> list[nn.Module]:
    """The network of the tutorial: two convolutions, two dense layers, 1.2 million weights for
    digits.

    Larger pictures are halved by convolutions first, and pooled to at most 12x12 before the dense
    layers.
    """
    layers, channels, (height, width) = [], task.channels, task.size
    while min(height, width) >= 56:
        layers += [nn.Conv2d(channels, 32, 3, 2, 1), nn.ReLU(inplace=True)]
        channels, height, width = 32, (height + 1) // 2, (width + 1) // 2
    pool = max(2, math.ceil((height - 4) / 12)), max(2, math.ceil((width - 4) / 12))
    features = 64 * ((height - 4) // pool[0]) * ((width - 4) // pool[1])
    return [
        *layers,
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(pool),
        nn.Dropout2d(config.dropout / 2),
        _Flatten(),
        nn.Linear(features, 128),
        nn.ReLU(inplace=True),
        nn.Dropout(config.dropout),
        nn.Linear(128, task.outputs),
    ]


def _fast(config: TrainConfig, task: Task) -> list[nn.Module]:
    """A small normalized network, thirteen times less work per digit than the tutorial's.

    The stride of the first layer saves three quarters of all work that follows, pooling as much
    again, and pooling before normalization three quarters of the normalization. The first layer has
    no padding: the margin of a digit is empty, 12x12 instead of 14x14 saves another quarter and can
    be halved twice. A second stride instead of the first pooling was less accurate, and its
    backward pass is slow on CPUs. Pictures under 24 pixels have a stride of one; larger ones than
    digits are halved until 3 to 5 pixels are left, with twice the channels each time, at most 256.
    """
    first, second, third = _widths(config, 16, 32, 64)
    stride = 2 if min(task.size) >= 24 else 1
    layers = [
        *_convolution(task.channels, first, kernel=5, stride=stride, padding=0, pool=True),
        *_convolution(first, second),
        *_convolution(second, third, pool=True),
    ]
    height, width = ((((side - 5) // stride + 1) // 2) // 2 for side in task.size)
    more, channels, (height, width) = _halve(third, height, width)
    return [
        *layers,
        *more,
        _Flatten(),
        nn.Dropout(config.dropout),
        nn.Linear(channels * height * width, task.outputs),
    ]


def _best(config: TrainConfig, task: Task) -> list[nn.Module]:
    """A residual network of nine convolutions, 1.5 times as much work per digit as the tutorial's.

    The first convolution has a stride of one: a stride of two lost 0.7 points of accuracy on
    Fashion-MNIST. Pictures of 96 pixels and more have a stride of two; larger ones than digits have
    more layers, as in `fast`.
    """
    first, second, third = _widths(config, 32, 64, 128)
    stride = 2 if min(task.size) >= 96 else 1
    layers = [
        *_convolution(task.channels, first, stride=stride, pool=True),
        _residual(first),
        *_convolution(first, second, pool=True),
        _residual(second),
        *_convolution(second, third, pool=True),
        _residual(third),
    ]
    height, width = (((side - 1) // stride + 1) // 8 for side in task.size)
    more, channels, size = _halve(third, height, width)
    return [
        *layers,
        *more,
        nn.MaxPool2d(size),
        _Flatten(),
        nn.Dropout(config.dropout),
        nn.Linear(channels, task.outputs),
    ]


def _halve(channels: int, height: int, width: int) -> tuple[list[nn.Module], int, tuple[int, int]]:
    """Return convolutions that halve a picture until its shorter side is under 6, and its channels
    and size then."""
    layers: list[nn.Module] = []
    most = channels * 4
    while min(height, width) >= 6:
        outputs = min(2 * channels, most)
        layers += _convolution(channels, outputs, pool=True)
        channels, height, width = outputs, height // 2, width // 2
    return layers, channels, (height, width)


def _mlp(config: TrainConfig, features: int, outputs: int) -> list[nn.Module]:
    """Dense layers of 128 units, for tables; none for the network ``linear``."""
    (hidden,) = _widths(config, 128)
    layers: list[nn.Module] = []
    for _ in range(0 if config.model == "linear" else config.depth):
        layers += [nn.Linear(features, hidden), nn.ReLU(inplace=True), nn.Dropout(config.dropout)]
        features = hidden
    return [*layers, nn.Linear(features, outputs)]


def _widths(config: TrainConfig, *channels: int) -> list[int]:
    """Return channels times the configured width, rounded to multiples of eight, which CPUs compute
    fastest."""
    return [max(8, round(count * config.width / 8) * 8) for count in channels]


class Residual(nn.Module):
    """Add the output of the layers to their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, value: Tensor) -> Tensor:
        return value + self.layers(value)


class Mirrored(nn.Module):
    """In evaluation mode, return the mean of the logits of an image and of its mirror image."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, value: Tensor) -> Tensor:
        if self.training:
            return self.layers(value)
        return self.layers(torch.cat([value, value.flip(-1)])).unflatten(0, (2, -1)).mean(0)


class _BatchNorm(nn.BatchNorm2d):
    """Batch normalization that takes a single item of small pictures by the running statistics: one
    value of a channel has no deviation."""

    def forward(self, value: Tensor) -> Tensor:
        if self.training and value.numel() == self.num_features:
            running = self.running_mean, self.running_var
            return F.batch_norm(value, *running, self.weight, self.bias, eps=self.eps)
        return super().forward(value)


def _residual(channels: int) -> Residual:
    return Residual(*_convolution(channels, channels), *_convolution(channels, channels))


def _convolution(
    inputs: int,
    outputs: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 1,
    pool: bool = False,
) -> list[nn.Module]:
    """Return convolution, optional pooling by two, normalization and ReLU; the size changes by
    stride and pooling."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)]
    return [
        *layers,
        *([nn.MaxPool2d(2)] if pool else []),
        _BatchNorm(outputs, momentum=0.3),
        nn.ReLU(inplace=True),
    ]


def build(config: TrainConfig, task: Task) -> nn.Sequential:
    """Build the configured network with weights determined by the seed."""
    torch.default_generator.manual_seed(config.seed)
    first, layers = _first_layer(task), _layers(config, task)
    if config.flip:
        layers = [Mirrored(*layers)]
    if task.kind == "regression":
        layers = [*layers, Unscale(task.target_mean, task.target_std)]
    # channels_last is what oneDNN and cuDNN compute in; measured 2x in bf16 on AVX512_BF16, no loss
    # in fp32.
    return nn.Sequential(first, *layers).to(memory_format=torch.channels_last)


def _first_layer(task: Task) -> nn.Module:
    """Return the layer that turns the input as it is stored into numbers of mean 0 and deviation
    1."""
    info = task.info
    match info.meaning:
        case "image":
            levels = 255 if info.dtype == "uint8" else 1
            return Normalize(info.mean, info.std, levels=levels, has_channels=len(info.shape) == 3)
        case "table":
            return Columns(info)
    return Standardize(info.mean[0], info.std[0])


def _layers(config: TrainConfig, task: Task) -> list[nn.Module]:
    if config.model in networks.DENSE:
        features, is_picture = math.prod(task.info.shape), task.info.meaning == "image"
        if task.info.meaning == "table":
            features = Columns(task.info).features
        return [*([_Flatten()] if is_picture else []), *_mlp(config, features, task.outputs)]
    if config.is_own:
        return {"tutorial": _tutorial, "fast": _fast, "best": _best}[config.model](config, task)
    return _torchvision_layers(config.model, task)


class _Color(nn.Module):
    """Turn gray pictures [n, 1, h, w] into [n, 3, h, w]."""

    def forward(self, value: Tensor) -> Tensor:
        return value.expand(-1, 3, -1, -1)


class _Resize(nn.Module):
    """Resize pictures, bilinear."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, value: Tensor) -> Tensor:
        return F.interpolate(value, size=self.size, mode="bilinear", align_corners=False)


def _torchvision_layers(model: str, task: Task) -> list[nn.Module]:
    """Return a network of torchvision with new weights, after what makes pictures of one or three
    channels fit it."""
    import torchvision

    options: dict[str, Any] = {"num_classes": task.outputs}
    if model in (
        "googlenet",
        "inception_v3",
    ):  # without the auxiliary classifiers, which have a loss of their own
        options |= {"aux_logits": False, "init_weights": True}
    network = torchvision.models.get_model(model, weights=None, **options)
    size = _fitting_size(model, task.size)
    color = [_Color()] if task.channels == 1 else []
    return [*color, *([_Resize(size)] if size != task.size else []), network]


def _fitting_size(model: str, size: tuple[int, int]) -> tuple[int, int]:
    """Return the size that a network gets for pictures of a size; the proportions stay unless the
    network has one."""
    if networks.FIXED_SIZE.match(model):
        return _FIXED, _FIXED
    least = _LEAST_OF_INCEPTION if model == "inception_v3" else LEAST
    factor = max(1.0, least / min(size))
    return round(size[0] * factor), round(size[1] * factor)
