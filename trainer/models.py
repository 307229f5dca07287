"""The networks. Each takes uint8 images [n, 28, 28] and returns logits [n, classes].

They consist of layers that `podium.trainer.onnx_graph` writes itself, which is faster than torch's exporter.
"""

import torch
from torch import Tensor, nn

from podium.trainer.config import TrainConfig


class Normalize(nn.Module):
    """Turn uint8 pixels [n, 28, 28] into float [n, 1, 28, 28] with mean 0 and standard deviation 1.

    It is part of the network, so that the exported model takes pixels.
    """

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.scale = 1 / (255 * std)
        self.shift = -mean / std

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.unsqueeze(1).float().mul_(self.scale).add_(self.shift)


class Flatten(nn.Flatten):
    """Flatten images to rows; in the backward pass convert gradients to the layout that the layer before computes in.

    Pooling is three times slower with a gradient in another layout than its own: a tenth of a step of the tutorial's
    network.
    """

    def forward(self, value: Tensor) -> Tensor:
        if value.requires_grad:
            value.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))
        return super().forward(value)


def tutorial(config: TrainConfig, classes: int) -> list[nn.Module]:
    """The network of the tutorial: two convolutions, two dense layers, 1.2 million weights."""
    return [
        nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), nn.Dropout2d(config.dropout / 2), Flatten(),
        nn.Linear(64 * 12 * 12, 128), nn.ReLU(inplace=True), nn.Dropout(config.dropout),
        nn.Linear(128, classes),
    ]  # fmt: skip


def fast(config: TrainConfig, classes: int) -> list[nn.Module]:
    """A small normalized network, thirteen times less work per image than the tutorial's.

    The stride of the first layer saves three quarters of all work that follows, pooling as much again, and pooling
    before normalization three quarters of the normalization. The first layer has no padding: the margin of a digit is
    empty, 12x12 instead of 14x14 saves another quarter and can be halved twice. A second stride instead of the first
    pooling was less accurate, and its backward pass is slow on CPUs.
    """
    first, second, third = _widths(config, 16, 32, 64)
    return [
        *_convolution(1, first, kernel=5, stride=2, padding=0, pool=True),
        *_convolution(first, second),
        *_convolution(second, third, pool=True),
        Flatten(), nn.Dropout(config.dropout), nn.Linear(third * 3 * 3, classes),
    ]  # fmt: skip


def best(config: TrainConfig, classes: int) -> list[nn.Module]:
    """A residual network of nine convolutions, 1.5 times as much work per image as the tutorial's.

    The first convolution has a stride of one: a stride of two lost 0.7 points of accuracy on Fashion-MNIST.
    """
    first, second, third = _widths(config, 32, 64, 128)
    return [
        *_convolution(1, first, pool=True), _residual(first),
        *_convolution(first, second, pool=True), _residual(second),
        *_convolution(second, third, pool=True), _residual(third),
        nn.MaxPool2d(3), Flatten(), nn.Dropout(config.dropout), nn.Linear(third, classes),
    ]  # fmt: skip


def _widths(config: TrainConfig, *channels: int) -> list[int]:
    """Return channels times the configured width, rounded to multiples of eight, which CPUs compute fastest."""
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


def _residual(channels: int) -> Residual:
    return Residual(*_convolution(channels, channels), *_convolution(channels, channels))


def _convolution(
    inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, padding: int = 1, pool: bool = False
) -> list[nn.Module]:
    """Return convolution, optional pooling by two, normalization and ReLU; the size changes by stride and pooling."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)]
    return [*layers, *([nn.MaxPool2d(2)] if pool else []), nn.BatchNorm2d(outputs, momentum=0.3), nn.ReLU(inplace=True)]


def build(config: TrainConfig, *, classes: int, mean: float, std: float) -> nn.Sequential:
    """Build the configured network with weights determined by the seed.

    Args:
        config: Names the network.
        classes: Number of logits.
        mean: Of the training pixels scaled to 0..1.
        std: Of the training pixels scaled to 0..1.
    """
    torch.default_generator.manual_seed(config.seed)
    layers = {"tutorial": tutorial, "fast": fast, "best": best}[config.model](config, classes)
    if config.flip:
        layers = [Mirrored(*layers)]
    # channels_last is what oneDNN and cuDNN compute in; measured 2x in bf16 on AVX512_BF16, no loss in fp32.
    return nn.Sequential(Normalize(mean, std), *layers).to(memory_format=torch.channels_last)
