"""What the doctor finds in logs. Values in comments were observed on a real Katib 0.19."""

import io
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from podium.api.experiments import read
from podium.doctor import Finding, Reader, examine_log, guess_reader
from podium.doctor.report import show
from podium.doctor.trial import misread_trial, why_unavailable
from podium.errors import InvalidInput
from podium.manifests.experiment import Trial
from podium.manifests.fields import quantity
from podium.metrics import STRICT_FORMAT, number

TIMED = ("2026-01-02T03:04:05Z accuracy=0.5", "2026-01-02T03:04:06Z accuracy=0.75")


def examine(
    *lines: str, objective: str = "accuracy", kind: str = "maximize", **reader: object
) -> dict[str, Finding]:
    """Examine lines; findings by rule."""
    report = examine_log(lines, Reader(objective=objective, kind=kind, **reader), "log")  # type: ignore[arg-type]
    return {finding.rule: finding for finding in report.findings}


def test_a_good_log_shows_what_would_be_stored() -> None:
    report = examine_log(TIMED, Reader(objective="accuracy", kind="maximize"), "log")
    assert report.verdict == "pass"
    assert not report.findings
    (row,) = report.details["stored"]
    assert row == {
        "metric": "accuracy",
        "min": "0.5",
        "max": "0.75",
        "latest": "0.75",
        "strategy": "max",
        "value": 0.75,
    }
    assert [reading["line"] for reading in report.details["readings"]] == [1, 2]


def test_our_own_trainer_lines_have_no_findings() -> None:
    lines = [
        "Train Epoch: 1 [640/60000 (1%)]\ttrain_loss=2.2135",
        *(f"{line} loss=0.0500" for line in TIMED),
    ]
    assert not examine(*lines, additional=("loss",))


def test_a_log_without_the_objective_names_what_it_has() -> None:
    finding = examine("val_accuracy=0.9")["objective-missing"]
    assert finding.level == "fail"
    assert "val_accuracy" in finding.what
    assert "val_accuracy" in (finding.hint or "")


def test_a_missing_additional_metric_is_only_worth_a_note() -> None:
    assert examine(*TIMED, additional=("loss",))["additional-missing"].level == "note"


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("colon-for-equals", "epoch 1 accuracy: 0.9"),
        ("colon-for-equals", "Accuracy : 0.9"),
        ("dict-for-equals", "{'accuracy': 0.9, 'loss': 0.1}"),
        ("dict-for-equals", '{"accuracy": "0.9"}'),
        ("words-for-equals", "accuracy 0.9"),
        ("words-for-equals", "accuracy is 0.9"),
        ("words-for-equals", "accuracy -> 0.9"),
        ("words-for-equals", "│ accuracy  │  0.9  │"),
        ("longer-name", "val_accuracy=0.9"),
        ("longer-name", "accuracy_top1=0.9"),
        ("letter-case", "Accuracy=0.9"),
        ("bar-before-name", "epoch 3|accuracy=0.8"),
        ("color-before-name", "\x1b[32maccuracy=0.9\x1b[0m"),
        ("color-after-name", "\x1b[32maccuracy\x1b[0m=0.9"),
        ("color-after-name", "accuracy\x1b[0m: \x1b[1m0.9\x1b[0m"),
        ("color-after-name", "accuracy: \x1b[1m0.9\x1b[0m"),
    ],
)
def test_a_near_miss_fails_and_is_explained(rule: str, line: str) -> None:
    found = examine("start", line)
    assert found[rule].level == "fail"
    assert found[rule].where == "line 2"
    explained = set(found) - {"printed-another-way"}  # a remedy
    assert explained == {rule, "objective-missing"}, "one explanation is enough"


TABLES = {
    "fastai": "epoch     train_loss  valid_loss  accuracy  time    \n0         0.1     0.06    0.97  00:11",
    "pandas": "   epoch  accuracy   loss\n0      1      0.81  0.430\n1      2      0.85  0.330",
    "ultralytics": "   Class  Images  Instances  Box(P   R   Accuracy  mAP50-95): 100%|██| 4/4\n"
    "     all     128        929   0.645   0.5  0.607     0.449",
    "a CSV file": "epoch,accuracy,loss\n0,0.5,1.0",
    "rich": "┏━━━━━━━┳━━━━━━━━━━┓\n┃ epoch ┃ accuracy ┃\n┡━━━━━━━╇━━━━━━━━━━┩\n│ 1     │ 0.81     │",
    "Markdown": "| epoch | accuracy |\n|------:|---------:|\n| 1 | 0.81 |",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_column_of_a_table_is_no_metric(table: str) -> None:
    finding = examine(*table.split("\n"))["column-of-a-table"]
    assert (finding.level, finding.hint) == (
        "fail",
        "print accuracy=0.9 on a line of its own, once the table is there",
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("metrics: loss, accuracy", "epoch 1, 3 batches"),
        ("  loss  accuracy", "  Adam  SGD"),
        ("accuracy  0.9", "loss  0.1"),
        ("    accuracy     0.93   20", "   macro avg   0.93   0.93   0.93   20"),
        ("epoch  accuracy", "1  0.9", "accuracy=0.9"),
    ],
)
def test_names_beside_each_other_head_no_table(lines: tuple[str, ...]) -> None:
    assert "column-of-a-table" not in examine(*lines)


def test_a_bar_that_is_full_is_no_metric_of_100() -> None:
    bar = "      classes   top1_acc   top5_acc: 100%|██████████| 5/5 [00:00<00:00, 20.01it/s]"
    assert "printed-another-way" not in examine(bar, objective="top1_acc")
    done = "val accuracy: 100%|████| 5/5 [00:00<00:00, 20.01it/s, accuracy: 0.9]"
    assert "colon --objective accuracy" in str(examine(done)["printed-another-way"].hint)


def test_a_batch_value_is_ignored_where_the_metric_is_reported() -> None:
    assert not examine("batch 3 accuracy: 0.1", "val_accuracy=0.3", *TIMED)


def test_some_coloured_lines_are_a_warning_while_others_are_read() -> None:
    assert examine("\x1b[1maccuracy=0.9", *TIMED)["color-before-name"].level == "warn"


def test_a_metric_name_that_no_line_can_report_fails() -> None:
    assert examine("val/accuracy=0.9", objective="val/accuracy")["impossible-name"].level == "fail"
    assert "impossible-name" not in examine(
        "val/acc=1", objective="val/acc", formats=(r"(val/acc)=(\d+)",)
    )


def test_stages_that_share_a_name_cannot_be_distinguished() -> None:
    found = examine("train loss=0.1 val loss=0.3", objective="loss", kind="minimize")
    assert found["several-stages-under-one-name"].level == "warn"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["class 0 accuracy=0.9 class 1 accuracy=1.0"], "`class 0 accuracy`, `class 1 accuracy`"),
        (["Class=cat: accuracy=0.9", "Class=dog: accuracy=1.0"], "`class cat accuracy`"),
        (["class 0 (cat): accuracy=0.9", "class 1 (dog): accuracy=1.0"], "`class 0 acc"),
        (["top1 accuracy=0.7 top5 accuracy=0.9"], "`top 1 accuracy`, `top 5 accuracy`"),
        (["Top-1 accuracy=0.7, Top-5 accuracy=0.9"], "`top 1 accuracy`, `top 5 accuracy`"),
        (["fold 1/5 epoch 3 accuracy=0.7", "fold 2/5 epoch 3 accuracy=0.9"], "`fold 1 accuracy`"),
        (["[fold 1] accuracy=0.7", "[fold 2] accuracy=0.9", "overall accuracy=0.8"], "`fold 2 ac"),
        (["seed=1 accuracy=0.7", "seed=2 accuracy=0.9"], "`seed 1 accuracy`, `seed 2 accuracy`"),
        (["cat accuracy=0.7, dog accuracy=0.9"], "`cat accuracy`, `dog accuracy`"),
    ],
)
def test_parts_that_share_a_name_cannot_be_distinguished(lines: list[str], shown: str) -> None:
    finding = misread(lines)
    assert finding
    assert finding.rule == "several-stages-under-one-name"
    assert shown in finding.what
    assert finding.what.endswith("are all read as accuracy")


@pytest.mark.parametrize(
    "lines",
    [
        ["epoch 1 accuracy=0.5", "epoch 2 accuracy=0.6", "final accuracy=0.6"],
        ["step 10 accuracy=0.5", "step 20 accuracy=0.6"],
        ["[1/3] accuracy=0.5", "[2/3] accuracy=0.6"],
        ["seed=1 accuracy=0.5", "accuracy=0.6"],
        ["fold 1: accuracy=0.5", "fold 1: accuracy=0.6"],
        ["class 0 recall=0.5", "class 1 recall=0.6", "accuracy=0.5"],
        ["class 0 accuracy: 0.5 class 1 accuracy: 0.6 accuracy=0.5"],
        ["worst class 3 iou=0.1 accuracy=0.5", "worst class 5 iou=0.2 accuracy=0.6"],
        ["classification accuracy=0.5", "top accuracy=0.6"],
        ["100 classes 20 accuracy=0.5", "100 classes 40 accuracy=0.6"],
        ["top1=0.5 top5=0.9 accuracy=0.5", "top1=0.6 top5=0.9 accuracy=0.6"],
        ["group 0 lr=0.1 group 1 lr=0.2 accuracy=0.5", "group 0 lr=0.1 accuracy=0.6"],
        ["INFO accuracy=0.5", "WARNING accuracy=0.6"],
        ["epoch one accuracy=0.5\repoch two accuracy=0.6"],
        ["final accuracy=0.5 and accuracy=0.5"],
        ["stop at top 0.71 accuracy=0.5", "stop at top 1.5 accuracy=0.6"],
        ["client 1 loss 0.3, client 2 loss 0.4, accuracy=0.5"],
        [
            "clients: client 1 and client 4: accuracy=0.5",
            "clients: client 2 and client 3: accuracy=0.6",
        ],
    ],
)
def test_readings_in_turn_are_no_parts(lines: list[str]) -> None:
    assert misread(lines) is None


@pytest.mark.parametrize(
    "values",
    [(0.6, 0.9, 97.0), (0.5, 0.55, 61, 64), (97, 0.97), (61.5, 0.615), (96, 97, 0.97, 0.98)],
)
def test_a_sweep_warns_of_shares_mixed_with_percentages(values: tuple[float, ...]) -> None:
    finding = misread([f"accuracy={value}" for value in values])
    assert finding
    assert finding.rule == "shares-and-percentages"


@pytest.mark.parametrize(
    "values",
    [
        (0.6, 0.9, 0.97),
        (60, 90, 97),
        (0.1, 9.8, 40, 70),  # a thousand classes, in per cents, from the first guess on
        (0.95, 78.0, 80),  # a hundred classes, and a model that knew them before
        (0.1, 0.1, 3.5, 20),
        (0.0, 0.0, 97),
        (97, 1.0, 1.0),  # diverged
        (55.6, 71.2, 0.98, 1.0),
        (20, 80, 0.9, 35),  # an episode's reward
        (0.5, 0.9, 120),
        (-0.5, 0.5, 0.6, 60),
    ],
)
def test_small_percentages_are_no_shares(values: tuple[float, ...]) -> None:
    assert misread([f"accuracy={value}" for value in values]) is None


def test_a_loss_may_grow_a_hundredfold() -> None:
    lines = ["loss=0.6", "loss=0.7", "loss=71.0", "accuracy=0.5"]
    assert "shares-and-percentages" not in examine(*lines, objective="loss", kind="minimize")


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("not-finite", "nan"),  # stored as ''
        ("not-finite", "-inf"),  # stored as '-'
        ("tensor-or-array", "tensor(0.9)"),
        ("tensor-or-array", "np.float64(0.9)"),
        ("tensor-or-array", "[0.9]"),
        ("color-in-value", "\x1b[32m0.9\x1b[0m"),
        ("quoted-value", "'0.9'"),
        ("no-number", "good"),
        ("no-number", ""),
        ("minus-sign", "\u22120.5"),  # stored as ''
        ("minus-sign", "1e\u221205"),  # stored as 1
        ("number-cut-short", "1,234"),  # stored as 1
        ("number-cut-short", "1_000"),
        ("number-cut-short", "0x10"),  # stored as 0
        ("number-cut-short", "0.5.5"),
        ("number-cut-short", "0,95"),
        ("number-cut-short", "1:30"),
        ("number-cut-short", "1.e-05"),
        ("number-cut-short", "1.5D-05"),
    ],
)
def test_a_value_that_katib_stores_wrongly_fails(rule: str, value: str) -> None:
    found = examine(f"accuracy={value}")
    assert {name: finding.level for name, finding in found.items()} == {rule: "fail"}


def test_divergence_is_a_warning_while_a_number_is_left() -> None:
    assert examine(*TIMED, "2026-01-02T03:04:07Z accuracy=nan")["not-finite"].level == "warn"


def test_the_latest_value_being_no_number_fails() -> None:
    found = examine(*TIMED, "2026-01-02T03:04:07Z accuracy=nan", strategies={"accuracy": "latest"})
    assert found["latest-is-not-a-number"].level == "fail"


def test_a_strict_pattern_passes_over_what_is_no_number() -> None:
    found = examine(*TIMED, "2026-01-02T03:04:07Z accuracy=nan", formats=(STRICT_FORMAT,))
    assert found["not-finite"].level == "warn"
    assert "passed over" in found["not-finite"].what


def test_percent_is_dropped() -> None:
    found = examine("accuracy=96.59%")
    assert found["percent"].level == "warn"
    assert "'96.59'" in found["percent"].what


def test_a_sweep_warns_of_a_fraction_cut_at_the_slash() -> None:
    line = "accuracy=8950/10000 (90%)"
    assert examine(line)["fraction-cut"].level == "warn"
    finding = misread([line])
    assert finding
    assert finding.what == "`accuracy=8950/10000` is stored as '8950'"


@pytest.mark.parametrize("value", ["0.51/0.60", "95.2/99.1,", "0.9/epoch", "1e-3/2"])
def test_a_mean_behind_a_slash_is_no_fraction(value: str) -> None:
    assert "fraction-cut" not in examine(f"accuracy={value}")


def test_a_line_of_many_readings_is_looked_at_once() -> None:
    """As a progress bar prints it; each of 5,000 readings took another look at all of them."""
    line = "\r".join(f"{number}% train accuracy=0.5" for number in range(5_000))
    began = time.process_time()
    finding = misread([line + " accuracy=0.5"])
    assert finding
    assert finding.rule == "several-stages-under-one-name"
    assert time.process_time() - began < 5


def misread(lines: list[str]) -> Finding | None:
    """Return what doctor says of the only trial of a sweep, which printed these lines."""
    only = judged("only", "0.5")
    found = misread_trial(read("random"), only, [only], lambda name: lines)
    return found[1] if found else None


def judged(name: str, value: str) -> Trial:
    """Return a trial that has ended with an accuracy."""
    goal = {"type": "maximize", "objectiveMetricName": "accuracy"}
    observed = [{"name": "accuracy", "min": value, "max": value, "latest": value}]
    manifest = {
        "kind": "Trial",
        "metadata": {"name": name},
        "spec": {"objective": goal},
        "status": {"observation": {"metrics": observed}},
    }
    return Trial(manifest=manifest)


def test_a_number_cut_short_is_found_in_the_worst_trial() -> None:
    printed = {"good": "accuracy=0.9", "usual": "accuracy=0.8", "cut": "accuracy=0,85"}
    good, usual, cut = (
        judged(name, value) for name, value in (("good", "0.9"), ("usual", "0.8"), ("cut", "0"))
    )

    def log(name: str) -> list[str]:
        return [printed[name]]

    found = misread_trial(read("random"), good, [usual, cut, good], log)
    assert found
    assert (found[0].name, found[1].rule) == ("cut", "number-cut-short")
    assert misread_trial(read("random"), good, [usual, good], log) is None


def test_prose_beside_a_metric_is_not_its_value() -> None:
    assert not examine("accuracy 0.5% of all, accuracy=0.5")


def test_a_unit_is_dropped() -> None:
    assert examine("accuracy=0.5ms")["unit-dropped"].level == "warn"


def test_an_exponent_that_the_filter_cuts_fails() -> None:
    formats = (r"([\w|-]+)\s*=\s*((-?\d+)(\.\d+)?)",)
    found = examine("loss=1.5e-05", objective="loss", kind="minimize", formats=formats)
    assert found["exponent-cut"].level == "fail"
    assert "is stored as '1.5'" in found["exponent-cut"].what
    assert "unit-dropped" not in found
    assert "[Ee]" in str(found["exponent-cut"].hint)
    assert "exponent-cut" not in examine("loss=1.5e-05", objective="loss", kind="minimize")


@pytest.mark.parametrize(
    "text", ["accuracy=1.", "accuracy=0.9, loss=0.1", "(accuracy=0.9)", "accuracy = 1e-3;"]
)
def test_punctuation_after_a_number_does_no_harm(text: str) -> None:
    assert not examine(text)


def test_text_without_a_number_endangers_early_stopping() -> None:
    lines = ["args: --metric=accuracy", *TIMED]
    assert examine(*lines, stops_early=True)["unreadable-while-stopping-early"].level == "warn"
    assert not examine(*lines)


def test_lines_without_a_time_have_no_guaranteed_order() -> None:
    assert examine("accuracy=0.5", "accuracy=0.6")["no-time"].level == "warn"
    assert not examine("accuracy=0.5"), "one value needs no order"


@pytest.mark.parametrize(
    "start",
    [
        "2026-01-02 03:04:05,678 INFO",
        "[2026-01-02T03:04:05Z]",
        "2026-01-02T03:04:05",
        "1767323045.1",
        "INFO 03:04:05",
    ],
)
def test_a_time_that_is_not_rfc3339_is_pointed_out(start: str) -> None:
    found = examine(f"{start} accuracy=0.5", f"{start} accuracy=0.6")
    assert found["time-not-understood"].level == "warn"
    assert "no-time" not in found


def test_lines_without_a_time_count_as_the_oldest() -> None:
    found = examine(
        *TIMED, "accuracy=0.9", strategies={"accuracy": "latest"}
    )  # observed: 0.9 is not the latest
    assert found["some-without-time"].level == "warn"
    assert found["latest-is-not-the-last"].level == "fail"


@pytest.mark.parametrize(
    "lines",
    [
        [
            "Train Epoch: 1 [640/60000 (1%)]\tloss=2.2",
            "Train Epoch: 1 [1280/60000 (2%)]\tloss=0.1",
            "loss=0.5",
        ],
        ["10%|# | 1/9 [00:01, 3it/s, loss=0.3]\r20%|## | 2/9 [00:01, 3it/s, loss=0.2]"],
    ],
)
def test_batch_values_under_the_objective_s_name_are_pointed_out(lines: list[str]) -> None:
    found = examine(*lines, objective="loss", kind="minimize")
    assert found["batches-share-the-name"].level == "warn"
    latest = examine(*lines, objective="loss", kind="minimize", strategies={"loss": "latest"})
    assert latest["batches-share-the-name"].level == "note"


def test_lines_of_other_ranks_are_pointed_out() -> None:
    lines = ["[rank0] accuracy=0.5", "[rank1] accuracy=0.5", "[rank0] accuracy=0.6"]
    assert examine(*lines)["every-rank-reports"].level == "warn"
    assert "every-rank-reports" not in examine("accuracy=0.5", "accuracy=0.5")


@pytest.mark.parametrize(
    "marks",
    [
        ("[rank0]: ", "[rank3]: "),
        ("[default0]:", "[default1]:"),
        ("[1,0]<stdout>:", "[1,1]<stdout>:"),
        ("2026-01-02 INFO [Rank 0] ", "2026-01-02 INFO [Rank 1] "),
        ("(rank=0) ", "(rank=1) "),
        ("rank 1 | ", "rank 2 | "),
        ("rank1: ", "rank10: "),
        ("cuda:0 rank0: ", "cuda:1 rank1: "),
        ("", "[rank 1] "),
        ("", "rank 1: "),
    ],
)
def test_a_sweep_warns_of_several_processes_in_a_log(marks: tuple[str, str]) -> None:
    finding = misread([f"{mark}accuracy=0.5" for mark in marks])
    assert finding
    assert finding.rule == "every-rank-reports"


@pytest.mark.parametrize(
    "lines",
    [
        ["lora rank=8 accuracy=0.5", "lora rank=8 accuracy=0.6"],
        ["rank: 8, accuracy=0.5", "rank: 8, accuracy=0.6"],
        ["[rank0]: accuracy=0.5", "[rank0]: accuracy=0.6", "[rank1]: ready"],
        ["[rank1]: accuracy=0.5", "[rank1]: accuracy=0.6"],
        ["rank 1 of 20: accuracy=0.5", "rank 2 of 20: accuracy=0.6"],
        ["[1,0] accuracy=0.5", "[2,0] accuracy=0.6"],
        ["rank=8 | epoch 1 | accuracy=0.5", "accuracy=0.6"],
        ["lora (rank=8) accuracy=0.5", "accuracy=0.6"],
        ["[default0]:accuracy=0.5", "accuracy=0.6"],
        ["0: accuracy=0.5", "1: accuracy=0.6"],
    ],
)
def test_a_rank_that_is_no_process_is_let_alone(lines: list[str]) -> None:
    assert "every-rank-reports" not in examine(*lines)


BAR = "Epoch {}: {:3}%|██| {:2}/40 [00:01<00:00,  9.9it/s, {}]"


def bars(text: Callable[[int, int], str], epochs: int = 2) -> list[str]:
    return [
        "\r".join(
            BAR.format(epoch, step * 100 // 40, step, text(epoch, step)) for step in range(1, 41, 3)
        )
        for epoch in range(epochs)
    ]


@pytest.mark.parametrize(
    ("lines", "warns"),
    [
        (bars(lambda epoch, step: f"accuracy=0.{epoch}{step:02}"), True),
        (
            "\n".join(bars(lambda epoch, step: f"accuracy=0.{epoch}{step:02}"))
            .replace("\r", "\n")
            .split("\n"),
            True,
        ),
        (bars(lambda epoch, step: f"accuracy=0.{step * 7 // 2 % 4}"), True),
        (bars(lambda epoch, step: f"accuracy=0.{epoch + 5}"), False),
        (bars(lambda epoch, step: f"accuracy=0.{epoch}{step // 10}"), False),
        (bars(lambda epoch, step: f"accuracy=0.{step:02}", epochs=1), False),
        ([f"Epoch {at}/9 accuracy=0.{at}" for at in (*range(9), *range(9))], False),
        ([f"Epoch {at}/9 [00:01<00:09] accuracy=0.{at}" for at in (*range(9), *range(9))], False),
        (
            [f"Epochs: {at}0%|█ | {at}/9 [0:1<0:9, accuracy=0.{at}]" for at in [*range(9)] * 2],
            False,
        ),
        ([f"{at}/9 [====>.] - 1s - accuracy=0.{at}" for at in (*range(9), *range(9))], True),
        ([f"{at}/9 ━━━━━━━ 1s 3ms/step - accuracy=0.{at}" for at in (*range(9), *range(9))], True),
    ],
)
def test_a_sweep_warns_of_the_luckiest_batch(lines: list[str], warns: bool) -> None:
    found = misread(lines)
    assert (found is not None and found.rule == "bar-of-batches") is warns
    assert "batches-share-the-name" not in examine(*lines) or not warns


def test_labels_of_srun_are_told_from_epochs() -> None:
    labeled = [
        "srun: job 7 started",
        "0: ready",
        " 1: ready",
        "0: accuracy=0.9",
        " 1: accuracy=0.5",
    ]
    again = [*labeled, " 1: accuracy=0.6", "0: accuracy=0.8"]
    assert examine(*again)["every-rank-reports"].where == "lines 4, 5"
    assert "several processes or folds" in examine(*again)["every-rank-reports"].what
    assert "every-rank-reports" not in examine(*again, "done")
    assert "every-rank-reports" not in examine(
        "0: accuracy=0.5", "0: accuracy=0.6", "1: accuracy=0.7"
    )


def test_json_values_that_are_no_numbers_are_read_over() -> None:
    lines = ['{"epoch": 1, "loss": null}', '{"acc": "0.5", "epoch": 2}', "[1]", "3"]
    assert examine(*lines, json=True)["objective-missing"].level == "fail"


def test_json_numbers_are_passed_over_without_a_word() -> None:
    found = examine('{"accuracy": 0.9}', json=True)  # observed
    assert found["number-for-text"].level == "fail"
    assert not examine('{"accuracy": "0.9", "timestamp": "2026-01-02T03:04:05Z"}', "", json=True)


def test_a_line_that_is_no_json_object_fails() -> None:
    found = examine('{"accuracy": "0.9"}', "done", json=True)
    assert found["line-is-not-an-object"].level == "fail"
    assert found["line-is-not-an-object"].where == "line 2"
    assert not examine('{"accuracy": "0.9", "accuracy": "0.9"}', json=True)  # Go takes the last


def test_the_reader_is_guessed_from_the_log() -> None:
    assert guess_reader(["loss=0.5"]).objective == "loss"
    assert guess_reader(["loss=0.5"]).kind == "minimize"
    assert guess_reader(["Accuracy: 0.5 loss=0.1"]).objective == "accuracy"
    assert guess_reader(["f1=0.5"]).objective == "f1"
    assert guess_reader(["f1=0.5"]).kind == "maximize"
    assert guess_reader([], "val_loss", "maximize").kind == "maximize"


def test_a_pattern_that_katib_cannot_use_is_refused() -> None:
    with pytest.raises(InvalidInput, match="two groups"):
        Reader(objective="loss", kind="minimize", formats=(r"loss=\d+",))
    with pytest.raises(InvalidInput, match="strategy"):
        Reader(objective="loss", kind="minimize", strategies={"loss": "mean"})


def test_without_the_objective_nothing_else_is_stored() -> None:
    report = examine_log(
        ["loss=0.5"], Reader(objective="accuracy", kind="maximize", additional=("loss",)), "log"
    )
    assert [row["latest"] for row in report.details["stored"]] == [
        "unavailable",
        "unavailable",
    ]  # observed


def test_a_large_log_is_read_in_seconds() -> None:
    lines = (f"step {step} train_loss={step} accuracy=0.5" for step in range(5_000))
    report = examine_log(lines, Reader(objective="accuracy", kind="maximize"), "log")
    assert report.details["readings_total"] == 5_000
    assert len(report.details["readings"]) == 1000


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text", ["x" * 200_000, "|" * 200_000, "x|" * 100_000, "-" * 100_000 + " " * 100_000]
)
def test_a_line_of_two_hundred_thousand_letters_is_read(text: str) -> None:
    assert not examine(text + " accuracy", *TIMED)
    assert examine(text + " accuracy", "val_accuracy=0.9")["longer-name"].where == "line 2"


def test_in_a_narrow_terminal_a_table_folds_and_loses_nothing() -> None:
    lines = [f"2026-01-02T03:04:0{at}.678901Z validation_accuracy=0.965{at}" for at in range(3)]
    console = Console(width=60, file=(file := io.StringIO()))
    show(examine_log(lines, guess_reader(lines, "validation_accuracy", None), "train.log"), console)
    assert "…" not in file.getvalue()
    assert all(f"0.965{at}" in file.getvalue() for at in range(3))


def test_podiums_trainer_is_asked_for_a_metric_it_keeps() -> None:
    experiment = read("random").changed(
        lambda manifest: manifest["spec"]["objective"].update(objectiveMetricName="f1_macro")
    )
    lines = ["2026-01-02T03:04:05Z accuracy=0.98 loss=0.05"]
    assert why_unavailable(experiment, lines, "--objective NAME")[1] == (
        "add --metric=f1_macro to its command"
    )


def test_a_name_that_begins_with_minutes_is_offered() -> None:
    found = examine("30m_mae=0.4", objective="mae")["objective-missing"]
    assert "or make 30m_mae the objectiveMetricName" in (found.hint or "")


@pytest.mark.parametrize("line", ["\x1b[32maccuracy=0.9", "accuracy: \x1b[1m0.9 loss: 0.1"])
def test_colors_that_hide_a_metric_offer_no_other_one(line: str) -> None:
    experiment = read("random")
    hint = why_unavailable(experiment, [line], "--objective NAME", lambda key, name: name)[1]
    assert hint.startswith("switch colors off")
    assert "32m" not in (examine(line)["objective-missing"].hint or "")


LONG = {
    "blanks": "accuracy" + " " * 200_000 + "x",
    "names": "accuracy" * 25_000,
    "letters": "a" * 200_000 + " accuracy",
    "epochs": "2accuracy" + "epoch" * 40_000 + ": 0.5",
    "digits": "accuracy=0.5 accuracy=0.6 " + "1" * 200_000,
    "Keras": "1/1 " * 50_000,
    "Lightning": "Epoch 1/1 1/1" * 15_000,
    "Hugging Face": "{'loss': 1, " * 15_000,
    "XGBoost": "[1]\t" + "a-" * 100_000,
}


@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
def test_one_long_line_takes_no_minutes(line: str) -> None:
    begun = time.process_time()
    examine(line, stops_early=True)
    assert time.process_time() - begun < 5


def test_a_number_that_is_none_is_refused_at_once() -> None:
    begun = time.process_time()
    assert number("1" * 200_000 + "x") is quantity("1" * 200_000 + "x") is None
    assert time.process_time() - begun < 5
