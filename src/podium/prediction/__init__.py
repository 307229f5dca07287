"""Predicting with a model, from a directory or from the registry: arrays, rows of a DataFrame,
files, sentences."""

from podium.prediction.command import MODELS, ONNX
from podium.prediction.directory import ModelDirectory
from podium.prediction.predictions import Outcome, Predictions
from podium.prediction.predictor import PREPROCESSING, PROFILE, Predictor, open_model

__all__ = [
    "MODELS",
    "ONNX",
    "PREPROCESSING",
    "PROFILE",
    "ModelDirectory",
    "Outcome",
    "Predictions",
    "Predictor",
    "open_model",
]
