"""Pipeline parameters as a user writes them."""

from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.kfp.parameters import Parameter, Parameters, written


def pipeline(
    trials: int = 4,
    rate: float = 0.5,
    fast: bool = False,
    name: str = "x",
    flags: dict = {},  # noqa: B006
) -> None:
    """Do something.

    Args:
        trials: How many.
        rate: How fast, a sentence
            over two lines.
        fast: Whether.
    """


KNOWN = Parameters.of(pipeline)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["trials=6"], {"trials": 6}),
        (["--trials", "6", "rate=1"], {"trials": 6, "rate": 1.0}),
        (["--trials=6"], {"trials": 6}),
        (["fast=True"], {"fast": True}),
        (["name="], {"name": ""}),
        (["name=a=b c"], {"name": "a=b c"}),
        (['flags={"lr": 0.1}'], {"flags": {"lr": 0.1}}),
        ([], {}),
    ],
)
def test_values_are_read_in_every_spelling(words: list[str], values: dict[str, Any]) -> None:
    assert KNOWN.read(words) == values


@pytest.mark.parametrize("kind", [int, str, dict])
def test_null_is_the_value_of_an_optional_parameter(kind: type) -> None:
    known = Parameter(name="n", type=kind, default=None, description="")
    assert known.parse("null") is None
    assert Parameter(name="n", type=str, default="", description="").parse("null") == "null"
    assert written({"n": None, "m": False}) == ["m=false"]


def test_a_pipelines_docstring_describes_its_parameters() -> None:
    assert [parameter.description for parameter in KNOWN[:3]] == [
        "How many.",
        "How fast, a sentence over two lines.",
        "Whether.",
    ]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["trails=6"], "no parameter 'trails'", "did you mean trials?"),
        (["zzz=6"], "no parameter 'zzz'", "one of trials, rate, fast, name, flags"),
        (["trials=many"], "trials is a whole number", "How many."),
        (["trials=1.5"], "trials is a whole number", "How many."),
        (["fast=1"], "fast is true or false", "Whether."),
        (['flags={"a":NaN}'], "flags is a JSON object", ""),
        (['flags={"a":1e999}'], "flags is a JSON object", ""),
        (["flags=" + '{"a":' * 3000 + "1" + "}" * 3000], "flags is a JSON object", ""),
        (["trials=" + "9" * 400], "trials is a whole number. .*…", "How many."),
        (["rate=-Infinity"], "rate is a number", "How fast, a sentence over two lines."),
        (["flags=[1]"], "flags is a JSON object", ""),
        (["trials=1", "--trials=2"], "trials is given twice", None),
        (["--trials"], "--trials has no value", "--trials=VALUE works too"),
        (["trials"], "a parameter is written name=value", "for example trials=VALUE"),
        (["fast"], "a parameter is written name=value", "for example fast=VALUE"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], message: str, hint: str | None) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        KNOWN.read(words)
    assert caught.value.hint == hint


@pytest.mark.parametrize(("name", "value"), [("trials", 2**53 + 1), ("flags", {"n": [2**60]})])
def test_a_number_that_no_pipeline_holds_is_refused(name: str, value: Any) -> None:
    (known,) = (parameter for parameter in KNOWN if parameter.name == name)
    with pytest.raises(InvalidInput, match=f"{name} is a"):
        known.check(value)
