"""podium: tune, train and promote a model with Kubeflow Pipelines and Katib, on a cluster or on one machine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.api.space import Choice, Float, Int, log
    from podium.api.sweep import Sweep, open_sweep, sweep
    from podium.api.tune import tune

__version__ = "0.1.0"

__all__ = ["Choice", "Float", "Int", "Sweep", "log", "open_sweep", "sweep", "tune"]

_MODULES = {
    "Choice": "space", "Float": "space", "Int": "space", "log": "space",
    "Sweep": "sweep", "open_sweep": "sweep", "sweep": "sweep", "tune": "tune",
}  # fmt: skip
"""Module of podium.api by name: loaded on first use, so that ``import podium`` costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"podium.api.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
