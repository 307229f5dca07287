"""Flags are a contract: Experiments and PyTorchJobs spell them out."""

import re
import shlex
from pathlib import Path

import pytest

from podium.errors import InvalidInput
from podium.trainer.config import TrainConfig, parse
from podium.trainer.networks import RECIPES
from podium.trainer.optimizer import learning_rate

FLAGS = """
    data output inherit dataset model weights width depth epochs batch-size optimizer lr schedule gamma momentum weight-decay
    label-smoothing balance dropout shift rotate flip erase augment average keep metric patience folds tree-lr tree-rounds tree-leaves tree-items tree-columns no-cuda precision threads seed log-interval
    backend track track-dir
""".split()  # noqa: SIM905

ROOT = Path(__file__).parent.parent.parent


def test_every_command_of_the_trainer_shown_in_the_docs_parses() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = re.findall(
        r"^\$ .*-m podium\.trainer (.*)$",
        "\n".join(page.read_text() for page in pages),
        re.MULTILINE,
    )
    assert len(shown) >= 3
    for flags in shown:
        assert parse(shlex.split(flags)).data


def test_the_names_of_the_flags_do_not_change(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    shown = re.findall(r"^  --([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert shown == FLAGS


def test_defaults_are_those_of_the_tutorial() -> None:
    config = parse([])
    assert (config.epochs, config.batch_size) == (5, 64)
    assert (config.lr, config.gamma, config.seed) == (1.0, 0.7, 1)
    assert (config.log_interval, config.no_cuda, config.backend) == (10, False, "gloo")
    assert (config.model, config.optimizer, config.schedule) == ("tutorial", "adadelta", "step")


def test_a_command_line_as_katib_writes_it_is_understood() -> None:
    config = parse(["--lr=0.03", "--batch-size=128", "--epochs=2", "--no-cuda", "--optimizer=sgd"])
    assert (config.lr, config.batch_size, config.epochs, config.no_cuda, config.optimizer) == (
        0.03,
        128,
        2,
        True,
        "sgd",
    )


def test_a_flag_overrides_the_recipe_of_the_model() -> None:
    for model, recipe in RECIPES.items():
        config = parse(["--model", model])
        assert all(getattr(config, name) == value for name, value in recipe.items())
    assert parse(["--model", "fast", "--lr", "0.125"]).lr == 0.125


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lr", "nan"], "--lr > 0"),
        (["--lr", "inf"], "--lr > 0"),
        (["--lr", "-1"], "--lr > 0"),
        (["--model", "fast", "--width", "0"], "--width > 0"),
        (["--epochs", "0"], "--epochs >= 1"),
        (["--batch-size", "-1"], "--batch-size >= 0"),
        (["--seed", "4294967296"], "--seed < 2**32"),
        (["--dropout", "1"], "--dropout in [0, 1)"),
        (["--weight-decay", "-1"], "--weight-decay >= 0"),
        (
            ["--backend", "carrier-pigeon"],
            "--backend takes gloo, nccl, mpi, but not 'carrier-pigeon'",
        ),
        (
            ["--track", "mlflow", "--track", "diary"],
            "--track takes wandb, mlflow, tensorboard, but not 'diary'",
        ),
        (
            ["--model", "resnet-18"],
            "--model resnet-18 is not one of tutorial, fast, best, mlp, linear, trees or a network of torchvision",
        ),
        (
            ["--model", "vit_h_14"],
            "--model vit_h_14 has more than the 2 GB of weights that one ONNX file holds",
        ),
        (
            ["--model", "resnet18", "--dropout", "0.5"],
            "--dropout is for tutorial, fast, best, mlp; resnet18 keeps its own",
        ),
        (
            ["--model", "linear", "--width", "2"],
            "--width is for fast, best, mlp; linear keeps its own",
        ),
        (
            ["--model", "tutorial", "--width", "2"],
            "--width is for fast, best, mlp; tutorial keeps its own",
        ),
        (["--model", "fast", "--depth", "3"], "--depth is for mlp; fast keeps its own"),
        (["--augment", "crop,blur"], "--augment takes crop, color, trivial, rand, but not 'blur'"),
        (["--epochs", "three"], "invalid int value: 'three'"),
        (["--balance=maybe"], "must be true or false, but got 'maybe'"),
        (["--learning-rate", "1"], "unrecognized arguments: --learning-rate"),
    ],
)
def test_a_bad_flag_is_explained_with_its_rule_and_hint(argv: list[str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(argv)
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("words", "value"), [((), False), (("--balance",), True), (("--balance=false",), False)]
)
def test_a_switch_may_have_a_value_that_a_sweep_searches(
    words: tuple[str, ...], value: bool
) -> None:
    assert parse(["--data", "d", *words]).balance is value


def test_a_batch_grows_with_the_data_unless_one_is_given() -> None:
    sizes = {50: 50, 1_000: 64, 262_144: 64, 262_145: 128, 600_000: 256, 1_000_000: 256}
    assert {items: parse(["--model", "mlp"]).batch_of(items) for items in sizes} == sizes
    assert parse(["--model", "mlp", "--batch-size", "64"]).batch_of(1_000_000) == 64
    assert parse(["--model", "fast"]).batch_of(1_000_000) == 256


def test_only_fields_that_determine_the_weights_are_decisive() -> None:
    one = TrainConfig(data="a", output="b", log_interval=1)
    other = TrainConfig(data="c", output="d", log_interval=7)
    assert one.decisive == other.decisive
    assert one.decisive != TrainConfig(lr=0.5).decisive


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_few_steps_do_not_exceed_the_learning_rate(steps: int) -> None:
    config = parse(["--model", "fast", "--lr", "0.4", "--epochs", "1"])
    rates = [learning_rate(config, step, steps) for step in range(steps)]
    assert max(rates) <= 0.4
    assert min(rates) > 0
