"""``--model trees``: gradient boosting by scikit-learn, for tables, arrays of numbers and pictures.

As many rounds as the loss on the validation part falls, a tree for each output in each. They are
written as ONNX by the operator TreeEnsemble, in double, so that every split decides as in
scikit-learn; its own converter (skl2onnx 1.20) knows no splits by sets of categories, and compares
float32 thresholds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.data.split import Split
from podium.trainer.config import TrainConfig
from podium.trainer.fitted import NO_ITEMS, Array, Fitted, classes_of, to_onnx
from podium.trainer.task import Task

LESS_OR_EQUAL, MEMBER = 0, 6
"""Modes of a node: left if the value is at most the threshold, or one of a set."""


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """A fitted tree."""

    output: int
    """Index of the output it adds to."""

    nodes: Array
    """Its nodes as scikit-learn has them, the root first."""

    sets: Array
    """uint32 [n, 8]: bits of the categories that go left, by the node's ``bitset_idx``."""


@dataclass(frozen=True, kw_only=True)
class _Numbering:
    """Numbers of the input's columns in the trees: categories first."""

    order: Array
    """int [columns]: index in the input."""

    categories: tuple[Array, ...]
    """For each category column the values of the input that the trees number 0, 1, …"""


def _write(trees: Sequence[_Tree], base: Array, columns: _Numbering, task: Task) -> bytes:
    """Return the model, which adds up trees.

    Args:
        base: float64 [outputs], which the trees add to.
    """
    from onnx import TensorProto, helper

    table = _Table(columns)
    for tree in trees:
        table.add(tree)
    nodes = [
        helper.make_node("Cast", [task.input], ["numbers"], to=TensorProto.DOUBLE),
        helper.make_node("Flatten", ["numbers"], ["rows"], axis=1),
        helper.make_node(
            "TreeEnsemble",
            ["rows"],
            ["added"],
            domain="ai.onnx.ml",
            n_targets=task.outputs,
            aggregate_function=1,
            post_transform=0,
            **table.attributes(),
        ),
        helper.make_node("Add", ["added", "base"], ["sums"]),
        helper.make_node("Cast", ["sums"], [task.output], to=TensorProto.FLOAT),
    ]
    constants = {"base": np.asarray(base, np.float64)}
    return to_onnx(task, nodes, constants, opset_ml=5)


class _Table:
    """Nodes and leaves of all trees, as TreeEnsemble lists them."""

    def __init__(self, columns: _Numbering) -> None:
        self.columns = columns
        self.roots: list[int] = []
        self.nodes: list[dict[str, Array]] = []
        self.members: list[Array] = []
        self.targets: list[Array] = []
        self.weights: list[Array] = []
        self.count = self.leaves = 0

    def add(self, tree: _Tree) -> None:
        nodes = tree.nodes
        if len(nodes) == 1:  # a leaf alone, but a tree begins with a node
            nodes = np.concatenate([nodes, nodes])
            nodes[0]["is_leaf"], nodes[0]["left"], nodes[0]["right"] = 0, 1, 1
        is_leaf = nodes["is_leaf"].astype(bool)
        inner, leaves = nodes[~is_leaf], nodes[is_leaf]
        number = np.where(is_leaf, np.cumsum(is_leaf) - 1, np.cumsum(~is_leaf) - 1)
        start = np.where(is_leaf, self.leaves, self.count)
        left, right = inner["left"].astype(int), inner["right"].astype(int)
        is_set = inner["is_categorical"].astype(bool)
        tracks = inner["missing_go_to_left"].astype(np.int64)
        # A set lists those that do not go where missing and unknown values go: these are in none.
        swapped = is_set & (tracks == 1)
        true, false = np.where(swapped, right, left), np.where(swapped, left, right)
        self.roots.append(self.count)
        self.nodes.append(
            {
                "featureids": self.columns.order[inner["feature_idx"].astype(int)],
                "modes": np.where(is_set, MEMBER, LESS_OR_EQUAL).astype(np.uint8),
                "splits": np.where(is_set, 0.0, inner["num_threshold"]),
                "missing_value_tracks_true": np.where(is_set, 0, tracks),
                "truenodeids": (start + number)[true],
                "falsenodeids": (start + number)[false],
                "trueleafs": is_leaf[true].astype(np.int64),
                "falseleafs": is_leaf[false].astype(np.int64),
            }
        )
        for node, is_other in zip(inner[is_set], swapped[is_set], strict=True):
            self.members.append(self._members(node, tree.sets, is_other))
        self.targets.append(np.full(len(leaves), tree.output))
        self.weights.append(leaves["value"])
        self.count, self.leaves = self.count + len(inner), self.leaves + len(leaves)

    def _members(self, node: Any, sets: Array, is_other: bool) -> Array:
        """Return the values of a node's set, and the NaN that ends it."""
        categories = self.columns.categories[int(node["feature_idx"])]
        bits = np.unpackbits(sets[int(node["bitset_idx"])].view(np.uint8), bitorder="little")
        goes_left = bits[: len(categories)].astype(bool)
        return np.append(categories[goes_left != is_other].astype(np.float64), np.nan)

    def attributes(self) -> dict[str, Any]:
        """Return the operator's attributes."""
        from onnx import numpy_helper

        together = {
            name: np.concatenate([each[name] for each in self.nodes]) for name in self.nodes[0]
        }
        tensors = {
            "nodes_modes": together.pop("modes"),
            "nodes_splits": together.pop("splits").astype(np.float64),
            "leaf_weights": np.concatenate(self.weights).astype(np.float64),
        }
        if self.members:
            tensors["membership_values"] = np.concatenate(self.members)
        return {
            "tree_roots": self.roots,
            "leaf_targetids": np.concatenate(self.targets).tolist(),
            **{f"nodes_{name}": values.tolist() for name, values in together.items()},
            **{name: numpy_helper.from_array(values, name) for name, values in tensors.items()},
        }


Part = tuple[Array, Array]
"""Rows [n, columns] and target."""

MOST_CATEGORIES = 254
"""Categories of a column that trees tell apart, the most frequent; the others count as missing."""


def _columns(learned: Task, table: Array) -> _Numbering:
    described = learned.info.columns if learned.info.meaning == "table" else ()
    is_category = [column.kind == "category" for column in described]
    categories = [at for at, yes in enumerate(is_category) if yes]
    width = int(np.prod(learned.info.shape))
    numbers = [at for at in range(width) if at not in set(categories)]
    return _Numbering(
        order=np.array([*categories, *numbers], np.int64),
        categories=tuple(_most_frequent(table[:, at]) for at in categories),
    )


def _most_frequent(codes: Array) -> Array:
    values, counts = np.unique(codes, return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
    return np.sort(values[kept])


def _rows(columns: _Numbering, table: Array) -> Array:
    """Return the input as the trees take it: float64 [n, columns], NaN for a category that they do
    not tell apart."""
    rows = table.reshape(len(table), -1)[:, columns.order].astype(np.float64)
    for at, categories in enumerate(columns.categories):
        place = np.searchsorted(categories, rows[:, at]).clip(max=len(categories) - 1)
        rows[:, at] = np.where(categories[place] == rows[:, at], place, np.nan)
    return rows


def fit(
    config: TrainConfig, learned: Task, train: Split, validation: Split, rounds: int = 0
) -> Fitted:
    """Grow trees.

    Args:
        rounds: So many are kept; 0: as many as the loss on the validation part falls.

    Raises:
        InvalidInput: The training part has one class alone.
    """
    columns = _columns(learned, train.inputs[learned.input])
    rows, others = (_rows(columns, each.inputs[learned.input]) for each in (train, validation))
    settings: dict[str, Any] = {
        "learning_rate": config.tree_lr,
        "max_iter": rounds or config.tree_rounds,
        "max_leaf_nodes": config.tree_leaves,
        "min_samples_leaf": config.tree_items,
        "max_features": config.tree_columns,
        "categorical_features": list(range(len(columns.categories))) or None,
        "early_stopping": True,
        "n_iter_no_change": rounds or config.patience or config.tree_rounds,
        "random_state": config.seed,
    }
    parts = (rows, train.target), (others, validation.target)
    if learned.kind == "regression":
        grown = _grow_for_numbers(settings, learned, *parts, rounds)
    else:
        settings["class_weight"] = "balanced" if config.balance else None
        grown = _grow_for_classes(settings, learned, classes_of(train, validation), *parts, rounds)
    trees, base, answers, rounds = grown
    onnx = _write(trees, base, columns, learned)
    return Fitted(onnx=onnx, validation=answers, facts={"rounds": rounds})


_Grown = tuple[Sequence[_Tree], Array, Array, int]
"""Trees, what they add to [outputs], their answers on the validation part [n, outputs], and rounds."""


def _grow_for_classes(
    settings: dict[str, Any],
    learned: Task,
    present: Array,
    train: Part,
    validation: Part,
    fixed: int,
) -> _Grown:
    from sklearn.ensemble import HistGradientBoostingClassifier

    judged = np.isin(validation[1], present)
    model = HistGradientBoostingClassifier(**settings)
    model.fit(*train, X_val=validation[0][judged], y_val=validation[1][judged])
    base = np.full(learned.outputs, NO_ITEMS)
    answers = np.tile(base, (len(validation[0]), 1))
    if len(present) == 2:  # one sum, the logit of the second class beside the first
        base[present[0]] = answers[:, present[0]] = 0.0
        present = present[1:]
    rounds, trees = _kept(model, present, fixed)
    base[present] = model._baseline_prediction.ravel()
    answers[:, present] = _stage(model.staged_decision_function(validation[0]), rounds)
    return trees, base, answers, rounds


def _grow_for_numbers(
    settings: dict[str, Any], learned: Task, train: Part, validation: Part, fixed: int
) -> _Grown:
    """Grow trees for each value of a regression by itself."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    trees: list[_Tree] = []
    base, answers, most = np.zeros(learned.outputs), [], 0
    targets = [part[1].reshape(len(part[1]), -1).astype(np.float64) for part in (train, validation)]
    for at in range(learned.outputs):
        model = HistGradientBoostingRegressor(**settings)
        model.fit(train[0], targets[0][:, at], X_val=validation[0], y_val=targets[1][:, at])
        rounds, grown = _kept(model, np.array([at]), fixed)
        trees += grown
        most = max(most, rounds)
        base[at] = float(model._baseline_prediction.item())
        answers.append(_stage(model.staged_predict(validation[0]), rounds)[:, 0])
    return trees, base, np.stack(answers, 1), most


def _kept(model: Any, outputs: Array, fixed: int) -> tuple[int, list[_Tree]]:
    """Return after how many rounds the loss on the validation part was least, and the trees of
    these rounds.

    Args:
        outputs: The outputs that the trees of a round add to.
        fixed: So many rounds instead, or all if there are fewer; 0: as said.
    """
    most = len(model.validation_score_) - 1
    rounds = min(fixed, most) if fixed else max(1, int(np.argmax(model.validation_score_)))
    trees = [
        _Tree(output=int(at), nodes=predictor.nodes, sets=predictor.raw_left_cat_bitsets)
        for grown in model._predictors[:rounds]
        for at, predictor in zip(outputs, grown, strict=True)
    ]
    return rounds, trees


def _stage(answers: Any, rounds: int) -> Array:
    """Return what a model answers after so many rounds, [n, outputs]."""
    for at, answer in enumerate(answers, 1):
        if at == rounds:
            return np.asarray(answer, np.float64).reshape(len(answer), -1)
    raise AssertionError(rounds)
