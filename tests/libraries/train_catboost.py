"""CatBoost, as people use it; --results gets what the library's own objects hold."""

import argparse
import json
from pathlib import Path

import catboost
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--model", default="model.cbm")
parser.add_argument("--results", default="results.json")
args = parser.parse_args()
rng = np.random.default_rng(1)
x = rng.normal(size=(400, 4))
y = (x[:, 0] + rng.normal(size=400) > 0).astype(int)
model = catboost.CatBoostClassifier(
    iterations=5,
    eval_metric="AUC",
    learning_rate=args.rate,
    random_seed=1,
    allow_writing_files=False,
)
model.fit(x[:300], y[:300], eval_set=(x[300:], y[300:]))
model.save_model(args.model)
Path(args.results).write_text(json.dumps({"test": model.get_evals_result()["validation"]["AUC"]}))
