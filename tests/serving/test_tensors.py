"""Requests for inference as bytes: each limit holds from its first value on, and says so."""

import json
from typing import Any

import numpy as np
import pytest

from podium.errors import InvalidInput
from podium.serving.tensors import MOST_JSON, InferRequest, TensorForm

ONE: dict[str, Any] = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0.5]}


def asked(document: dict[str, Any] | None = None, **tensor: Any) -> bytes:
    return json.dumps({"inputs": [{**ONE, **tensor}], **(document or {})}).encode()


TAKEN: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "32 axes": (asked(shape=[1] * 32), (1,) * 32),
    "no rows": (asked(shape=[0, 3], data=[]), (0, 3)),
    "as many rows as may be": (asked(shape=[1 << 20, 0], data=[]), (1 << 20, 0)),
    "a long name": (asked(name="x" * 1000), (1, 1)),
    "a long id": (asked({"id": "i" * 1000}), (1, 1)),
    "lists in lists": (asked(data=[[[[0.5]]]]), (1, 1)),
    "lists of its rows": (asked(shape=[2, 3, 1], data=[[1, 2, 3], [4, 5, 6]]), (2, 3, 1)),
    "lists of one value each": (asked(shape=[2], data=[[1], [2]]), (2,)),
    "lists of no rows": (asked(shape=[0, 3], data=[[], []]), (0, 3)),
    "as much JSON as may be": (asked().ljust(MOST_JSON), (1, 1)),
}


@pytest.mark.parametrize("what", TAKEN)
def test_a_request_at_a_limit_is_taken(what: str) -> None:
    body, shape = TAKEN[what]
    (array,) = InferRequest.read(body, None).inputs.values()
    assert array.shape == shape


REFUSED: dict[str, tuple[bytes, str]] = {
    "33 axes": (asked(shape=[1] * 33), "is a list of sizes"),
    "no axes": (asked(shape=[], data=[]), "is a list of sizes"),
    "a negative size": (asked(shape=[1, -1]), "is a list of sizes"),
    "half a row": (asked(shape=[0.5, 1]), "is a list of sizes"),
    "a row more than may be": (asked(shape=[(1 << 20) + 1, 0], data=[]), "at most 1048576"),
    "a tensor as large as may be": (asked(shape=[1, 1 << 38], data=None), "neither data nor"),
    "a larger tensor": (asked(shape=[1, 1 << 39], data=None), "larger than any request"),
    "a longer name": (asked(name="x" * 1001), "is a tensor with a name"),
    "a longer id": (asked({"id": "i" * 1001}), "at most 1000 letters"),
    "no list of outputs": (asked({"outputs": "y"}), "outputs is a list of objects with a name"),
    "a number beyond FP32": (asked(data=[1e39]), "do not fit FP32"),
    "a number beyond FP16": (asked(datatype="FP16", data=[70000]), "do not fit FP16"),
    "lists of another shape": (asked(shape=[2, 3], data=[[1, 2], [3, 4], [5, 6]]), "not of its sh"),
    "the same input twice": (asked({"inputs": [ONE, ONE]}), "input 'x' is given twice"),
    "more JSON than may be": (asked().ljust(MOST_JSON + 1), "at most 8388608 bytes of JSON"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_beyond_a_limit_is_refused(what: str) -> None:
    body, sentence = REFUSED[what]
    with pytest.raises(InvalidInput, match=sentence):
        InferRequest.read(body, None)


@pytest.mark.parametrize(("datatype", "hint"), [("FP31", "did you mean FP32?"), (31, None)])
def test_an_unknown_datatype_names_the_likely_one(datatype: Any, hint: str | None) -> None:
    with pytest.raises(InvalidInput, match=r"datatype of input 'x' cannot be .*31") as refused:
        InferRequest.read(asked(datatype=datatype), None)
    assert refused.value.hint == hint


@pytest.mark.parametrize("zeros", [0, 20])
def test_the_header_may_say_that_all_is_json(zeros: int) -> None:
    body = asked()
    size = str(len(body)).zfill(zeros).encode()
    assert InferRequest.read(body, size).inputs["x"].tolist() == [[0.5]]


@pytest.mark.parametrize("size", ["{longer}", "{length:021}", "-1", "", "1e2"])
def test_a_header_that_the_body_does_not_fit_is_refused(size: str) -> None:
    body = asked()
    given = size.format(longer=len(body) + 1, length=len(body)).encode()
    with pytest.raises(InvalidInput, match="Inference-Header-Content-Length is"):
        InferRequest.read(body, given)


@pytest.mark.parametrize("size", [3, 5, 8, 4.0, True])
def test_bytes_of_another_size_are_refused(size: Any) -> None:
    tensor = {**ONE, "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor]}).encode()
    with pytest.raises(
        InvalidInput,
        match=r"has 4 bytes, but 3 came|binary_data_size of input 'x' is .*, but 4 bytes",
    ):
        InferRequest.read(head + bytes(4), str(len(head)).encode())


def test_parameters_that_are_null_count_as_not_given() -> None:
    """Clients write a field that nobody set so."""
    wanted = [{"name": "y", "parameters": {"binary_data": None}}]
    given = {"outputs": wanted, "parameters": {"binary_data_output": None}}
    request = InferRequest.read(asked(given), None)
    assert (request.outputs, request.binary) == ({"y": False}, False)


def test_bytes_that_are_no_booleans_are_refused() -> None:
    """numpy takes any byte for true, and a graph may compute with a 2."""
    form = TensorForm.read("x", "BOOL", [3])
    assert form.from_bytes(b"\0\1\1").tolist() == [False, True, True]
    assert TensorForm.read("x", "BOOL", [0]).from_bytes(b"").size == 0
    with pytest.raises(InvalidInput, match="BOOL of input 'x' are bytes of 0 or 1"):
        form.from_bytes(b"\0\1\2")


def test_each_output_comes_as_it_was_asked_for() -> None:
    outputs = {"y": np.array([[1.5]], np.float32), "z": np.array([[np.inf]], np.float32)}
    wanted = [{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}]
    request = InferRequest.read(asked({"outputs": wanted, "id": "a"}), None)
    body, headers = request.answer({"id": request.id}, outputs)
    size = int(dict(headers)[b"inference-header-content-length"])
    assert json.loads(body[:size]) == {
        "id": "a",
        "outputs": [
            {"name": "z", "shape": [1, 1], "datatype": "FP32",
             "parameters": {"binary_data_size": 4}},
            {"name": "y", "shape": [1, 1], "datatype": "FP32", "data": [1.5]},
        ],
    }  # fmt: skip
    assert body[size:] == outputs["z"].tobytes()
    with pytest.raises(
        InvalidInput, match=r"'z' is not finite, which JSON .*\nhint: .*binary_data"
    ):
        InferRequest.read(asked(), None).answer({}, outputs)
