"""XGBoost, as people use it; --results gets what the library's own objects hold."""

import argparse
import json
from pathlib import Path

import numpy as np
import xgboost

parser = argparse.ArgumentParser()
parser.add_argument("--eta", type=float, default=0.3)
parser.add_argument("--model", default="model.ubj")
parser.add_argument("--results", default="results.json")
args = parser.parse_args()
rng = np.random.default_rng(1)
x = rng.normal(size=(400, 4))
y = (x[:, 0] + rng.normal(size=400) > 0).astype(int)
train, validation = xgboost.DMatrix(x[:300], y[:300]), xgboost.DMatrix(x[300:], y[300:])
results: dict = {}
booster = xgboost.train(
    {
        "objective": "binary:logistic",
        "eval_metric": ["auc", "logloss"],
        "eta": args.eta,
        "max_depth": 2,
    },
    train,
    5,
    evals=[(train, "train"), (validation, "eval")],
    evals_result=results,
)
booster.save_model(args.model)
Path(args.results).write_text(json.dumps({"eval-logloss": results["eval"]["logloss"]}))
