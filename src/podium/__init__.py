"""podium: tune, train and promote a model with Kubeflow Pipelines and Katib, on a cluster or on one
machine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.api.deploy import deploy
    from podium.api.jobs import Job, jobs, open_job, run_job
    from podium.api.prepare import prepare_data
    from podium.api.space import Choice, Float, Int
    from podium.api.sweep import Sweep, open_sweep, sweep
    from podium.api.training import train
    from podium.api.tune import tune
    from podium.code.report import report
    from podium.data.dataset import Dataset, load_dataset
    from podium.models.registry import open_registry as registry
    from podium.prediction import open_model
    from podium.runner.run import run
    from podium.runner.runs import runs

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "Dataset",
    "Float",
    "Int",
    "Job",
    "Sweep",
    "deploy",
    "jobs",
    "load_dataset",
    "open_job",
    "open_model",
    "open_sweep",
    "prepare_data",
    "registry",
    "report",
    "run",
    "run_job",
    "runs",
    "sweep",
    "train",
    "tune",
]

_HOMES = {
    "Choice": "api.space", "Dataset": "data.dataset", "Float": "api.space", "Int": "api.space", "Sweep": "api.sweep",
    "load_dataset": "data.dataset", "open_model": "prediction", "open_sweep": "api.sweep",
    "deploy": "api.deploy", "Job": "api.jobs", "jobs": "api.jobs", "open_job": "api.jobs", "run_job": "api.jobs",
    "prepare_data": "api.prepare", "registry": "models", "report": "code.report",
    "run": "runner.run", "runs": "runner.runs", "sweep": "api.sweep", "train": "api.training", "tune": "api.tune",
}  # fmt: skip
"""Module below podium of each name: loaded on first use, so that ``import podium`` costs
nothing."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        is_log = name in ("log", "log_metric", "log_metrics")
        reports = "; metrics are reported with podium.report(loss=0.3)" if is_log else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reports}")
    within = import_module(f"podium.{_HOMES[name]}")
    return globals().setdefault(
        name, within.open_registry if name == "registry" else getattr(within, name)
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
