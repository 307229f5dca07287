"""The loop: numbers, files and messages of whole trainings, in this process."""

import json
import math
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from podium.data import artifact
from podium.metrics import PACE, parse_line
from podium.storage import connect
from podium.trainer import data, loop, models, objective, output, task
from podium.trainer.__main__ import main
from podium.trainer.config import TrainConfig
from podium.trainer.loop import TrainingLoop
from podium.trainer.seen import Seen
from podium.trainer.world import World

GOLDEN = Path(__file__).parent.parent / "golden" / "trainer-losses.json"
LINE = re.compile(
    r"^\d{4}-\d\d-\d\dT[\d:.]+Z accuracy=(\d\.\d{4}) loss=(\d+\.\d{4})$", re.MULTILINE
)
FAST = ["--precision", "fp32", "--threads", "1", "--no-cuda"]
SMALL = [*FAST, "--model", "fast", "--optimizer", "adadelta", "--lr", "1", "--schedule", "step", "--batch-size", "64",
         "--keep", "best", "--average", "0"]  # fmt: skip
"""The small network with the recipe of the tutorial's."""


@pytest.fixture(autouse=True)
def one_thread() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def losses(dataset: Path, **changes: object) -> list[float]:
    """Return the loss of every step of a training."""
    torch.set_num_threads(1)
    config = TrainConfig(data=str(dataset), precision="fp32", no_cuda=True, **changes)  # type: ignore[arg-type]
    training = TrainingLoop(config, data.load(config), World(), lambda line: None)
    seen: list[float] = []
    step = training.step
    training.step = lambda batch: seen.append(step(batch)) or seen[-1]  # type: ignore[method-assign,assignment,func-returns-value]
    training.run(lambda state: None)
    return [float(loss) for loss in seen]


def test_the_loss_of_every_step_is_the_one_on_record(tiny_dataset: Path) -> None:
    record = json.loads(GOLDEN.read_text())
    for model, expected in record.items():
        got = losses(tiny_dataset, model=model, epochs=2, batch_size=64)
        # Processors differ in the last bits of a sum; a change of the loop changes far more than that.
        assert got == pytest.approx(expected, abs=2e-3), (
            f"{model}: if the change is wanted, write {got} to {GOLDEN}"
        )


def test_a_batch_has_all_items_where_there_are_fewer(tiny_dataset: Path) -> None:
    whole = losses(tiny_dataset, model="fast", epochs=1, batch_size=400)
    assert losses(tiny_dataset, model="fast", epochs=1, batch_size=64_000) == whole
    assert len(whole) == 1


def test_only_the_same_seed_gives_the_same_losses(tiny_dataset: Path) -> None:
    first, again, other = (
        losses(tiny_dataset, model="fast", epochs=1, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_model_directory_agrees_with_the_trained_model(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            ["--data", str(tiny_dataset), "--output", str(tmp_path / "out"), "--epochs", "2", *FAST]
        )
        == 0
    )
    names = {
        "model.onnx",
        "model.safetensors",
        "metrics.json",
        "hyperparameters.json",
        "environment.json",
        "validation.npz",
    }
    assert {file.name for file in (tmp_path / "out").iterdir()} == names
    metrics, message = (
        json.loads((tmp_path / "out" / f"{name}.json").read_text())
        for name in ("metrics", "hyperparameters")
    )
    assert message["lr"] == 1.0
    assert metrics["dataset"] == artifact.describe(tiny_dataset).digest

    validation = artifact.load(tiny_dataset, "validation")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    (logits,) = session.run(["logits"], {"images": validation.inputs["images"]})
    assert np.mean(logits.argmax(1) == validation.target) == pytest.approx(
        metrics["accuracy"], abs=0.011
    )

    info = artifact.describe(tiny_dataset)
    model = models.build(TrainConfig(), task.read(TrainConfig(), info)).eval()
    model.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"))
    with torch.no_grad():
        np.testing.assert_allclose(
            model(torch.tensor(validation.inputs["images"])).numpy(), logits, rtol=1e-3, atol=1e-3
        )

    shown = [
        (float(accuracy), float(loss)) for accuracy, loss in LINE.findall(capsys.readouterr().out)
    ]
    assert shown == [(round(e["accuracy"], 4), round(e["loss"], 4)) for e in metrics["epochs"]]


def test_equal_weights_are_equal_bytes(tiny_dataset: Path, tmp_path: Path) -> None:
    config = TrainConfig(data=str(tiny_dataset), model="fast", epochs=1, no_cuda=True)
    training = TrainingLoop(config, data.load(config), World(), lambda line: None)
    training.run(lambda state: None)
    for number in range(8):
        output.write(connect(tmp_path / str(number)), training, Seen.read(config.data, ""))
    for name in ("model.safetensors", "model.onnx"):
        assert len({(tmp_path / str(number) / name).read_bytes() for number in range(8)}) == 1


def test_the_weights_of_the_best_epoch_are_kept(tiny_dataset: Path, tmp_path: Path) -> None:
    argv = [
        "--data",
        str(tiny_dataset),
        "--output",
        str(tmp_path),
        "--epochs",
        "3",
        *SMALL,
        "--gamma",
        "200",
    ]
    assert main(argv) == 0  # the learning rate explodes on purpose
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    best = max(metrics["epochs"], key=lambda epoch: (epoch["accuracy"], -epoch["loss"]))
    assert (metrics["epoch"], metrics["accuracy"], metrics["loss"]) == (
        best["epoch"],
        best["accuracy"],
        best["loss"],
    )
    assert metrics["epoch"] < 3
    validation = artifact.load(tiny_dataset, "validation")
    (logits,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(
        ["logits"], {"images": validation.inputs["images"]}
    )
    assert np.mean(logits.argmax(1) == validation.target) == pytest.approx(
        metrics["accuracy"], abs=0.011
    )


def test_the_pace_is_printed_once_and_is_no_metric(
    tiny_dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ENOUGH", 0.0)
    main(
        [
            "--data",
            str(tiny_dataset),
            "--epochs",
            "2",
            *SMALL,
            "--batch-size",
            "50",
            "--log-interval",
            "1",
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    (pace,) = [line for line in lines if line.startswith(PACE)]
    assert re.fullmatch(r"pace: [\d,]+ items/s, epoch 1 of 2, about \d+\.\d s left", pace)
    assert not parse_line(pace, ["accuracy", "loss", "pace"])


def test_progress_is_printed_every_log_interval_as_train_loss(
    tiny_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        [
            "--data",
            str(tiny_dataset),
            "--epochs",
            "1",
            *SMALL,
            "--batch-size",
            "50",
            "--log-interval",
            "3",
        ]
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Train")]
    heads = [line.partition("\t")[0] for line in lines]
    assert heads == [f"Train Epoch: 1 [{n}/400 ({n / 4:.0f}%)]" for n in (0, 150, 300)]
    assert all(re.fullmatch(r"train_loss=\d+\.\d{4}", line.partition("\t")[2]) for line in lines)


@pytest.mark.parametrize("batch_size", [1, 7, 33, 1000])
def test_evaluation_does_not_depend_on_the_size_of_its_batches(
    tiny_dataset: Path, batch_size: int
) -> None:
    config = TrainConfig(data=str(tiny_dataset))
    dataset = data.load(config)
    model = models.build(config, dataset.task).eval()
    with torch.no_grad():
        logits = model(dataset.validation.inputs[:])
    loss = torch.nn.functional.cross_entropy(logits, dataset.validation.target).item()
    accuracy = (logits.argmax(1) == dataset.validation.target).double().mean().item()
    measure = objective.of(config, dataset.task)
    metrics = measure.evaluate(model, dataset.validation, batch_size, World())
    assert metrics == {"accuracy": accuracy, "loss": pytest.approx(loss, rel=1e-5)}


def test_a_loss_that_is_not_finite_fails_without_metrics(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "--data",
        str(tiny_dataset),
        "--output",
        str(tmp_path),
        "--lr",
        "1e30",
        "--model",
        "fast",
        *FAST,
    ]
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert not LINE.search(out)
    assert "nan" not in out
    assert re.search(
        r"the loss must be finite, but is (nan|inf) at step \d+ of epoch 1 with --lr 1e\+30", err
    )
    assert "hint: try a smaller --lr" in err
    assert not list(tmp_path.iterdir())


def test_patience_ends_a_training_that_no_longer_improves(
    tiny_dataset: Path, tmp_path: Path
) -> None:
    argv = [
        "--data",
        str(tiny_dataset),
        "--output",
        str(tmp_path),
        "--lr",
        "1e-9",
        "--epochs",
        "9",
        "--patience",
        "2",
    ]
    assert main([*argv, "--batch-size", "200", "--model", "fast", *FAST]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert len(metrics["epochs"]) == metrics["epoch"] + 2 < 9


@pytest.mark.parametrize(
    ("keep", "patience", "epoch"), [("best", 0, 1), ("last", 0, 3), ("last", 9, 1)]
)
def test_keep_and_patience_decide_which_epochs_weights_are_kept(
    tiny_dataset: Path, keep: str, patience: int, epoch: int
) -> None:
    config = TrainConfig(
        data=str(tiny_dataset),
        keep=keep,
        patience=patience,
        epochs=3,
        model="fast",
        no_cuda=True,
        threads=1,
    )
    training = TrainingLoop(config, data.load(config), World(), lambda line: None)
    after: list[torch.Tensor] = []
    end = training.end_epoch

    def remember(losses: torch.Tensor) -> None:
        end(losses)
        after.append(training.average.model.state_dict()["1.weight"].clone())

    training.end_epoch = remember  # type: ignore[method-assign]
    training.objective.merit = lambda record: -record["epoch"]  # type: ignore[method-assign]
    training.run(lambda state: None)
    assert training.progress.kept["epoch"] == epoch
    assert torch.equal(training.progress.weights["1.weight"], after[epoch - 1])


@pytest.mark.parametrize(("flags", "message"), [(["--model", "fast"], True), (["--model", "tutorial"], False),
                                             (["--model", "fast", "--batch-size", "8"], False)])  # fmt: skip
def test_a_recipe_that_gets_too_few_steps_says_so(
    tiny_dataset: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: bool
) -> None:
    assert main(["--data", str(tiny_dataset), "--epochs", "1", *flags, *FAST]) == 0
    assert ("too few for the learning rate" in capsys.readouterr().err) is message


def test_an_output_of_another_version_is_refused_without_flag_advice(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--data", str(tiny_dataset), "--output", str(tmp_path), "--epochs", "1", *SMALL]
    assert main(argv) == 0
    for name, change in (("hyperparameters", {"keep"}), ("metrics", {"fingerprint"})):
        message = json.loads((tmp_path / f"{name}.json").read_text())
        (tmp_path / f"{name}.json").write_text(
            json.dumps({key: message[key] for key in message.keys() - change})
        )
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert "keep None -> 'best'" in err
    assert "delete that one" in err
    assert "repeat its flags" not in err


def test_a_finished_training_is_not_repeated_but_reported_again(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--data", str(tiny_dataset), "--output", str(tmp_path), "--epochs", "2", *SMALL]
    assert main(argv) == 0
    first = capsys.readouterr().out
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert main(argv) == 0
    again, talk = capsys.readouterr()
    assert LINE.findall(again) == LINE.findall(first)
    assert "Train Epoch" not in again
    assert "finished" in talk
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_another_training_in_the_same_output_is_refused(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--data", str(tiny_dataset), "--output", str(tmp_path), "--epochs", "1", *SMALL]
    assert main(argv) == 0
    assert main([*argv, "--lr", "0.5", "--seed", "7"]) == 2
    err = capsys.readouterr().err
    assert "lr 1.0 -> 0.5, seed 1 -> 7" in err
    assert main([*argv, "--log-interval", "1"]) == 0  # changes no number


def test_every_loss_of_a_small_net_falls(tiny_dataset: Path) -> None:
    for model in ("fast", "best"):
        seen = losses(
            tiny_dataset, model=model, epochs=2, batch_size=20, optimizer="sgd", lr=0.02, width=0.5
        )
        assert all(map(math.isfinite, seen))
        assert sum(seen[-20:]) < 0.5 * sum(seen[:20])
