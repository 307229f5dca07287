"""Katib Experiments as plain dicts: load, customise, admit, render a trial's job, read the status."""

from podium.manifests.experiment.admission import admit, check_shape, review
from podium.manifests.experiment.build import customise
from podium.manifests.experiment.checks import check, examine
from podium.manifests.experiment.source import bundled, load, parse
from podium.manifests.experiment.status import (
    TrialRow,
    best_trial,
    leaderboard,
    news,
    objective_of,
    optimal_trial,
    trial_row,
)
from podium.manifests.experiment.template import render

__all__ = [
    "TrialRow",
    "admit",
    "best_trial",
    "bundled",
    "check",
    "check_shape",
    "customise",
    "examine",
    "leaderboard",
    "load",
    "news",
    "objective_of",
    "optimal_trial",
    "parse",
    "render",
    "review",
    "trial_row",
]
