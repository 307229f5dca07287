"""The configuration of a training: one dataclass, from which the flags of ``python -m
podium.trainer`` are derived."""

import argparse
import ast
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from typing import Any, NoReturn

from podium.errors import InvalidInput, require, suggestion
from podium.trainer import networks

CHOICES = {
    "optimizer": ("adadelta", "sgd", "adamw"),
    "schedule": ("step", "onecycle"),
    "keep": ("best", "last"),
    "metric": ("accuracy", "balanced_accuracy", "f1_macro"),
    "precision": ("auto", "fp32", "bf16"),
    "backend": ("gloo", "nccl", "mpi"),
    "track": ("wandb", "mlflow", "tensorboard"),
    "augment": ("crop", "color", "trivial", "rand"),
}
"""Words that a flag takes; track and augment take several."""

TAKEN_BY = {
    "width": (1.0, ("fast", "best", "mlp")),
    "depth": (2, ("mlp",)),
    "dropout": (0.0, ("tutorial", "fast", "best", "mlp")),
}
"""Flags of some networks: the value that all others have, and which take another."""

_USUAL_BATCH, _MOST_STEPS = 64, 4096
"""Items of a step, and steps of an epoch from which a step takes more, where --batch-size is 0."""

_LIMITS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str, str], ...] = (
    (
        ("epochs", "log_interval", "depth", "tree_rounds", "tree_items"),
        lambda value: value >= 1,
        ">= 1",
        "for example 1",
    ),
    (("tree_leaves",), lambda value: value >= 2, ">= 2", "for example 31"),
    (("tree_columns",), lambda value: 0 < value <= 1, "in (0, 1]", "for example 0.5"),
    (("lr", "gamma", "width", "tree_lr"), lambda value: value > 0, "> 0", ""),
    (
        ("momentum", "label_smoothing", "dropout"),
        lambda value: 0 <= value < 1,
        "in [0, 1)",
        "for example 0.1",
    ),
    (
        (
            "batch_size",
            "weight_decay",
            "seed",
            "threads",
            "shift",
            "rotate",
            "erase",
            "average",
            "patience",
        ),
        lambda value: value >= 0,
        ">= 0",
        "for example 0",
    ),
    (("folds",), lambda value: value == 0 or value >= 2, ">= 2, or 0", "for example 5"),
    (("seed",), lambda value: value < 2**32, "< 2**32", "for example 1"),
)
"""Flags that are numbers, what holds for them in code and in words, and a hint; where it is empty
the default is one."""

# These change neither weights nor metrics, so a checkpoint may be resumed with other values of
# them.
FREE = frozenset(
    {
        "data",
        "output",
        "inherit",  # read only where there is no checkpoint
        "dataset",
        "log_interval",
        "backend",
        "threads",
        "track",
        "track_dir",
    }
)


def check_library(model: str, meaning: str = "image") -> None:
    """Refuse to train where the library is not installed that a model needs: the rest of podium,
    and trainers of one's own, do without it.

    Args:
        meaning: Of the input: image, table or array.

    Raises:
        InvalidInput: It is not.
    """
    is_fitted = networks.is_fitted(model, meaning)
    name, module = ("scikit-learn", "sklearn") if is_fitted else ("PyTorch", "torch")
    if find_spec(module) is None:
        install = "scikit-learn" if is_fitted else "torch torchvision"
        hint = (
            f"pip install {install}; or train with a command of your own (podium init --from blank)"
        )
        if not is_fitted and meaning == "table":
            hint = (
                f"pip install {install}; network=trees and network=linear need scikit-learn alone"
            )
        raise InvalidInput(
            f"podium's trainer needs {name} for {model}, and it is not installed", hint
        )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that determines a training; defaults are those of the tutorial."""

    data: str = ""
    """Dataset to train on: a directory or URI that `podium data prepare` wrote."""

    output: str = ""
    """Directory or URI for model, metrics and checkpoint; the same command resumes from it."""

    inherit: str = ""
    """Directory or URI with weights to start from, if it has any; the final weights are saved
    there: pbt."""

    dataset: str = ""
    """Name the dataset must have, for example mnist; any if empty."""

    model: str = "tutorial"
    """Network and recipe: tutorial, fast, best, mlp, linear (for tables too), or one of
    torchvision: resnet18; or trees, boosted trees of scikit-learn for tables."""

    weights: str = ""
    """File or URI with weights to start from: safetensors, or a state_dict of torch."""

    width: float = 1.0
    """Factor of the channels of fast and best and of the hidden units of mlp."""

    depth: int = 2
    """Hidden layers of mlp."""

    epochs: int = 5
    """Passes over the training part."""

    batch_size: int = 64
    """Items per step over all processes together, so that N processes take the same steps as one;
    all items where there are fewer. 0: 64, doubled until an epoch takes at most 4096 steps."""

    optimizer: str = "adadelta"
    """adadelta, sgd (with Nesterov momentum) or adamw."""

    lr: float = 1.0
    """Learning rate; its peak under the onecycle schedule."""

    schedule: str = "step"
    """step (lr times gamma after each epoch) or onecycle (up for a fifth of the steps, then down to
    zero, updated every step)."""

    gamma: float = 0.7
    """Factor of the step schedule."""

    momentum: float = 0.9
    """Momentum of sgd."""

    weight_decay: float = 0.0
    """Decay of the weights (not of biases and normalizations)."""

    label_smoothing: float = 0.0
    """Probability spread over the wrong classes; of no effect on a regression."""

    balance: bool = False
    """Let each class weigh the same in the training loss, however rare it is; of no effect on a
    regression."""

    dropout: float = 0.5
    """Dropout before the last layer (mlp: after hidden ones); half of it before the tutorial's
    first dense layer."""

    shift: int = 0
    """Shift each training image by up to this many pixels, differently every epoch."""

    rotate: float = 0.0
    """Rotate each training image by up to this many degrees, and scale it by up to a hundredth per
    degree, at most by half."""

    flip: bool = False
    """Mirror half of the training images, and answer with the mean for image and mirror image;
    wrong for digits."""

    erase: int = 0
    """Erase a square of this many pixels in each training image."""

    augment: str = ""
    """Transforms of torchvision, any of crop, color, trivial and rand with commas between them."""

    # About an epoch of MNIST: 0.1 points more after five epochs of the tutorial's recipe than 200,
    # which are enough where the learning rate ends at zero.
    average: int = 900
    """Evaluate and keep weights averaged over about this many of the last steps; 0: the last
    weights alone."""

    # Where the learning rate ends at zero the last epoch is the best one; if a small validation
    # part prefers another, that is chance.
    keep: str = "best"
    """Keep the weights of the best epoch on the validation part (always with patience), or of the
    last one."""

    metric: str = "accuracy"
    """Which epoch is the best one; printed beside accuracy and loss. balanced_accuracy and f1_macro
    count each class alike, however rare it is; of no effect on a regression."""

    patience: int = 0
    """Stop after this many epochs (trees: rounds) without a better one on the validation part; 0:
    never."""

    folds: int = 0
    """Cross-validate: the metrics are means over so many folds of train and validation, and the
    model is fitted to all of them; 0: the validation part alone."""

    tree_lr: float = 0.1
    """Learning rate of boosted trees; the flags of trees are of no effect on networks."""

    tree_rounds: int = 1000
    """Most rounds of boosting; as many are kept as the loss on the validation part falls."""

    tree_leaves: int = 31
    """Most leaves of a tree."""

    tree_items: int = 20
    """Least training items of a leaf."""

    tree_columns: float = 1.0
    """Share of the columns that a split chooses from."""

    no_cuda: bool = False
    """Use the CPU even if there is a GPU."""

    precision: str = "auto"
    """fp32, bf16 (mixed) or auto: bf16 where the CPU or GPU computes it in hardware."""

    threads: int = 0
    """CPU threads; 0: OMP_NUM_THREADS if set, else the cores divided by the processes here."""

    seed: int = 1
    """Determines initial weights, order of the items, augmentation and dropout."""

    log_interval: int = 10
    """Steps between two lines of progress."""

    backend: str = "gloo"
    """How processes communicate: gloo, nccl or mpi."""

    track: tuple[str, ...] = ()
    """Also report to wandb, mlflow or tensorboard (repeatable); offline, see
    podium.trainer.tracking."""

    track_dir: str = "tracking"
    """Directory that trackers write to."""

    def __post_init__(self) -> None:
        """Check every rule that needs no data and no hardware.

        Raises:
            InvalidInput: A rule is broken.
        """
        self._check_model()
        for name, choices in CHOICES.items():
            several = {"track": self.track, "augment": self.augmentations}
            for word in several.get(name, (getattr(self, name),)):
                if word not in choices:
                    raise InvalidInput(
                        f"--{name} takes {', '.join(choices)}, but not {word!r}",
                        f"--{name} {choices[0]}",
                    )
        for names, holds, rule, hint in _LIMITS:
            for name in names:
                value = getattr(self, name)
                require(
                    holds(value) and math.isfinite(value),
                    f"--{name.replace('_', '-')} {rule}",
                    hint or f"the default is {getattr(type(self), name)}",
                    **{name: value},
                )
        if self.folds and self.inherit:
            problem = "--folds trains from the start, but --inherit names weights to continue with"
            raise InvalidInput(problem, "leave one out")

    def _check_model(self) -> None:
        if self.model in networks.TOO_LARGE:
            raise InvalidInput(
                f"--model {self.model} has more than the 2 GB of weights that one ONNX file holds",
                "choose a smaller one",
            )
        if self.model == networks.TREES and (self.weights or self.inherit):
            name = "weights" if self.weights else "inherit"
            raise InvalidInput(
                f"--{name} is for networks: trees start from scratch", f"leave --{name} out"
            )
        if not networks.exists(self.model):
            models = (*networks.OWN, *networks.TORCHVISION)
            raise InvalidInput(
                f"--model {self.model} is not one of {', '.join(networks.OWN)} or a network of "
                "torchvision.models",
                suggestion(self.model, models),
            )
        for name, (fixed, takers) in TAKEN_BY.items():
            if self.model not in takers and getattr(self, name) != fixed:
                raise InvalidInput(
                    f"--{name} is for {', '.join(takers)}; {self.model} keeps its own",
                    f"leave --{name} out, or give it {fixed:g}",
                )

    @property
    def is_own(self) -> bool:
        """Whether the network is one of podium's, not of torchvision."""
        return self.model in networks.OWN

    @property
    def augmentations(self) -> tuple[str, ...]:
        """The words of --augment."""
        return tuple(word for word in self.augment.split(",") if word)

    def batch_of(self, items: int) -> int:
        """Return how many items a step takes of so many in all."""
        size = self.batch_size or _USUAL_BATCH
        while not self.batch_size and items > size * _MOST_STEPS:
            size *= 2
        return min(size, items)

    def shown(self, kind: str) -> tuple[str, ...]:
        """Return the metrics of a metric line about a dataset of a kind, in order."""
        names: tuple[str, ...] = ("rmse", "r2", "loss")
        if kind != "regression":
            names = tuple(dict.fromkeys((self.metric, "accuracy", "loss")))
        return names + (tuple(f"{name}_se" for name in names) if self.folds else ())

    @property
    def decisive(self) -> dict[str, Any]:
        """The fields that determine the resulting weights."""
        return {name: value for name, value in asdict(self).items() if name not in FREE}

    def fingerprint(self, digest: str) -> str:
        """Return a hash of everything two trainings must share to end with the same model.

        Args:
            digest: Of the dataset.
        """
        text = json.dumps({**self.decisive, "digest": digest}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def refuse(self, theirs: Mapping[str, Any], url: str) -> NoReturn:
        """Say how the training whose hyperparameters were found in an output differs from this one.

        Raises:
            InvalidInput: Always.
        """
        differing = {
            name: (theirs.get(name), value)
            for name, value in self.decisive.items()
            if theirs.get(name) != value
        }
        pairs = [f"{name} {old!r} -> {new!r}" for name, (old, new) in differing.items()]
        changes = ", ".join(pairs) or "the dataset's digest"
        hint = "choose another --output, or delete that one"
        if differing.keys() <= theirs.keys():
            hint += ", or repeat its flags to resume it"
        raise InvalidInput(f"--output {url} holds another training: {changes}", hint)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are InvalidInput like all others."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message, "see python -m podium.trainer --help")


def parse(argv: Sequence[str] | None = None) -> TrainConfig:
    """Read the flags.

    Args:
        argv: The arguments; those of the process if None.

    Raises:
        InvalidInput: An unknown flag, a value that is not a number, or a rule of TrainConfig
            broken.
    """
    words = sys.argv[1:] if argv is None else argv
    # The help texts are read from this file's source, which takes longer than everything else here.
    texts = _field_docs() if {"-h", "--help"}.intersection(words) else {}
    flags = vars(_parser(texts).parse_args(words))
    recipe = networks.recipe(flags.get("model", TrainConfig.model))
    flags["track"] = tuple(flags.get("track", ()))
    return TrainConfig(**{**recipe, **flags})


def _parser(texts: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m podium.trainer",
        description="Train a network on a prepared dataset.",
        epilog="example: python -m podium.trainer --data data/mnist --output model --epochs 1",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for item in fields(TrainConfig):
        flag, text = f"--{item.name.replace('_', '-')}", texts.get(item.name, "").replace("%", "%%")
        also = (
            ["--network"] if item.name == "model" else []
        )  # as the pipelines' parameter is called
        if item.type is bool:
            parser.add_argument(flag, nargs="?", const=True, type=_truth, metavar="true", help=text)
        elif item.name == "track":
            parser.add_argument(flag, action="append", metavar="X", help=text)
        else:
            default = item.default or "none"
            parser.add_argument(
                flag, *also, type=item.type, metavar="X", help=f"{text} (default: {default})"
            )
    return parser


def _truth(text: str) -> bool:
    values = {"true": True, "false": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"must be true or false, but got {text!r}")
    return values[text.lower()]


def _field_docs() -> dict[str, str]:
    """Return the docstring under each field: the flags' help."""
    body = ast.parse(inspect.getsource(TrainConfig)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for item, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and isinstance(text, ast.Expr)
        ):
            docs[item.target.id] = ast.literal_eval(text.value)
    return docs
