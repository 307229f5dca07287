"""What libraries really printed (printed/NAME-VERSION.txt, see record.py) against what their own objects held."""

import json
from pathlib import Path
from typing import Any

import pytest

from podium.doctor import Reader, examine_log
from podium.errors import InvalidInput
from podium.metrics import read_text
from podium.metrics.goals import Goal, less_is_better
from podium.metrics.libraries import BY_HAND, LIBRARIES, Library, library_of, printed_by

PRINTED = sorted(Path(__file__).parent.glob("printed/*.txt"))


def _read(file: Path) -> tuple[Library, list[str], dict[str, list[float]]]:
    library = library_of(file.name.partition("-")[0])
    return (
        library,
        file.read_bytes().decode().split("\n"),
        json.loads(file.with_suffix(".json").read_text()),
    )


@pytest.mark.parametrize("file", PRINTED, ids=lambda file: file.stem)
def test_the_values_read_are_those_the_library_has(file: Path) -> None:
    library, lines, results = _read(file)
    rounded = 0.005 if library.key == "sklearn" else 0.0  # its report has two digits
    for metric, held in results.items():
        read = [float(reading.value) for reading in read_text(lines, [metric], library.patterns)]
        assert read
        assert all(
            any(value == pytest.approx(one, rel=1e-3, abs=rounded) for one in held)
            for value in read
        )
        best = min if less_is_better(metric) else max
        assert best(read) == pytest.approx(best(held), rel=1e-3, abs=rounded)


@pytest.mark.parametrize("file", PRINTED, ids=lambda file: file.stem)
def test_the_library_is_recognized_by_its_lines(file: Path) -> None:
    library, lines, results = _read(file)
    assert {printed_by(line) for line in lines} - {None} == {library}
    report = examine_log(lines, Reader(objective="nothing_like_it", kind="maximize"), "log")
    (finding,) = [
        finding for finding in report.findings if finding.rule == "library-has-its-own-format"
    ]
    assert f"{library.name} prints" in finding.what
    assert all(metric in finding.what for metric in results)


@pytest.mark.parametrize(
    ("name", "wanted", "meant"),
    [
        ("huggingface", "accuracy", "eval_accuracy"),
        ("lightning-2", "accuracy", "val_acc"),
        ("lightning-tqdm", "acc", "val_acc"),
        ("keras", "accuracy", "val_accuracy"),
        ("keras", "loss", "val_loss"),
        ("xgboost", "logloss", "eval-logloss"),
        ("lightgbm", "auc", "valid_1's auc"),
        ("catboost", "auc", "max:test"),
        ("sklearn", "accuracy", "accuracy"),
    ],
)
def test_a_metric_of_validation_data_is_meant(name: str, wanted: str, meant: str) -> None:
    (file,) = [file for file in PRINTED if file.name.startswith(name)]
    library, lines, _ = _read(file)
    asked: list[tuple[str, str]] = []
    ask: Any = lambda key, metric: asked.append((key, metric)) or ""  # noqa: E731
    kind = "minimize" if less_is_better(wanted) else "maximize"
    examine_log(lines, Reader(objective=wanted, kind=kind, ask=ask), "log")
    assert asked == [(library.key, meant)]


def test_the_loss_of_training_is_not_taken_for_the_validations() -> None:
    (file,) = [file for file in PRINTED if file.name.startswith("huggingface")]
    library, lines, _ = _read(file)
    losses = {metric: {reading.value for reading in read_text(lines, [metric], library.patterns)}
              for metric in ("loss", "eval_loss", "train_loss")}  # fmt: skip
    assert all(losses.values())
    assert losses["loss"].isdisjoint(losses["eval_loss"])


@pytest.mark.parametrize("value", ["nan", "inf", "'nan'", "-inf"])
@pytest.mark.parametrize("line", ["{'eval_loss': VALUE, 'epoch': 1.0}", "[0]\teval-logloss:VALUE", "1/1 - val_loss: VALUE",
                                  "Epoch 1: 100%|█| 8/8 [val_loss=VALUE]", "[1]\tvalid_0's auc: VALUE"])  # fmt: skip
def test_what_is_not_a_number_is_no_metric(line: str, value: str) -> None:
    names = ["eval_loss", "eval-logloss", "val_loss", "valid_0's auc"]
    for library in LIBRARIES:
        readings = read_text([line.replace("VALUE", value)], names, library.patterns)
        assert [reading.value for reading in readings] == ["unavailable"]


def test_every_library_was_recorded() -> None:
    by_hand = {library.key for library in BY_HAND}
    assert {library.key for library in LIBRARIES} - by_hand == {
        file.name.partition("-")[0] for file in PRINTED
    }


def test_each_example_of_a_metric_is_one_of_validation_data() -> None:
    for library in LIBRARIES:
        assert not library.training.fullmatch(library.metric)


@pytest.mark.parametrize(
    ("line", "metric", "value"),
    [
        ("Accuracy: 0.93", "Accuracy", "0.93"),
        ("Epoch 3, Test accuracy: 0.9312", "Test accuracy", "0.9312"),
        ("epoch 3 | val_acc: 0.5 | val_loss: 1e-3", "val_loss", "1e-3"),
        ("Mean Squared Error = 12.5", "Mean Squared Error", "12.5"),
    ],
)
def test_the_words_before_a_colon_are_a_name(line: str, metric: str, value: str) -> None:
    readings = read_text([line], [metric], library_of("colon").patterns)
    assert [reading.value for reading in readings] == [value]


@pytest.mark.parametrize(
    ("prints", "line", "metric", "value"),
    [
        ("words", "Epoch 1/5 - loss 0.512 - acc 0.931", "acc", "0.931"),
        ("words", "Epoch 3: train_loss 0.3 | val_loss 0.25 | val_acc 92.5%", "val_acc", "92.5"),
        ("words", "Final test accuracy is 0.934", "accuracy", "0.934"),
        ("words", "err 1e-3 after 5 epochs", "err", "1e-3"),
        ("json", '{"epoch": 1, "val_acc": 0.91, "lr": "0.1"}', "val_acc", "0.91"),
        ("json", "INFO {'val/acc': -1.5e-05}", "val/acc", "-1.5e-05"),
        ("json", "{'val_acc': np.float64(0.93)}", "val_acc", "0.93"),
        ("words", "val_acc improved to 92.5 %", "val_acc", "92.5"),
        ("words", "loss tensor(0.25)", "loss", "0.25"),
        ("colon", "val_loss: tensor(0.25)", "val_loss", "0.25"),
    ],
)
def test_prose_and_dicts_are_read(prints: str, line: str, metric: str, value: str) -> None:
    readings = read_text([line], [metric], library_of(prints).patterns)
    assert [reading.value for reading in readings] == [value]


@pytest.mark.parametrize(
    ("prints", "lines", "metric", "values"),
    [
        (  # examples/imagenet of PyTorch
            "words",
            "Test: [ 1/20]\tTime  0.123 ( 0.140)\tLoss 1.2e+00 (1.3e+00)\tAcc@1  97.20 ( 71.40)\n"
            " *   Acc@1 72.400 Acc@5 90.100",
            "Acc@1",
            ["72.400"],
        ),
        (  # references/classification of torchvision
            "words",
            "Test:   [ 0/10]  eta: 0:00:01  loss: 1.2 (1.2)  acc1: 98.0 (98.0)  time: 0.1  max mem: 100\r"
            "Test:   [ 9/10]  eta: 0:00:00  loss: 1.2 (1.2)  acc1: 40.0 (60.5)  time: 0.1  max mem: 100\n"
            "Test:  Acc@1 60.500 acc1 60.500",
            "acc1",
            ["60.500"],
        ),
        (  # timm
            "colon",
            "Train: 0 [  50/100 ( 51%)]  Loss: 2 (2.1)  Time: 0.1s, 30.1/s  (0.1s, 30.2/s)  Data: 0.1 (0.1)\n"
            "Test: [  10/20]  Time: 0.123 (0.140)  Loss:   0.5 ( 0.6)  Acc@1:  76.0 ( 72.0)\n"
            "Loss: 0.7",
            "Loss",
            ["0.7"],
        ),
        ("colon", "Epoch [1/9] loss: 0.5 acc: 0.9\rEpoch [2/9] acc: 0.8", "acc", ["0.9", "0.8"]),
        ("words", "Fold [1/5] acc: 0.93 (0.02)", "acc", ["0.93"]),
        ("words", "Fold [1/5] acc: 0.93 (0.02) f1: 0.9 (0.03)", "f1", ["0.9"]),
        ("words", "Epoch [3/90] val_loss 0.52 (0.50) val_acc 0.91 (0.92)", "val_acc", ["0.91"]),
        ("colon", "Epoch: [3/90] val_loss: 0.52 (0.50) val_acc: 0.91 (0.92)", "val_acc", ["0.91"]),
        ("colon", "[12/31 10:00:01] acc: 0.9 (0.8) loss: 0.1 (0.2)", "loss", ["0.1"]),
        ("words", "Epoch [1/9], step [ 9/20] loss 0.5 (0.6) acc 0.9 (0.8)", "acc", ["unavailable"]),
        ("colon", "Epoch [1/9] Step [9/20] loss: 1 (2) acc: 0.9 (0.8)", "acc", ["unavailable"]),
    ],
)
def test_running_means_of_batches_are_not_read(
    prints: str, lines: str, metric: str, values: list[str]
) -> None:
    readings = read_text(lines.split("\n"), [metric], library_of(prints).patterns)
    assert [reading.value for reading in readings] == values


@pytest.mark.parametrize(
    ("name", "is_read"),
    [("val/acc", True), ("valid_0's auc", True), ("val.acc", False), ("1/acc", False)],
)
def test_a_refused_objective_names_what_reads_it(name: str, is_read: bool) -> None:
    with pytest.raises(InvalidInput, match="an objective is the name of a metric") as refused:
        Goal.read(name)
    line = f"{name}: 0.9"
    assert ("--prints colon" in str(refused.value.hint)) is is_read
    assert (read_text([line], [name], library_of("colon").patterns)[0].value == "0.9") is is_read
