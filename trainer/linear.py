"""``--model linear`` of tables, arrays and sentences: logistic or ridge regression by scikit-learn.

Numbers are standardized and each category has an input of its own, as for the networks; of
sentences see podium.trainer.words. The
penalty of the weights follows --weight-decay, by item: half of it times their squares beside the
mean loss.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.split import Split
from podium.trainer.config import TrainConfig
from podium.trainer.fitted import NO_ITEMS, Fitted, classes_of
from podium.trainer.task import Task
from podium.trainer.words import Words

Array = NDArray[Any]

ROUNDS = 1000
"""Most iterations of the solver."""

LEAST_PENALTY = 1e-9
"""In place of none: some solution is wanted where several are as good."""

OPSET, IR = 17, 8


class Inputs:
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
    kind = Words if learned.info.meaning == "tokens" else Inputs
    inputs = kind(learned, train.inputs[learned.input])
    rows, others = (inputs.rows(each.inputs[learned.input]) for each in (train, validation))
    penalty = max(config.weight_decay, LEAST_PENALTY) * rows.shape[0]
    if learned.kind == "regression":
        weights, bias = _for_numbers(learned, rows, train.target, penalty)
    else:
        present = classes_of(train, validation)
        weights, bias = _for_classes(config, learned, present, (rows, train.target), penalty)
    answers = others @ weights + bias
    return Fitted(onnx=_write(inputs, weights, bias, learned), validation=answers, facts={})


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


def _write(inputs: Inputs | Words, weights: Array, bias: Array, learned: Task) -> bytes:
    """Return the model, computed in double as it was fitted."""
    from onnx import TensorProto, helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(learned.info.dtype))
    items = helper.make_tensor_value_info(learned.input, kind, ["n", *learned.info.shape])
    outputs = helper.make_tensor_value_info(
        learned.output, TensorProto.FLOAT, ["n", learned.outputs]
    )
    nodes, values = inputs.graph()
    nodes += [
        helper.make_node("MatMul", ["features", "weights"], ["sums"]),
        helper.make_node("Add", ["sums", "bias"], ["shifted"]),
        helper.make_node("Cast", ["shifted"], [learned.output], to=TensorProto.FLOAT),
    ]
    values |= {"weights": weights, "bias": bias}
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    body = helper.make_graph(nodes, "podium", [items], [outputs], constants)
    versions = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(body, opset_imports=versions, ir_version=IR, producer_name="podium")
    return bytes(model.SerializeToString())
