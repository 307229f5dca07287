"""A greedy ensemble of a sweep's trials: one model.onnx, the weighted mean of what its members
predict.

The weights are chosen on the validation part, whose predictions the trials left: the best trial
first, then again and again the one that lowers the loss most, the same one more than once if it
does (Caruana, Niculescu-Mizil, Crew and Ksikes 2004).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.data.seen import SEEN
from podium.data.validated import Validated
from podium.display.text import plural
from podium.errors import PodiumError
from podium.files.onnx_files import LARGEST, read_model
from podium.prediction.command import ONNX
from podium.prediction.directory import ModelDirectory
from podium.storage import connect
from podium.training.base import say
from podium.training.origin import Origin
from podium.training.trained import FILE as METRICS, TrainedMetrics

if TYPE_CHECKING:
    from onnx import ModelProto

    from podium.data.schema import DatasetInfo
    from podium.training.handover import TrialTable

Array = NDArray[Any]

MOST_TRIALS, ROUNDS = 50, 30
"""Trials that are looked at, the best first, and how often one is added."""

OUTPUT = "probabilities"
LEAST = 1e-15
"""Least probability of a true class."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Member:
    name: str
    directory: ModelDirectory
    predictions: Array
    """float64 [n, classes] or [n, values]: what it predicts of the validation part."""

    validated: Validated
    """What it left of that."""


def build(table: "TrialTable", info: "DatasetInfo", url: str, run_id: str) -> str:
    """Write the ensemble of a sweep's trials as a model directory, and return its URI; empty if
    nothing is better than the best trial, or nothing can be put together, which is said.

    Args:
        info: The dataset's.
        url: URI of the directory to write.
        run_id: The run.
    """
    if table.constraints or table.judged:
        say("no ensemble: what else the trials are judged by is not known of several together")
        return ""
    members, target = _members(table)
    if len(members) < 2:
        say(f"no ensemble: {plural(len(members), 'trial')} left a model.onnx and its predictions")
        return ""
    shares = _choose([each.predictions for each in members], target)
    chosen = {members[at]: share for at, share in shares.items()}
    names = ", ".join(f"{share:.2g} {each.name}" for each, share in chosen.items())
    if len(chosen) < 2:
        say(f"no ensemble: none of {len(members)} trials makes {members[0].name} better")
        return ""
    try:
        model = _merged([(_model(each), share) for each, share in chosen.items()], info)
    except (PodiumError, ValueError) as error:
        say(f"no ensemble: {error}")
        return ""
    _write(url, model, chosen, target, table, run_id)
    say(f"ensemble of {len(chosen)} trials: {names}")
    return url


def _members(table: "TrialTable") -> tuple[list[_Member], Array]:
    """Return the trials that left a graph and probabilities or numbers, and the target; those that
    predict other items than the best are left out."""
    members = list[_Member]()
    target: Array = np.zeros(0)
    for row in table.trials[:MOST_TRIALS]:
        if row.model and row.value is not None:
            directory = ModelDirectory(row.model)
            found = Validated.read(connect(row.model))
            if found is None or not _can_be_averaged(found):
                continue
            if not members:
                target = found.target
            same = found.target.shape == target.shape and bool((found.target == target).all())
            if same and ONNX in directory.files:
                predictions = found.predictions.reshape(len(target), -1).astype(np.float64)
                members.append(
                    _Member(
                        name=row.name,
                        directory=directory,
                        predictions=predictions,
                        validated=found,
                    )
                )
    return members, target


def _can_be_averaged(found: Validated) -> bool:
    predictions, target = found.predictions, found.target
    if predictions.dtype.kind != "f" or not np.isfinite(predictions).all():
        return False
    return target.dtype.kind not in "iu" or (
        predictions.ndim == 2 and int(target.max()) < predictions.shape[1]
    )


def _choose(predictions: Sequence[Array], target: Array) -> dict[int, float]:
    """Return the share of each chosen member by its index.

    Args:
        predictions: Of each, the best first: probabilities [n, classes], or numbers [n, values].
        target: Class indices [n], or numbers [n] or [n, values].
    """
    is_class = target.dtype.kind in "iu"
    best, total = [0], predictions[0].copy()
    least = _loss(total, target, is_class)
    for _ in range(ROUNDS):
        losses = [_loss((total + each) / (len(best) + 1), target, is_class) for each in predictions]
        at = int(np.argmin(losses))
        if losses[at] >= least:
            break
        least = losses[at]
        best.append(at)
        total += predictions[at]
    return {at: count / len(best) for at, count in sorted(Counter(best).items())}


def _loss(predicted: Array, target: Array, is_class: bool) -> float:
    if is_class:
        true = predicted[np.arange(len(target)), target]
        return -float(np.log(np.maximum(true, LEAST)).mean())
    values = target.reshape(len(target), -1)
    spread = values.var(0)
    return float((np.square(predicted - values).mean(0) / np.where(spread > 0, spread, 1)).mean())


def _model(member: _Member) -> "ModelProto":
    from onnx import ModelProto

    content = connect(member.directory.uri).get(ONNX)
    return ModelProto.FromString(read_model(content, f"{member.directory.uri}/{ONNX}"))


def _merged(models: "Sequence[tuple[ModelProto, float]]", info: "DatasetInfo") -> bytes:
    """Return the weighted mean of models as one graph: of probabilities, or of numbers.

    Raises:
        ValueError: They cannot be put together.
    """
    from onnx import TensorProto, compose, helper, numpy_helper

    inputs: dict[str, Any] = {}
    nodes, constants, means = list[Any](), list[Any](), list[str]()
    domains: dict[str, int] = {}
    for number, (model, share) in enumerate(models):
        if model.functions:
            raise ValueError("a model.onnx with functions of its own is not merged")
        for opset in model.opset_import:
            if domains.setdefault(opset.domain, opset.version) != opset.version:
                earlier = domains[opset.domain]
                raise ValueError(
                    f"models of opset {earlier} and {opset.version} are not put into one graph"
                )
        output = _output(model, is_class=bool(info.classes))
        prefix = f"m{number}/"
        own = compose.add_prefix(model, prefix).graph
        held = {tensor.name for tensor in own.initializer}
        for value in own.input:
            if value.name not in held:
                plain = value.name.removeprefix(prefix)
                inputs.setdefault(plain, value.type)
                if inputs[plain] != value.type:
                    raise ValueError(f"two members take {plain} of different types")
                nodes.append(helper.make_node("Identity", [plain], [value.name]))
        nodes += own.node
        constants += own.initializer
        answer = prefix + output
        if info.classes and output != OUTPUT:
            nodes.append(helper.make_node("Softmax", [answer], [f"{prefix}shares"], axis=1))
            answer = f"{prefix}shares"
        constants.append(numpy_helper.from_array(np.array(share, np.float32), f"{prefix}share"))
        nodes.append(helper.make_node("Cast", [answer], [f"{prefix}float"], to=TensorProto.FLOAT))
        nodes.append(
            helper.make_node("Mul", [f"{prefix}float", f"{prefix}share"], [f"{prefix}part"])
        )
        means.append(f"{prefix}part")
    name = OUTPUT if info.classes else "values"
    nodes.append(helper.make_node("Sum", means, [name]))
    width = len(info.classes) or "k"
    body = helper.make_graph(
        nodes,
        "podium",
        [helper.make_value_info(each, kind) for each, kind in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])],
        constants,
    )
    versions = [helper.make_opsetid(domain, number) for domain, number in domains.items()]
    ir = max(model.ir_version for model, _ in models)
    whole = helper.make_model(body, opset_imports=versions, ir_version=ir, producer_name="podium")
    if whole.ByteSize() > LARGEST:
        raise ValueError(f"together they are larger than {LARGEST:,} bytes")
    return bytes(whole.SerializeToString())


def _output(model: "ModelProto", *, is_class: bool) -> str:
    """Return the output that holds the predictions, as podium.scoring.OnnxModel finds it."""
    from onnx import TensorProto

    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
    outputs = model.graph.output
    names = [each.name for each in outputs if each.type.tensor_type.elem_type in kinds]
    candidates = [name for name in (OUTPUT, "logits") if name in names] if is_class else names
    if not candidates:
        returned = ", ".join(each.name for each in outputs)
        wanted = f"neither {OUTPUT} nor logits" if is_class else "none of them of floats"
        raise ValueError(f"a model returns {returned}, {wanted}")
    return candidates[0]


def _write(
    url: str,
    model: bytes,
    chosen: Mapping[_Member, float],
    target: Array,
    table: "TrialTable",
    run_id: str,
) -> None:
    directory = ModelDirectory(url)
    directory.put(ONNX, model)
    seen = [each.directory.seen for each in chosen]
    seen_items = [items for items in seen if items is not None]
    if seen_items:
        everything = seen_items[0]
        for items in seen_items[1:]:
            everything = everything.plus(items)
        directory.put(SEEN, everything.to_bytes())
    trained = [TrainedMetrics.read(each.directory) for each in chosen]
    predicted = sum(each.predictions * share for each, share in chosen.items())
    loss = _loss(np.asarray(predicted), target, target.dtype.kind in "iu")
    record: dict[str, Any] = {"epoch": 1, "loss": loss}
    first = next(iter(chosen)).validated
    if first.folds is not None:  # it is judged by the folds of its members
        replace(first, predictions=np.asarray(predicted)).write(connect(url))
        record["folds"] = [{"loss": loss}] * len(np.unique(first.folds))
    unknown = next((each.unknown_weights for each in trained if each.unknown_weights), None)
    facts = {"dataset": trained[0].dataset, "unknown_weights": unknown}
    Origin(
        kind="ensemble",
        name=url.rstrip("/").rpartition("/")[2],
        run_id=run_id,
        uri=url,
        hyperparameters={each.name: round(share, 6) for each, share in chosen.items()},
        experiment=table.experiment,
    ).write(directory)
    epochs = [{"epoch": 1, "loss": loss}]
    metrics = {**record, "epochs": epochs, **{name: text for name, text in facts.items() if text}}
    directory.put(METRICS, (json.dumps(metrics, indent=1) + "\n").encode())
