"""Names of networks, and the recipe of each; imports neither torch nor torchvision."""

import re
from typing import Any

TREES, LINEAR = "trees", "linear"
"""Models of scikit-learn, the second unless it is of pictures: podium.trainer.tabular."""

OWN = ("tutorial", "fast", "best", "mlp", LINEAR, TREES)
"""Networks of podium.trainer.models, and the trees."""

DENSE = ("mlp", LINEAR)
"""Networks that take any numbers: tables and arrays as well as pictures."""

NUMBERS = (*DENSE, TREES)
"""All that take any numbers."""

TORCHVISION = tuple(
    """
    alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161
    densenet169 densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3
    efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l
    efficientnet_v2_m efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet0_75
    mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_16gf
    regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf
    regnet_y_16gf regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf
    regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50 resnext101_32x8d resnext101_64x4d
    resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0
    squeezenet1_0 squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn
    vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_l_16 vit_l_32
    wide_resnet101_2 wide_resnet50_2
    """.split()  # noqa: SIM905
)
"""Classification networks of torchvision.models."""

LISTED = (0, 29)
"""Version of torchvision that these are the networks of; a newer one may have more."""

TOO_LARGE = ("regnet_y_128gf", "vit_h_14")
"""Networks of torchvision whose weights exceed the 2 GB that one ONNX file holds."""

FIXED_SIZE = re.compile(r"alexnet|maxvit|vgg|vit_")
"""Networks of torchvision for pictures of 224x224 and no others."""

_ONE_CYCLE: dict[str, Any] = {"schedule": "onecycle", "average": 200}
_ADAMW = {**_ONE_CYCLE, "batch_size": 64, "optimizer": "adamw"}
_DENSE = {**_ADAMW, "batch_size": 0, "epochs": 20, "lr": 2e-3, "weight_decay": 0.01}
_PICTURES = {**_ONE_CYCLE, "dropout": 0.0, "label_smoothing": 0.1, "keep": "last"}
_SGD = {**_PICTURES, "optimizer": "sgd", "weight_decay": 5e-4}

# What a model changes in the defaults of TrainConfig; a flag given by the user overrides both.
RECIPES: dict[str, dict[str, Any]] = {
    "tutorial": {},
    # Reaches 99.0 % soonest: two epochs of a small normalized network, about 0.9 million
    # multiplications per image.
    "fast": {**_SGD, "epochs": 2, "batch_size": 256, "lr": 0.4},
    # Highest accuracy in a few minutes on two cores: a residual network on shifted and rotated
    # digits. For clothes:
    # --epochs 16 --rotate 0 --shift 1 --flip --erase 6, see docs/trainer.md.
    "best": {**_SGD, "epochs": 12, "batch_size": 128, "lr": 0.2, "shift": 2, "rotate": 10.0},
    "mlp": {**_DENSE, "dropout": 0.1},
    # Logistic or linear regression, the baseline that a network must beat to be worth its trouble.
    LINEAR: {**_DENSE, "dropout": 0.0},
    TREES: {"dropout": 0.0, "patience": 50},
}

# AdamW suits all of them, also those without normalization, with about the same learning rate.
_TORCHVISION = {**_PICTURES, **_ADAMW, "epochs": 10, "lr": 1e-3, "weight_decay": 0.05}


def is_fitted(model: str, meaning: str) -> bool:
    """Return whether scikit-learn fits a model, without torch.

    Args:
        meaning: The input's: image, table, array or tokens.
    """
    return model == TREES or (model == LINEAR and meaning in ("table", "array", "tokens"))


def recipe(model: str) -> dict[str, Any]:
    """Return what a model changes in the defaults; nothing if it is not known."""
    if model in RECIPES:
        return RECIPES[model]
    return _TORCHVISION if exists(model) else {}


def exists(model: str) -> bool:
    """Return whether there is a network of a name.

    torchvision, which takes seconds to import, is asked only if it is newer than these names; where
    there is none, as in the image of the steps, the names are those that the trainer's image has.
    """
    if model in OWN or model in TORCHVISION:
        return True
    if model in TOO_LARGE or not re.fullmatch(r"[a-z]+[a-z0-9]*(_[a-z0-9]+)*", model):
        return False
    from importlib.metadata import (
        PackageNotFoundError,
        version,
    )  # for unknown names only: Tab asks for known ones

    try:
        installed = tuple(map(int, version("torchvision").split(".")[:2]))
    except PackageNotFoundError:
        return False
    if installed <= LISTED:
        return False
    import torchvision

    return model in torchvision.models.list_models(module=torchvision.models)
