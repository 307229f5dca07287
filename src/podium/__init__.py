"""podium: tune, train and promote a model with Kubeflow Pipelines and Katib, on a cluster or on one machine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.api.datasets import Dataset, load_dataset, prepare_data
    from podium.api.predictions import open_model
    from podium.api.registry import registry
    from podium.api.runs import run, runs
    from podium.api.space import Choice, Float, Int, log
    from podium.api.sweep import Sweep, open_sweep, sweep
    from podium.api.training import train
    from podium.api.tune import tune

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "Dataset",
    "Float",
    "Int",
    "Sweep",
    "load_dataset",
    "log",
    "open_model",
    "open_sweep",
    "prepare_data",
    "registry",
    "run",
    "runs",
    "sweep",
    "train",
    "tune",
]

_MODULES = {
    "Choice": "space", "Dataset": "datasets", "Float": "space", "Int": "space", "Sweep": "sweep",
    "load_dataset": "datasets", "log": "space", "open_model": "predictions", "open_sweep": "sweep",
    "prepare_data": "datasets",
    "registry": "registry", "run": "runs", "runs": "runs", "sweep": "sweep", "train": "training", "tune": "tune",
}  # fmt: skip
"""Module of podium.api by name: loaded on first use, so that ``import podium`` costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"podium.api.{_MODULES[name]}"), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
