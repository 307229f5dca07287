"""Measuring models: running a ``model.onnx``, metrics by scikit-learn's definitions, paired
comparison; no torch."""

from podium.scoring.comparison import Comparison, compare
from podium.scoring.families import FunctionMetric, Metric, class_indices
from podium.scoring.metrics import METRICS, choose_metric, find_metric
from podium.scoring.model import OnnxModel
from podium.scoring.permutation import paired_permutation
from podium.scoring.scores import Scores, score_predictions

__all__ = [
    "METRICS",
    "Comparison",
    "FunctionMetric",
    "Metric",
    "OnnxModel",
    "Scores",
    "choose_metric",
    "class_indices",
    "compare",
    "find_metric",
    "paired_permutation",
    "score_predictions",
]
