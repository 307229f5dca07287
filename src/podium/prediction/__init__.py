"""Predicting with a model, from a directory or from the registry: arrays, rows of a DataFrame,
files, sentences."""

from podium.prediction.directory import ModelDirectory, open_model
from podium.prediction.predictions import Outcome, Predictions
from podium.prediction.predictor import MODELS, ONNX, PREPROCESSING, PROFILE, Predictor

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
