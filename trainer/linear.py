"""``--model linear`` of tables, arrays and sentences: logistic or ridge regression by scikit-learn.

Numbers are standardized and each category has an input of its own, as for the networks. Sentences
become TF-IDF of up to three words in a row; where a script has no blanks
podium.data.preprocessing.text takes characters for words, so the terms are characters in a row
there. The penalty of the weights follows --weight-decay, by item: half of it times their squares
beside the mean loss.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from podium.data.split import Split
from podium.errors import InvalidInput
from podium.trainer.config import TrainConfig
from podium.trainer.fitted import NO_ITEMS, Array, Fitted, classes_of, to_onnx
from podium.trainer.task import Task

_MOST_TERMS = 20_000
"""Terms, the most frequent ones."""

LONGEST = 3
"""Words of a term."""

_SCALE = 10.0
"""Length of the vector of a sentence, with which the penalties that suit tables suit sentences."""

RESERVED = 2
"""The first indices of a vocabulary: padding and unknown words, which are no terms."""

_Term = tuple[int, ...]


def _terms(tokens: Array) -> Iterator[_Term]:
    indices = tokens.tolist()
    for size in range(1, LONGEST + 1):
        rows = (indices[at:] for at in range(size))
        yield from (term for term in zip(*rows, strict=False) if min(term) >= RESERVED)


class _Words:
    """The terms of sentences.

    Args:
        learned: What is learned from what.
        tokens: The training part, [n, length], which terms and their weights come from.

    Raises:
        InvalidInput: No term is in two sentences.
    """

    def __init__(self, learned: Task, tokens: Array) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.input, self.dtype = learned.input, learned.info.dtype
        self.vectorizer = TfidfVectorizer(
            analyzer=_terms, min_df=2, max_features=_MOST_TERMS, sublinear_tf=True
        )
        try:
            self.vectorizer.fit(tokens)
        except ValueError:
            raise InvalidInput(
                "no word is in two of the training sentences: there is nothing to learn from",
                "more sentences",
            ) from None

    def rows(self, tokens: Array) -> Any:
        """Return the sentences as the model takes them, a sparse matrix [n, terms]."""
        return self.vectorizer.transform(tokens) * _SCALE

    def graph(self) -> tuple[list[Any], dict[str, Array]]:
        """Return the nodes that make ``features`` of the input, and their constants."""
        from onnx import TensorProto, helper

        column = self.vectorizer.vocabulary_
        terms = sorted(column, key=lambda term: (len(term), term))
        ends = np.cumsum(np.bincount([len(term) for term in terms], minlength=LONGEST + 1))
        pool = [0, *np.cumsum([ends[1], 2 * (ends[2] - ends[1])]).tolist()]
        longest = len(terms[-1])
        node, double = helper.make_node, TensorProto.DOUBLE
        nodes = [
            node("Cast", [self.input], ["indices"], to=TensorProto.INT64),
            node(
                "TfIdfVectorizer",
                ["indices"],
                ["found"],
                mode="TF",
                min_gram_length=1,
                max_gram_length=longest,
                max_skip_count=0,
                ngram_counts=pool[:longest],
                ngram_indexes=[int(column[term]) for term in terms],
                pool_int64s=[int(index) for term in terms for index in term],
            ),
            node("Cast", ["found"], ["counts"], to=double),
            node("Greater", ["counts", "zero"], ["is_there"]),
            node("Max", ["counts", "one"], ["at_least_one"]),
            node("Log", ["at_least_one"], ["logs"]),
            node("Add", ["logs", "one"], ["frequencies"]),
            node("Where", ["is_there", "frequencies", "zero"], ["weighted"]),
            node("Mul", ["weighted", "idf"], ["vectors"]),
            node("ReduceL2", ["vectors"], ["lengths"], axes=[1], keepdims=1),
            node("Max", ["lengths", "least"], ["divisors"]),
            node("Div", ["vectors", "divisors"], ["units"]),
            node("Mul", ["units", "scale"], ["features"]),
        ]
        constants = {
            "zero": np.array(0.0),
            "one": np.array(1.0),
            "least": np.array(1e-300),
            "scale": np.array(_SCALE),
            "idf": self.vectorizer.idf_,
        }
        return nodes, constants


ROUNDS = 1000
"""Most iterations of the solver."""

_LEAST_PENALTY = 1e-9
"""In place of none: some solution is wanted where several are as good."""


class _Inputs:
    """The numbers and categories of the input.

    Args:
        learned: What is learned from what.
        table: The training part, which numbers are standardized by.
    """

    def __init__(self, learned: Task, table: Array) -> None:
        info, self.input = learned.info, learned.input
        columns = info.columns if info.meaning == "table" else ()
        is_category = [column.kind == "category" for column in columns]
        width = int(np.prod(info.shape))
        self.numbers = [at for at in range(width) if not (columns and is_category[at])]
        pairs = [
            (at, code)
            for at, column in enumerate(columns)
            for code in range(len(column.categories))
            if column.kind == "category"
        ]
        self.categories = [at for at, _ in pairs]
        self.codes = np.array([code for _, code in pairs], np.float64)
        numbers = table.reshape(len(table), -1)[:, self.numbers]
        self.mean, deviation = numbers.mean(0, np.float64), numbers.std(0, np.float64)
        self.scale = 1 / np.where(deviation > 0, deviation, 1.0)

    def rows(self, table: Array) -> Array:
        """Return the input as the model takes it, float64 [n, features]."""
        flat = table.reshape(len(table), -1).astype(np.float64)
        numbers = (flat[:, self.numbers] - self.mean) * self.scale
        return np.concatenate([numbers, flat[:, self.categories] == self.codes], 1)

    def graph(self) -> tuple[list[Any], dict[str, Array]]:
        """Return the nodes that make ``features`` of the input, and their constants."""
        from onnx import TensorProto, helper

        node, double = helper.make_node, TensorProto.DOUBLE
        nodes = [
            node("Cast", [self.input], ["doubles"], to=double),
            node("Flatten", ["doubles"], ["rows"], axis=1),
            node("Gather", ["rows", "numbers"], ["chosen"], axis=1),
            node("Sub", ["chosen", "mean"], ["centered"]),
            node("Mul", ["centered", "scale"], ["standardized"]),
            node("Gather", ["rows", "categories"], ["given"], axis=1),
            node("Equal", ["given", "codes"], ["same"]),
            node("Cast", ["same"], ["marks"], to=double),
            node("Concat", ["standardized", "marks"], ["features"], axis=1),
        ]
        constants = {
            "numbers": np.array(self.numbers, np.int64),
            "mean": self.mean,
            "scale": self.scale,
            "categories": np.array(self.categories, np.int64),
            "codes": self.codes,
        }
        return nodes, constants


def fit(config: TrainConfig, learned: Task, train: Split, validation: Split) -> Fitted:
    """Fit a linear model.

    Raises:
        InvalidInput: The training part has one class alone.
    """
    from onnx import TensorProto, helper

    kind = _Words if learned.info.meaning == "tokens" else _Inputs
    inputs = kind(learned, train.inputs[learned.input])
    rows, others = (inputs.rows(each.inputs[learned.input]) for each in (train, validation))
    penalty = max(config.weight_decay, _LEAST_PENALTY) * rows.shape[0]
    if learned.kind == "regression":
        weights, bias = _for_numbers(learned, rows, train.target, penalty)
    else:
        present = classes_of(train, validation)
        weights, bias = _for_classes(config, learned, present, (rows, train.target), penalty)
    answers = others @ weights + bias
    nodes, constants = inputs.graph()
    nodes += [
        helper.make_node("MatMul", ["features", "weights"], ["sums"]),
        helper.make_node("Add", ["sums", "bias"], ["shifted"]),
        helper.make_node("Cast", ["shifted"], [learned.output], to=TensorProto.FLOAT),
    ]
    constants |= {"weights": weights, "bias": bias}
    return Fitted(onnx=to_onnx(learned, nodes, constants), validation=answers, facts={})


def _for_classes(
    config: TrainConfig, learned: Task, present: Array, train: tuple[Array, Array], penalty: float
) -> tuple[Array, Array]:
    """Return weights [features, classes] and bias [classes]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    balance = "balanced" if config.balance else None
    model = LogisticRegression(C=1 / penalty, max_iter=ROUNDS, class_weight=balance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near enough, for a baseline
        model.fit(*train)
    weights = np.zeros((train[0].shape[1], learned.outputs))
    bias = np.full(learned.outputs, NO_ITEMS)
    if len(present) == 2:  # the logit of the second class beside the first
        bias[present[0]] = 0.0
        present = present[1:]
    weights[:, present], bias[present] = model.coef_.T, model.intercept_
    return weights, bias


def _for_numbers(learned: Task, rows: Array, target: Array, penalty: float) -> tuple[Array, Array]:
    """Return weights [features, values] and bias [values]."""
    from sklearn.linear_model import Ridge

    mean, deviation = np.array(learned.target_mean), np.array(learned.target_std)
    standardized = (target.reshape(len(target), -1) - mean) / deviation
    model = Ridge(alpha=penalty).fit(rows, standardized)
    weights = np.atleast_2d(model.coef_).T * deviation
    return weights, np.atleast_1d(model.intercept_) * deviation + mean
