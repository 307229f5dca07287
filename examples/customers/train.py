"""Train trees of scikit-learn on a table, whatever its columns and its target, and write them as ONNX.

podium tells it where the data is and where the model goes (--data, --output); the other flags are its hyperparameters.
"""

import argparse

import numpy as np
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from podium.trainer import kit


def build(args: argparse.Namespace, columns: tuple, regression: bool) -> Pipeline:
    """Encode categories as columns of zeros and ones, then grow trees."""
    categories = [at for at, column in enumerate(columns) if column.kind == "category"]
    known = [list(map(float, range(len(columns[at].categories)))) for at in categories]
    encode = ColumnTransformer(
        [("categories", OneHotEncoder(categories=known, sparse_output=False), categories)],
        remainder="passthrough",
    )
    options = {"n_estimators": args.trees, "max_depth": args.depth, "random_state": 1}
    if args.model == "boosting":
        options |= {"learning_rate": args.learning_rate, "subsample": 0.8}
        return make_pipeline(
            encode,
            (GradientBoostingRegressor if regression else GradientBoostingClassifier)(**options),
        )
    return make_pipeline(
        encode, (RandomForestRegressor if regression else RandomForestClassifier)(**options)
    )


def measure(
    model: Pipeline, inputs: np.ndarray, target: np.ndarray, regression: bool
) -> dict[str, float]:
    """Return metrics by scikit-learn."""
    if regression:
        values = model.predict(inputs)
        return {"rmse": root_mean_squared_error(target, values), "r2": r2_score(target, values)}
    shares = model.predict_proba(inputs)
    accuracy = accuracy_score(target, shares.argmax(1))
    auc = roc_auc_score(target, shares[:, 1] if shares.shape[1] == 2 else shares, multi_class="ovr")
    return {"roc_auc": auc, "accuracy": accuracy, "log_loss": log_loss(target, shares)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="read by podium.trainer.kit")
    parser.add_argument("--output", help="read by podium.trainer.kit")
    parser.add_argument("--model", choices=["boosting", "forest"], default="boosting")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.1, help="of boosting")
    args = parser.parse_args()

    info, train, validation = kit.dataset(), kit.load("train"), kit.load("validation")
    regression = info.kind == "regression"
    model = build(args, info.inputs["table"].columns, regression).fit(
        train.inputs["table"], train.target
    )
    kit.report(**measure(model, validation.inputs["table"], validation.target, regression))
    types = [("table", FloatTensorType([None, train.inputs["table"].shape[1]]))]
    kit.save_onnx(
        to_onnx(model, initial_types=types, options=None if regression else {"zipmap": False})
    )


if __name__ == "__main__":
    main()
