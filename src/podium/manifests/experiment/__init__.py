"""Katib Experiments and their Trials: read, checked, changed and rendered."""

from podium.manifests.experiment.build import Changes, customize
from podium.manifests.experiment.experiment import Experiment, Objective
from podium.manifests.experiment.rules import check, examine
from podium.manifests.experiment.source import bundled, load, parse
from podium.manifests.experiment.trial import (
    Trial,
    best_trial,
    fronts_of,
    leaderboard,
    news,
    no_best,
    pareto_front,
    why_none,
)

__all__ = [
    "Changes",
    "Experiment",
    "Objective",
    "Trial",
    "best_trial",
    "bundled",
    "check",
    "customize",
    "examine",
    "fronts_of",
    "leaderboard",
    "load",
    "news",
    "no_best",
    "pareto_front",
    "parse",
    "why_none",
]
