import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from podium.data.option_text import options_as, written
from podium.data.options import DataOptions
from podium.errors import InvalidInput
from podium.files.documents import load_yaml
from podium.training.dataset import DataSettings

DOCS = Path(__file__).parent.parent.parent / "docs" / "data.md"


def test_every_option_is_in_the_docs() -> None:
    rows = re.findall(
        r"^\| (`[\w`, ]+`) \| [\w, ]+ \|", DOCS.read_text().partition("## Options")[2], re.MULTILINE
    )
    named = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(named) == sorted({field.name for field in fields(DataOptions)} - {"target"})


def test_whole_numbers_may_arrive_as_floats() -> None:
    """The parameters of a pipeline are JSON whose numbers are all floats."""
    options = DataOptions.read("", {"length": 64.0, "resize": [32.0, 48.0], "test": 0.25})
    assert (options.length, options.resize, options.test) == (64, (32, 48), 0.25)
    assert type(options.length) is int
    with pytest.raises(InvalidInput, match="length must be a whole number"):
        DataOptions.read("", {"length": 64.5})


@pytest.mark.parametrize(
    "name", ["1", "null", "true", "1e5", "a: b", "#x", "[x]", "x:", " x ", "%x", "2026-01-31", "ä"]
)
def test_an_option_is_read_as_it_is_written(name: str) -> None:
    for option, expected in (("group", name), ("drop", [name])):
        (word,) = shlex.split(written(option, name))
        assert load_yaml(word.removeprefix(f"{option}="), "") == [expected]


def test_mnist_takes_only_options_that_mean_something() -> None:
    assert (
        DataSettings(data_options={"validation": 0.2, "split": "random"}).options.validation == 0.2
    )
    with pytest.raises(InvalidInput, match="mnist has no option test"):
        DataSettings(data_options={"test": 0.2})
    with pytest.raises(InvalidInput, match="mnist has no option target"):
        DataSettings(target="price")


def test_options_are_written_as_a_pipeline_takes_them() -> None:
    assert (written("drop", "id"), written("drop", "my id"), written("kind", "regression")) == (
        "drop=[id]", "'drop=[\"my id\"]'", "kind=regression")  # fmt: skip
    with options_as({"drop": "name", "test": 0.2}):
        assert written("drop", "id") == """data_options='{"drop": ["name", "id"], "test": 0.2}'"""
        assert (
            written("kind", "regression")
            == """data_options='{"drop": "name", "test": 0.2, "kind": "regression"}'"""
        )
