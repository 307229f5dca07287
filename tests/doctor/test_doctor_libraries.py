"""Lines of well-known libraries, and the metricsFormat that the doctor proposes for them."""

import json
import re

import pytest

from podium.doctor import Reader, examine_log
from podium.metrics import read_text
from podium.metrics.libraries import library_of, printed_by

PRINTED = {
    "XGBoost": (
        [
            "[0]\ttrain-logloss:0.48205\teval-logloss:0.48317",
            "[1]\ttrain-logloss:0.35953\teval-logloss:0.36051",
        ],
        "eval-logloss",
        "0.36051",
    ),
    "XGBoost with a threshold": (
        ["[0]\tvalidation_0-error@0.7:0.04221"],
        "validation_0-error@0.7",
        "0.04221",
    ),
    "LightGBM": (
        [
            "[LightGBM] [Info] Start training from score 0.061",
            "[1]\ttraining's auc: 0.83\tvalid_1's auc: 0.78",
        ],
        "valid_1's auc",
        "0.78",
    ),
    "LightGBM with its command line": (
        [
            "[LightGBM] [Info] Iteration:1, training auc : 0.8",
            "[LightGBM] [Info] Iteration:1, valid_1 auc : 0.756",
        ],
        "valid_1 auc",
        "0.756",
    ),
    "Hugging Face's Trainer": (
        [
            "{'loss': 0.6931, 'grad_norm': 2.5, 'learning_rate': 4.5e-05, 'epoch': 0.5}",
            "{'eval_loss': 0.4021, 'eval_accuracy': 0.8125, 'eval_runtime': 1.2, 'epoch': 1.0}",
        ],
        "eval_accuracy",
        "0.8125",
    ),
    "Hugging Face's Trainer with quoted numbers": (
        ["{'eval_loss': '0.4021', 'eval_accuracy': '0.8125', 'eval_runtime': '1.2', 'epoch': '1'}"],
        "eval_accuracy",
        "0.8125",
    ),
    "Keras": (
        [
            "1875/1875 ━━━━━━━━━━━━━ 3s 2ms/step - accuracy: 0.8789 - loss: 0.42 - val_accuracy: 0.96 - val_loss: 0.1"
        ],
        "val_accuracy",
        "0.96",
    ),
    "Keras before version 3": (
        [
            "60000/60000 [==============================] - 4s 70us/sample - loss: 0.2217 - accuracy: 0.9340"
        ],
        "accuracy",
        "0.9340",
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_known_librarys_lines_get_a_format_that_reads_them(name: str) -> None:
    lines, metric, value = PRINTED[name]
    report = examine_log(lines, Reader(objective=metric, kind="maximize"), "log")
    (finding,) = [
        finding for finding in report.findings if finding.rule == "library-has-its-own-format"
    ]
    assert finding.what.startswith(re.split(" with| before", name)[0])
    patterns = tuple(json.loads(str(finding.hint).partition("metricsFormat: ")[2]))
    assert read_text(lines, [metric], patterns)[-1].value == value
    again = examine_log(lines, Reader(objective=metric, kind="maximize", formats=patterns), "log")
    assert "fail" not in {finding.level for finding in again.findings}


def test_a_shorter_name_leads_to_the_librarys_own() -> None:
    report = examine_log(PRINTED["LightGBM"][0], Reader(objective="auc", kind="maximize"), "log")
    (finding,) = [
        finding for finding in report.findings if finding.rule == "library-has-its-own-format"
    ]
    assert 'objectiveMetricName: "valid_1\'s auc"' in str(finding.hint)


def test_a_log_that_reports_the_objective_needs_no_format() -> None:
    lines = [*PRINTED["XGBoost"][0], "accuracy=0.9"]
    report = examine_log(lines, Reader(objective="accuracy", kind="maximize"), "log")
    assert "library-has-its-own-format" not in {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    "line",
    [
        "accuracy: 0.9",
        "[1] loss:0.5",
        "{'accuracy': 0.9}",
        "2026-01-02T03:04:05Z",
        "GET /a - 200: 7",
        "",
    ],
)
def test_other_lines_are_nobodys(line: str) -> None:
    assert printed_by(line) is None


def test_a_bar_with_a_metric_of_batches_is_not_meant() -> None:
    bar = "Epoch 1: 100%|██| 10/10 [00:01<00:00,  9.9it/s, loss=0.5, acc=0.8, val_acc=0.6]"
    library = printed_by(bar)
    assert library
    assert library.meant("accuracy", ["acc", "val_acc", "loss"]) == "val_acc"
    assert library.meant("accuracy", ["val_acc", "acc"]) == "val_acc"
    assert library.meant("accuracy", ["acc", "val_loss"]) == "acc"
    assert library.meant("acc", ["acc", "val_acc"]) == "acc"


def test_the_best_guess_is_meant_rather_than_the_best_five() -> None:
    assert library_of("colon").meant("accuracy", ["Acc@1", "Acc@5"]) == "Acc@1"
    assert library_of("colon").meant("acc", ["val_acc1", "val_acc5", "acc1"]) == "val_acc1"
    assert library_of("json").meant("accuracy", ["top1", "top5"]) == "top1"


@pytest.mark.parametrize(
    ("key", "metric", "line", "stages"),
    [
        ("words", "loss", "epoch 3: train loss 0.5, val loss 0.4", "`train loss`, `val loss`"),
        ("words", "loss", "train loss: 0.5 - val loss: 0.4", "`train loss`, `val loss`"),
        ("words", "accuracy", "class 0 accuracy 0.5, class 1 accuracy 0.6", "`class 0 accuracy`"),
        ("colon", "accuracy", "Test accuracy: 0.5, accuracy: 0.6", ""),
        (
            "json",
            "loss",
            "{'train': {'loss': 0.5}, 'val': {'loss': 0.4}}",
            "`train loss`, `val loss`",
        ),
        ("json", "loss", "{'train': {'loss': null}, 'val': {'loss': 0.4}}", ""),
        ("words", "loss", "train 1 loss 0.5", ""),
    ],
)
def test_stages_that_a_format_merges_are_told(
    key: str, metric: str, line: str, stages: str
) -> None:
    reader = Reader(objective=metric, kind="minimize", formats=library_of(key).patterns)
    found = [each.what for each in examine_log([line, line], reader, "log").findings]
    assert any(stages in what and "are all read as" in what for what in found) is bool(stages)


@pytest.mark.parametrize(
    ("metric", "line", "asked"),
    [
        (
            "loss",
            "INFO epoch 0 - val_loss: 0.5 - val_acc: 90%",
            "--prints colon --objective val_loss",
        ),
        (
            "accuracy",
            "train_accuracy: 93.1, test_accuracy: 94.5",
            "colon --objective test_accuracy",
        ),
        ("accuracy", '{"step": 3, "val_accuracy": 0.9}', "json --objective val_accuracy"),
        ("accuracy", "test accuracy is 0.9", "--prints words --objective accuracy"),
        ("accuracy", "Test accuracy: 0.9", "--prints colon --objective 'Test accuracy'"),
        ("accuracy", "accuracy/top1: 70.5  accuracy/top5: 90.1", "--objective accuracy/top1"),
    ],
)
def test_a_print_of_ones_own_is_proposed_as_it_is(metric: str, line: str, asked: str) -> None:
    reader = Reader(objective=metric, kind="maximize")
    [found] = [
        each
        for each in examine_log([line], reader, "log").findings
        if each.rule == "printed-another-way"
    ]
    assert asked in (found.hint or "")
    assert "spec.metricsCollectorSpec" in (found.hint or "")


def test_a_metric_of_the_same_data_alone_is_not_meant() -> None:
    library = printed_by("10/10 ━━━━━━━ 1s 3ms/step - accuracy: 0.9 - loss: 0.3")
    assert library
    assert library.meant("val_acc", ["val_accuracy", "val_loss"]) == "val_accuracy"
    assert library.meant("val_accuracy", ["val_acc", "val_loss"]) == "val_acc"
    assert library.meant("test_loss", ["val_loss", "test_acc"]) == "val_loss"


@pytest.mark.parametrize(
    ("objective", "kind", "key", "metric", "asked"),
    [
        ("test", "minimize", "catboost", "test", "min:test"),
        ("auc", "maximize", "catboost", "test", "max:test"),
        ("gain", "minimize", "colon", "Test gain", "min:Test gain"),
        ("loss", "minimize", "keras", "val_loss", "val_loss"),
        ("loss", "minimize", "keras", "val_accuracy", "val_accuracy"),
    ],
)
def test_a_proposed_metric_keeps_the_direction(
    objective: str, kind: str, key: str, metric: str, asked: str
) -> None:
    reader = Reader(objective=objective, kind=kind, ask="{} {}".format)
    assert reader.how(library_of(key), metric) == f"{key} {asked}"
