import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podium.data import artifact

Data = Callable[..., Any]


@pytest.fixture
def data(typed: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """Type `podium data` in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: typed("data", *words)


def test_inspect_prints_sizes_statistics_and_classes(
    data: Data, tiny_dataset: Path, tmp_path: Path
) -> None:
    done = data("inspect", str(tiny_dataset), "--picture", "grid.png")
    assert done.returncode == 0, done.stderr
    info = artifact.describe(tiny_dataset)
    assert f"{info.inputs['images'].mean[0]:.4f}" in done.stdout
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("train", "test"))] == [
        "400", "100", "500",
    ]  # fmt: skip
    assert (tmp_path / "grid.png").stat().st_size > 1000
    assert "grid.png" in done.stderr


def test_inspect_prints_json_and_nothing_else_on_stdout(
    data: Data, tiny_dataset: Path, tmp_path: Path
) -> None:
    found = json.loads(data("inspect", str(tiny_dataset), "--json").stdout)
    assert found["digest"] == artifact.describe(tiny_dataset).digest
    assert found["parts"]["validation"]["count"] == 100


def test_inspect_shows_columns_and_their_distribution(data: Data, tmp_path: Path) -> None:
    rows = [f"{at % 7},{'north' if at % 3 else 'south'},{at * 1.5}" for at in range(70)]
    (tmp_path / "houses.csv").write_text("\n".join(["rooms,side,price", *rows]))
    words = ["--target", "price", "--option", "allow_duplicates=true", "--output", "houses"]
    done = data("prepare", "table:houses.csv", *words)
    assert "houses: regression, 57 train, 6 validation, 7 test, split random" in done.stdout, (
        done.stderr
    )
    lines = data("inspect", "houses").stdout.splitlines()
    rooms, side, price = (
        next(line for line in lines if line.startswith(name)) for name in ("rooms", "side", "price")
    )
    assert rooms.split()[1:5] == ["number", "0", "0", "6"]
    assert len(rooms.split()[-1]) == 7
    assert "north" in side
    assert "%" in side
    assert "▅" in price or "▇" in price


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["inspect", "nowhere"], 1, "there is no dataset.json in nowhere"),
        (["prepare", "fasion-mnist"], 2, "did you mean fashion-mnist?"),
        (
            ["prepare", "--validation", "2"],
            2,
            "`0 < validation < 1` must hold, but got validation=2.0",
        ),
        (["prepare", "--option", "test"], 2, "--option takes NAME=VALUE, not 'test'"),
        (["prepare", "--option", "test=[0.1"], 2, "--option test is not readable as YAML"),
        (["prepare", "--source", "nowhere"], 1, "there is no train-images-idx3-ubyte"),
        (["inspect", "s3:/bucket/mnist"], 2, "not a URL: 's3:/bucket/mnist'"),
    ],
)
def test_mistakes_get_two_lines_and_leave_nothing(
    data: Data, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    done = data(*words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_an_option_of_one_sign_needs_no_quotation(data: Data, tmp_path: Path) -> None:
    rows = (f'"{at},5"|x{at % 3}|{at % 2}' for at in range(60))
    (tmp_path / "a.csv").write_text("\n".join(["n,a|m|y", *rows]))
    words = [f"--option={word}" for word in ("delimiter=|", "decimal=,", "thousands='")]
    done = data("prepare", "table:a.csv", "--target", "y", *words)
    assert "n,a: number (number)" in done.stderr, done.stderr


def test_another_dataset_at_the_output_is_named(
    data: Data, tiny_dataset: Path, tmp_path: Path
) -> None:
    for name in "ab":
        rows = (f"{at},{at % 7},{name}{at % 2}" for at in range(60))
        (tmp_path / f"{name}.csv").write_text("\n".join(["n,m,y", *rows]))
    prepare = ("prepare", "--target", "y", "--output", "d")
    for words in (("table:a.csv",), ("table:a.csv",)):
        assert "is replaced" not in data(*prepare, *words).stderr
    first = artifact.describe("d").digest[:12]
    twice = data(*prepare, "table:a.csv", "--seed", "2", "--option", "split_seed=3")
    assert twice.returncode == 2
    assert "the option split_seed is given twice" in twice.stderr
    seeded = data(*prepare, "table:a.csv", "--seed", "2")
    assert f"/d held another dataset, of a.csv with digest {first}, which is replaced" in (
        seeded.stderr
    )
    assert "of a.csv" in data(*prepare, "table:b.csv").stderr
    copied = data("prepare", str(tiny_dataset), "--output", "d").stderr
    assert copied.count("is replaced") == 1
    assert "of b.csv" in copied
    assert "is replaced" not in "".join(artifact.describe("d").warnings)
