"""LightGBM, as people use it; --results gets what the library's own objects hold."""

import argparse
import json
from pathlib import Path

import lightgbm
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--model", default="model.txt")
parser.add_argument("--results", default="results.json")
args = parser.parse_args()
rng = np.random.default_rng(1)
x = rng.normal(size=(400, 4))
y = (x[:, 0] + rng.normal(size=400) > 0).astype(int)
train = lightgbm.Dataset(x[:300], y[:300])
validation = lightgbm.Dataset(x[300:], y[300:], reference=train)
results: dict = {}
booster = lightgbm.train(
    {
        "objective": "binary",
        "metric": ["auc", "binary_logloss"],
        "learning_rate": args.learning_rate,
    },
    train,
    6,
    valid_sets=[train, validation],
    callbacks=[
        lightgbm.log_evaluation(1),
        lightgbm.record_evaluation(results),
        lightgbm.early_stopping(5),
    ],
)
booster.save_model(args.model)
Path(args.results).write_text(json.dumps({"valid_1's auc": results["valid_1"]["auc"]}))
