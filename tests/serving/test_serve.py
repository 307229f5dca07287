"""`podium serve`: a real server, asked over HTTP by a client of another project and by plain requests."""

import asyncio
import errno
import gc
import gzip
import io
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pyarrow as pa
import pytest
import uvicorn
from handmade import SHAPES, TABLE, rows_model, save, shapes_model
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from pyarrow import parquet
from servers import Running, serving, tensor
from starlette.testclient import TestClient

from podium.data.profile import Profile
from podium.errors import Failed, InvalidInput, NotFound
from podium.models import Model, open_registry
from podium.prediction import Predictor, open_model
from podium.scoring import OnnxModel
from podium.serving import app, served
from podium.serving.announced import Announcement
from podium.serving.app import Server
from podium.serving.headers import LimitedProtocol
from podium.serving.raw import predict_raw, read_raw
from podium.serving.served import Loaded, Served, find_models
from podium.serving.service import Limits
from podium.system import background
from podium.system.exposition import read_samples

pytestmark = pytest.mark.whole

PARQUET = "application/vnd.apache.parquet"
WIDE, TALL = np.zeros((28, 28), np.uint8), np.zeros((28, 28), np.uint8)
WIDE[13:15, 2:26], TALL[2:26, 13:15] = 255, 255


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with a model of pictures and one of rows."""
    place = tmp_path_factory.mktemp("serving") / "store"
    registry = open_registry(place)
    for name, graph, described in (
        ("shapes", shapes_model(), SHAPES),
        ("rows", rows_model(), TABLE),
    ):
        files: dict[str, Path | bytes] = {
            "model.onnx": graph,
            "preprocessing.json": json.dumps(described).encode(),
        }
        registry.model(name).upload(files, {"run_id": "v1"})
        registry.model(name).set_champion("v1", {}, expect=None)
    return place


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Running]:
    with serving("--storage", store) as running:
        yield running


def test_the_first_page_has_a_form_for_each_model(server: Running) -> None:
    page = server.http.get("/").text
    assert re.findall(r'data-try="([^"]*)"', page) == [
        "/v2/models/rows/predict",
        "/v2/models/shapes/predict",
    ]
    assert re.findall(r'<input name="(\w+)"', page) == ["x", "color"]
    assert re.findall(r'(?:src|href)="(?!/|data:)[^"]*"', page) == []


def test_each_form_offers_its_own_models_values(store: Path) -> None:
    (model,) = find_models(["rows"], str(store))
    models = [model, Served("others", model._find)]
    for each in models:
        each.open()
    with TestClient(Server(models, token="", limits=Limits(), follow=60)) as http:
        page = http.get("/").text
    offered = re.findall(r'<datalist id="([^"]+)"', page)
    assert offered == re.findall(r' list="([^"]+)"', page)
    assert len({*offered}) == 2


def test_an_ipv6_address_is_printed_as_a_url_has_it(store: Path) -> None:
    with serving("shapes", "--storage", store, "--host", "::1") as running:
        assert running.url.startswith("http://[::1]:")
        assert running.http.get("/v2/health/live").json() == {"live": True}


def test_health_and_metadata_are_the_protocols(server: Running) -> None:
    assert server.http.get("/v2/health/live").json() == {"live": True}
    assert server.http.get("/v2/health/ready").json() == {"ready": True}
    assert server.http.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert server.http.get("/v2/models/shapes/versions/v1/ready").json() == {
        "name": "shapes",
        "ready": True,
    }
    assert server.http.get("/v2/models/shapes").json() == {
        "name": "shapes", "versions": ["v1"], "platform": "onnx_onnxv1",
        "inputs": [{"name": "images", "datatype": "UINT8", "shape": [-1, 28, 28]}],
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}],
    }  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
def test_a_foreign_client_gets_what_the_model_says(server: Running, binary: bool) -> None:
    from tritonclient import http as triton

    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_model_ready("shapes")
    given = triton.InferInput("images", [2, 28, 28], "UINT8")
    given.set_data_from_numpy(np.stack([WIDE, TALL]), binary_data=binary)
    wanted = triton.InferRequestedOutput("logits", binary_data=binary)
    result = client.infer("shapes", [given], outputs=[wanted], request_id="17")
    assert result.get_response()["id"] == "17"
    assert result.get_response()["model_version"] == "v1"
    assert result.as_numpy("logits").argmax(1).tolist() == [0, 1]
    client.close()


def test_a_fixed_batch_answers_any_number_of_rows(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(shapes_model(batch=2))
    with serving(f"{tmp_path}/") as server:
        model = server.http.get(f"/v2/models/{tmp_path.name}").json()
        assert [side["shape"] for side in model["inputs"] + model["outputs"]] == [
            [-1, 28, 28],
            [-1, 2],
        ]
        for pictures in ([TALL], [WIDE, TALL], [TALL, WIDE, TALL]):
            given = {"inputs": [tensor(np.stack(pictures), "images", "UINT8")]}
            (said,) = server.infer(tmp_path.name, given).json()["outputs"]
            expected = [int(picture is TALL) for picture in pictures]
            assert np.reshape(said["data"], said["shape"]).argmax(1).tolist() == expected


def test_answers_are_those_of_the_model_itself(server: Running, store: Path) -> None:
    table = np.array([[1.5, 1], [-2, 0]], np.float32)
    answer = server.infer("rows", {"inputs": [tensor(table, "table", "FP32")]}).json()
    assert answer["outputs"] == [
        {"name": "logits", "shape": [2, 2], "datatype": "FP32", "data": [-1.5, 101.5, 2.0, -2.0]}
    ]
    assert answer["id"]


def test_raw_items_are_prepared_as_the_training_data_were(server: Running, tmp_path: Path) -> None:
    Image.fromarray(255 - TALL).save(tmp_path / "tall.png")
    where, png = "/v2/models/shapes/predict", (tmp_path / "tall.png").read_bytes()
    said = server.http.post(where, content=png, headers={"content-type": "image/png"}).json()
    assert said["predictions"][0]["class"] == "tall"
    rows = [{"x": 1, "color": "green"}, {"x": -200, "color": "red"}]
    said = server.http.post("/v2/models/rows/predict", json={"rows": rows}).json()
    assert [item["class"] for item in said["predictions"]] == ["high", "low"]
    said = server.http.post(
        "/v2/models/rows/predict",
        content="x,color\n3,green\n",
        headers={"content-type": "text/csv"},
    )
    assert said.json()["predictions"][0]["class"] == "high"


@pytest.mark.parametrize(
    ("media", "content", "words"),
    [
        ("text/csv", b"x,color\nmany,red\n", "items.csv, row 1, column x: 'many' is not a number"),
        ("text/csv", b"y,color\n1,red\n", "items.csv has no column 'x'"),
        ("text/csv", b"x,color", "items.csv cannot be read as CSV"),
        ("image/png", b"abc", "this file is items.png"),
        ("application/json", b'{"rows": [{"x": [1], "color": "red"}]}', "x is [1]"),
    ],
)
def test_errors_of_raw_items_name_no_path_of_the_server(
    server: Running, media: str, content: bytes, words: str
) -> None:
    where, kind = "/v2/models/rows/predict", {"content-type": media}
    answer = server.http.post(where, content=content, headers=kind)
    said = answer.text
    assert (words in said, answer.status_code < 500) == (True, True), said
    assert tempfile.gettempdir() not in said


def test_values_that_training_did_not_have_are_counted(server: Running) -> None:
    rows = [{"x": 1, "color": color} for color in ("red", "mauve", None, None, None)]
    before = values(server)
    answer = server.http.post("/v2/models/rows/predict", json={"rows": rows})
    said = {name: json.loads(answer.headers[f"podium-{name}-values"]) for name in before}
    assert said == {"unknown": {"color": 1}, "missing": {"color": 3}}
    after = values(server)
    assert {name: after[name] - before[name] for name in after} == {"unknown": 1, "missing": 3}
    rows = [{"x": 1, "color": "red"}]
    assert (
        "podium-unknown-values"
        not in server.http.post("/v2/models/rows/predict", json={"rows": rows}).headers
    )


def test_errors_of_tensors_name_no_path_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/model.onnx").write_bytes(constant(7))
    with serving(tmp_path / "trained") as server:
        for name in ("table", "tables"):
            body = {"inputs": [tensor(np.zeros((1, 1), np.int64), name, "INT64")]}
            said = server.infer("trained", body).json()["error"]
            assert said.startswith("trained takes "), said
            assert str(tmp_path) not in said


ONE = tensor(np.stack([WIDE]), "images", "UINT8")
WRONG: dict[str, tuple[int, Any, str]] = {
    "a name": (400, {"inputs": [{**ONE, "name": "image"}]}, "takes images (uint8 [n, 28, 28])"),
    "a datatype": (400, {"inputs": [{**ONE, "datatype": "FP32"}]}, "takes images (uint8"),
    "an unknown datatype": (400, {"inputs": [{**ONE, "datatype": "UINT"}]}, "cannot be 'UINT'"),
    "a shape": (400, {"inputs": [{**ONE, "shape": [1, 784]}]}, "takes images (uint8 [n, 28, 28])"),
    "a shape that data do not fill": (
        400,
        {"inputs": [{**ONE, "shape": [2, 28, 28]}]},
        "has 1568 elements, but data has 784",
    ),
    "no shape": (400, {"inputs": [{**ONE, "shape": "28"}]}, "is a list of sizes, but got '28'"),
    "data of another type": (400, {"inputs": [{**ONE, "data": ["a"] * 784}]}, "are no UINT8"),
    "data out of range": (400, {"inputs": [{**ONE, "data": [300] * 784}]}, "do not fit UINT8"),
    "ragged data": (400, {"inputs": [{**ONE, "data": [[1], [1, 2]]}]}, "unequal lengths"),
    "no data": (400, {"inputs": [{**ONE, "data": None}]}, "neither data nor binary_data_size"),
    "no inputs": (400, {}, "inputs is a list of tensors"),
    "a list": (400, [1], "a JSON object, not list"),
    "an output": (400, {"inputs": [ONE], "outputs": [{"name": "logit"}]}, "no output 'logit'"),
    "an input too many": (
        400,
        {"inputs": [ONE, {**ONE, "name": "mask"}]},
        "shapes v1 has no input 'mask'; it takes images (uint8 [n, 28, 28])",
    ),
    "a word for a boolean": (
        400,
        {"inputs": [ONE], "outputs": [{"name": "logits", "parameters": {"binary_data": "false"}}]},
        "binary_data of output 'logits' is true or false, but got 'false'",
    ),
    "a number for a boolean": (
        400,
        {"inputs": [ONE], "parameters": {"binary_data_output": 0}},
        "binary_data_output is true or false, but got 0",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_a_sentence(what: str, server: Running) -> None:
    status, body, sentence = WRONG[what]
    answer = server.infer("shapes", body)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]


def test_an_unused_input_of_the_training_part_is_taken() -> None:
    measured = Profile.of([("mask", "other", (), [np.zeros((3, 2))])])
    kept = {"profile.json": json.loads(json.dumps(asdict(measured)))}
    predictor = Predictor("rows", lambda: OnnxModel(rows_model()), lambda name: kept.get(name, {}))
    given = {name: np.zeros((1, 2), np.float32) for name in ("table", "mask")}

    async def check() -> None:
        loaded = Loaded.of("v1", "", predictor)
        loaded.check_names(given)
        with pytest.raises(InvalidInput, match="rows has no input 'masks'; it takes table"):
            loaded.check_names({**given, "masks": given["mask"]})
        await loaded.close()

    asyncio.run(check())


DEEP = b"[" * 900 + b"]" * 900


def shaped(*shape: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": [{**ONE, "shape": list(shape), **more}]}).encode()


def asked(**more: Any) -> bytes:
    return json.dumps({"inputs": [ONE], **more}).encode()


def data(text: bytes, datatype: str = "FP32") -> bytes:
    head = (
        b'{"inputs":[{"name":"images","shape":[1,28,28],"datatype":"%s","data":' % datatype.encode()
    )
    return head + text + b"}]}"


MALFORMED: dict[str, bytes] = {
    "nothing": b"", "no object": b"5", "null": b"null", "half": b'{"inputs":', "no UTF-8": b'{"inputs":"\xff"}',
    "a lone surrogate as id": b'{"id":"\\ud800","inputs":[]}', "a lone surrogate as name": b'{"inputs":[{"name":"\\udfff"}]}',
    "NUL": b"\x00", "deep": DEEP, "very deep": b"[" * 100_000, "deep objects": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "deep inputs": b'{"inputs":' + DEEP + b"}", "deep id": asked()[:-1] + b',"id":' + DEEP + b"}",
    "deep outputs": asked()[:-1] + b',"outputs":' + DEEP + b"}", "deep parameters": asked()[:-1] + b',"parameters":' + DEEP + b"}",
    "deep data": data(DEEP), "deep shape": data(b"[]").replace(b"[1,28,28]", DEEP),
    "deep datatype": data(b"[]").replace(b'"FP32"', DEEP), "deep name": b'{"inputs":[{"name":' + DEEP + b"}]}",
    "inputs 5": b'{"inputs":5}', "inputs of numbers": b'{"inputs":[5]}', "inputs null": b'{"inputs":null}',
    "outputs 5": asked(outputs=5), "outputs true": asked(outputs=True), "outputs a word": asked(outputs="logits"),
    "outputs of numbers": asked(outputs=[5]), "outputs of an object": asked(outputs={"name": "logits"}),
    "an output's name 5": asked(outputs=[{"name": 5}]), "an output's parameters": asked(outputs=[{"name": "logits", "parameters": 5}]),
    "a long output": asked(outputs=[{"name": "x" * 3_000_000}]), "an id that is a list": asked(id=[1]), "a long id": asked(id="x" * 5000),
    "parameters 5": asked(parameters=5), "parameters of a list": asked(parameters=[1]),
    "a name 5": data(b"[]").replace(b'"images"', b"5"), "a long name": data(b"[]").replace(b"images", b"x" * 1_000_000),
    "no shape": shaped(), "a negative size": shaped(-1, 28, 28), "a size of 1.0": shaped(1.0, 28, 28), "a size true": shaped(True, 28, 28),
    "a size beyond 64 bits": shaped(2**70, 28, 28), "a product beyond 64 bits": shaped(2**40, 2**40), "large sizes": shaped(*[2**62] * 100_000),
    "many axes": shaped(*[1] * 1000), "an axis of 0 and large ones": shaped(0, 2**62), "rows without columns": shaped(2**40, 0),
    "a datatype 5": asked().replace(b'"UINT8"', b"5"), "a datatype of a list": asked().replace(b'"UINT8"', b"[]"),
    "a long datatype": asked().replace(b"UINT8", b"U" * 1_000_000), "BYTES": asked().replace(b"UINT8", b"BYTES"),
    "one long text": data(json.dumps(["x" * 1_000_000] + [""] * 783).encode()),
    "texts of numbers": data(b'["1"' + b',"1"' * 783 + b"]"), "nulls": data(b"[null" + b",null" * 783 + b"]"),
    "objects": data(b"[{}" + b",{}" * 783 + b"]"), "an object": data(b"{}"), "ragged": data(b"[[1],[1,2]]"),
    "mixed depths": data(b"[1,[2]]"), "numbers beyond 64 bits": data(b"[" + b"9" * 30 + b",1" * 783 + b"]", "INT64"),
    "a number of 5000 digits": data(b"[" + b"9" * 5000 + b",1" * 783 + b"]", "INT64"),
    "fractions of integers": data(b"[1.5" + b",1" * 783 + b"]", "UINT8"), "true as an integer": data(b"[true" + b",1" * 783 + b"]", "UINT8"),
    "negative as unsigned": data(b"[-1" + b",1" * 783 + b"]", "UINT8"), "NaN as an integer": data(b"[NaN" + b",1" * 783 + b"]", "UINT8"),
    "a size of bytes true": shaped(1, 28, 28, parameters={"binary_data_size": True}),
    "a size of bytes beyond 64 bits": shaped(1, 28, 28, parameters={"binary_data_size": 2**70}),
    "bytes that are not there": shaped(1, 28, 28, parameters={"binary_data_size": 784}),
    "bytes left over": asked() + b"abc", "the same input twice": json.dumps({"inputs": [ONE, ONE]}).encode(),
    "much JSON": b"[" + b"1," * (5 << 20) + b"1]",
}  # fmt: skip
RAW: dict[str, bytes] = {
    "deep": b'{"rows":' + DEEP + b"}", "very deep": b'{"rows":' * 5000 + b"1", "no rows": b'{"rows":[]}', "rows 5": b'{"rows":5}',
    "a lone surrogate": b'{"texts":["\\ud800"]}', "a row of a list": b'{"rows":[[1]]}', "a deep row": b'{"rows":[{"x":' + DEEP + b"}]}",
    "a number of 5000 digits": b'{"rows":[{"x":' + b"9" * 5000 + b"}]}", "no UTF-8": b"\xff", "nothing": b"",
    "columns of another model": b'{"rows":[{"y":1}]}', "texts for rows": b'{"texts":["a"]}',
}  # fmt: skip


def test_every_malformed_request_is_a_sentence(server: Running) -> None:
    assert len(MALFORMED) + len(RAW) >= 53
    where = {**{what: ("shapes/infer", body) for what, body in MALFORMED.items()},
             **{f"raw {what}": ("rows/predict", body) for what, body in RAW.items()}}  # fmt: skip
    for what, (path, body) in where.items():
        answer = server.http.post(
            f"/v2/models/{path}", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400, (what, answer.text[:300])
        assert 10 < len(answer.json()["error"]) < 3000, (what, answer.text[:300])
    for size in ("9" * 5000, "-1", "1e3", "٣", ""):
        answer = server.http.post(
            "/v2/models/shapes/infer",
            content=asked(),
            headers={b"inference-header-content-length": size.encode()},
        )
        assert answer.status_code == 400, size
    assert not [line for line in server.said if "Traceback" in line]
    assert server.infer("shapes", {"inputs": [ONE]}).status_code == 200


def test_headers_are_limited_before_the_token(server: Running) -> None:
    for more in ({"x": "y" * 100_000}, {f"x{at}": "y" * 100 for at in range(1000)}):
        answer = httpx.get(f"{server.url}/v2/models/shapes", headers=more)
        assert (answer.status_code, "65536 bytes of headers" in answer.json()["error"]) == (
            431,
            True,
        )
    held = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
    began, sent = time.monotonic(), 0
    held.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: ")
    with suppress(ConnectionError):
        while sent < 60 << 20:
            sent += held.send(b"y" * 65536)
    assert sent < 16 << 20, "it hangs up"
    assert time.monotonic() - began < 5
    held.close()
    body = json.dumps(
        {"inputs": [tensor(np.zeros((30_000, 2), np.float32), "table", "FP32")]}
    ).encode()
    answer = server.http.post("/v2/models/rows/infer", content=body)
    assert answer.status_code == 200, "a body is no header"
    head = f"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as piped:
        piped.sendall(
            head + body + b"GET /v2 HTTP/1.1\r\nHost"
        )  # what follows a body in one piece is none of it
        assert piped.recv(15) == b"HTTP/1.1 200 OK"
        piped.sendall(b": x\r\nConnection: close\r\n\r\n")
        assert b"".join(iter(lambda: piped.recv(1 << 20), b"")).count(b"HTTP/1.1 200 OK") == 1


class Hasty(LimitedProtocol):
    seconds = 0.5


def _connected(server: Running) -> socket.socket:
    held = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
    held.settimeout(30)
    return held


@pytest.mark.parametrize("more", [b"X: " + b"y" * 1000 + b"\r\n", b"X:\r\n", b"y" * 1000])
def test_trailers_are_limited_as_headers_are(server: Running, more: bytes) -> None:
    body = asked()
    with _connected(server) as held:
        held.sendall(b"POST /v2/models/shapes/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        held.sendall(b"%x\r\n%s\r\n0\r\nX: 1" % (len(body), body))
        began, sent, piece = time.monotonic(), 0, more * (65536 // len(more))
        with suppress(ConnectionError):
            while sent < 60 << 20 and time.monotonic() < began + 20:
                held.sendall(piece)
                sent += len(piece)
    assert sent < 16 << 20, "it hangs up"
    assert server.infer("shapes", {"inputs": [ONE]}).status_code == 200


def test_trailers_are_no_headers(server: Running) -> None:
    body = asked()
    with _connected(server) as held:
        held.sendall(
            b"POST /v2/models/shapes/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"%x\r\n%s\r\n0\r\nX-Request-Id: trailed\r\n\r\n" % (len(body), body)
        )
        answer = held.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b"trailed" not in answer


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_an_upgrade_that_is_offered_is_passed_over(server: Running, more: bytes) -> None:
    """As Java's HttpClient offers it with every request, and curl --http2."""
    body = asked(id="upgraded")
    head = b"POST /v2/models/shapes/infer HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n%sUpgrade: h2c\r\n" \
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: %d\r\n\r\n" % (more, len(body))  # fmt: skip
    for pieces in ([head + body], [head, body], [(head + body) * 500]):
        with _connected(server) as held:
            for piece in pieces:
                held.sendall(piece)
                time.sleep(0.1)
            wanted, answer = b"".join(pieces).count(body), b""
            while answer.count(b"}]}") < wanted:
                came = held.recv(65536)
                assert came, answer[-500:]
                answer += came
            assert answer.count(b"HTTP/1.1 200") == wanted
    assert not [line for line in server.said if "pgrade" in line or "Traceback" in line]


def test_headers_that_do_not_come_are_not_waited_for() -> None:
    server = Server([], token="", limits=Limits(), follow=60)
    config = uvicorn.Config(server, port=0, log_level="warning", http=Hasty)
    running, listening = uvicorn.Server(config), config.bind_socket()
    listening.listen()
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    live = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    try:
        for sent in (b"", b"GET /v2/hea", b"\r\n", live + b"GET", live + b"\r\n"):
            with socket.create_connection(listening.getsockname()) as held:
                held.settimeout(60)
                held.sendall(sent)
                said = b"".join(
                    iter(lambda held=held: held.recv(1 << 16), b"")
                )  # until it is closed
            assert said.count(b'{"live":true}') == sent.count(live)
        with socket.create_connection(listening.getsockname()) as held:
            held.sendall(live.replace(b"GET", b"POST").replace(b"live", b"none") * 2)
            assert held.recv(1 << 16).startswith(b"HTTP/1.1 404")
    finally:
        running.should_exit = True
        thread.join()
        listening.close()


def test_a_full_disk_keeps_no_server_from_serving(store: Path, home: Path) -> None:
    (model,) = find_models(["rows"], str(store))
    announced = Announcement("http://127.0.0.1:1", [model])
    with open("/dev/full", "r+b", buffering=0) as full:
        announced._file = full.fileno()
        model.open()
        assert model.opened


def test_a_run_ends_once_nobody_waits_for_it(tmp_path: Path) -> None:
    size, count = 600, 400
    weights = numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")
    names = ["x", *map(str, range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[at], "w"], [names[at + 1]]) for at in range(count)]
    model = save(nodes, {"x": (TensorProto.FLOAT, ["n", size])}, "y", size, weights)
    (tmp_path / "long").mkdir()
    (tmp_path / "long/model.onnx").write_bytes(model)
    with serving(tmp_path / "long", "--timeout", "2") as server:
        assert infer_rows(server, 4000, size).status_code == 504
        began = time.monotonic()
        while infer_rows(server, 1, size).status_code != 200:
            assert time.monotonic() - began < 4, "the next is answered"


def test_raw_work_ends_once_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.onnx").write_bytes(slow(100))
    (tmp_path / "preprocessing.json").write_text(json.dumps({**TABLE, "classes": []}))
    rows = b"".join(b'{"x": 1, "color": "red"}\n' for _ in range(20_000))  # minutes of work
    with pytest.raises(Failed, match="no answer in time"):
        predict_raw(open_model(tmp_path), "application/x-ndjson", rows, until=time.monotonic() + 1)


def infer_rows(server: Running, rows: int, size: int) -> httpx.Response:
    held = {
        "name": "x",
        "shape": [rows, size],
        "datatype": "FP32",
        "parameters": {"binary_data_size": rows * size * 4},
    }
    head = json.dumps({"inputs": [held], "parameters": {"binary_data_output": True}}).encode()
    sized = {"inference-header-content-length": str(len(head))}
    return server.http.post(
        "/v2/models/long/infer", content=head + bytes(rows * size * 4), headers=sized
    )


def test_many_raw_rows_do_not_hold_the_event_loop(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[str]()

    def read(body: bytes, media: str) -> tuple[str, bytes]:
        threads.append(threading.current_thread().name)
        return read_raw(body, media)

    monkeypatch.setattr(app, "read_raw", read)
    server = Server(find_models(["rows"], str(store)), token="", limits=Limits(), follow=3600)
    server.service.models["rows"].open()
    with TestClient(server) as http:
        rows = [{"x": 1, "color": "green"}] * 3000
        answer = http.post("/v2/models/rows/predict", json={"rows": rows})
        many = http.post("/v2/models/rows/predict", json={"texts": [""] * 100_001})
    assert len(answer.json()["predictions"]) == 3000
    assert [name.rpartition("_")[0] for name in threads] == ["podium-request"] * 2
    assert (many.status_code, "at most 100000 items" in many.text) == (400, True)


def test_a_server_starts_without_pandas() -> None:
    code = "import sys; from podium.data import values; import podium.serving.app; print('pandas' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        == b"False\n"
    )


@pytest.mark.parametrize("media", ["text/csv", "application/json", PARQUET])
def test_columns_that_nobody_needs_are_limited(server: Running, media: str) -> None:
    count = 20_000 if media == PARQUET else 200_000
    names = ["x", "color", *[f"c{at}" for at in range(count)]]
    body = f"{','.join(names)}\n1,red\n".encode()
    if media == "application/json":
        body = json.dumps({"rows": [dict.fromkeys(names, 1)]}).encode()
    if media == PARQUET:
        held = io.BytesIO()
        parquet.write_table(pa.table({name: ["1"] for name in names}), held)
        body = held.getvalue()
    began = time.monotonic()
    answer = server.http.post(
        "/v2/models/rows/predict", content=body, headers={"content-type": media}
    )
    assert (answer.status_code, time.monotonic() - began < 12) == (400, True)
    assert f"{count:,} columns beside those that the model needs" in answer.json()["error"]


def test_a_small_file_of_many_rows_is_refused(server: Running, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    count = 3_000_000
    table = pyarrow.table(
        {"x": np.zeros(count), "color": pyarrow.array(["red"] * count).dictionary_encode()}
    )
    parquet.write_table(table, tmp_path / "many.parquet")
    body = (tmp_path / "many.parquet").read_bytes()
    assert len(body) < 100_000
    began = time.monotonic()
    answer = server.http.post(
        "/v2/models/rows/predict",
        content=body,
        headers={"content-type": "application/vnd.apache.parquet"},
    )
    assert (answer.status_code, "3000000 rows" in answer.json()["error"]) == (400, True)
    assert time.monotonic() - began < 5
    lines = b"x,color\n" + b"1,red\n" * 200_000
    answer = server.http.post(
        "/v2/models/rows/predict", content=lines, headers={"content-type": "text/csv"}
    )
    assert (answer.status_code, "at most 100000 items" in answer.json()["error"]) == (400, True)


def test_a_text_that_a_dictionary_repeats_is_counted(server: Running, tmp_path: Path) -> None:
    """Of a million letters once, sixty thousand rows have sixty gigabytes."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    count = 60_000
    texts = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(np.zeros(count, np.int32)), pyarrow.array(["x" * 1_000_000])
    )
    table = pyarrow.table({"x": np.zeros(count), "color": texts})
    parquet.write_table(table, tmp_path / "large.parquet", compression="zstd", store_schema=False)
    body = (tmp_path / "large.parquet").read_bytes()
    assert len(body) < 100_000
    answer = server.http.post(
        "/v2/models/rows/predict",
        content=body,
        headers={"content-type": "application/vnd.apache.parquet"},
    )
    assert (answer.status_code, "60000 rows of 6000" in answer.json()["error"]) == (400, True)


def test_tensors_beside_the_columns_of_a_model_are_not_read(
    server: Running, tmp_path: Path
) -> None:
    """Of a tensor of a million numbers, which a file holds once, each row has its own."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    count, size = 300, 1_000_000
    zeros = pyarrow.nulls(count * size, pyarrow.float32()).fill_null(0)
    kind = pyarrow.fixed_shape_tensor(pyarrow.float32(), [size])
    held = pyarrow.FixedSizeListArray.from_arrays(zeros, size)
    tensors = pyarrow.ExtensionArray.from_storage(kind, held)
    notes = pyarrow.ExtensionArray.from_storage(pyarrow.json_(), pyarrow.array(["{}"] * count))
    columns = {"x": np.zeros(count), "color": ["red"] * count}
    for further, values in (
        ("more", tensors),
        ("color", tensors),
        ("more", notes),
        ("color", notes),
    ):
        table = pyarrow.table({**columns, further: values})
        parquet.write_table(table, tmp_path / "large.parquet", compression="zstd")
        answer = server.http.post(
            "/v2/models/rows/predict",
            content=(tmp_path / "large.parquet").read_bytes(),
            headers={"content-type": "application/vnd.apache.parquet"},
        )
        assert answer.status_code == (200 if further == "more" else 400), answer.text
    assert "color" in answer.json()["error"]
    assert "not readable" not in answer.json()["error"]


def test_lists_beside_the_columns_of_a_model_are_not_read(server: Running, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"x": [1.0, -200.0], "color": ["green", "red"]}
    answers = []
    for further in ({}, {"embedding": [[1.0] * 100, None], "from": [{"id": 1}, {"id": 2}]}):
        parquet.write_table(pyarrow.table({**further, **rows}), tmp_path / "rows.parquet")
        answer = server.http.post(
            "/v2/models/rows/predict",
            content=(tmp_path / "rows.parquet").read_bytes(),
            headers={"content-type": "application/vnd.apache.parquet"},
        )
        assert answer.status_code == 200, answer.text
        answers.append([said["class"] for said in answer.json()["predictions"]])
    assert answers[0] == answers[1]


def test_a_model_goes_before_a_folder_of_its_name(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    model = find_models(["rows"], str(store))[0]
    model.open()
    assert model.now.version != "1"
    with pytest.raises(NotFound, match="no model under"):
        find_models(["./rows"], str(store))[0].open()


def test_work_ends_when_nobody_waits_any_more(store: Path) -> None:
    model = find_models(["rows"], str(store))[0]
    model.open()
    body, media = read_raw(
        json.dumps({"rows": [{"x": 1, "color": "red"}] * 10}).encode(), "application/json"
    )
    with pytest.raises(Failed, match="no answer in time"):
        predict_raw(model.now.predictor, body, media, until=time.monotonic() - 1)


def test_a_full_disk_is_said_in_a_sentence(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = find_models(["rows"], str(store))[0]
    model.open()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with TestClient(Server([model], token="", limits=Limits(), follow=60)) as http:
        monkeypatch.setattr(Path, "write_bytes", full)
        answer = http.post("/v2/models/rows/predict", json={"rows": [{"x": 1, "color": "red"}]})
        assert (answer.status_code, answer.json()) == (
            507,
            {"error": "there is no room on the server's disk"},
        )


def test_other_requests_are_refused_in_words(server: Running) -> None:
    answers = {
        "no model 'shape' is served\nhint: did you mean shapes?": server.infer("shape", {}),
        "version 'v9' of shapes is not served\nhint: v1 is": server.http.get(
            "/v2/models/shapes/versions/v9"
        ),
        "the request is not readable as JSON": server.http.post(
            "/v2/models/shapes/infer", content="{"
        ),
        "Inference-Header-Content-Length is '99'": server.http.post(
            "/v2/models/shapes/infer",
            content="{}",
            headers={"inference-header-content-length": "99"},
        ),
        "items do not come as 'video/mp4'": server.http.post(
            "/v2/models/shapes/predict", content="x", headers={"content-type": "video/mp4"}
        ),
        "has neither rows": server.http.post("/v2/models/rows/predict", json={"row": 1}),
    }
    for sentence, answer in answers.items():
        assert 400 <= answer.status_code < 500
        assert sentence in answer.json()["error"]


def until_said(server: Running, line: str) -> None:
    end = time.monotonic() + 60
    while line not in (page := server.http.get("/metrics").text):
        assert time.monotonic() < end, page
        time.sleep(0.02)


def values(server: Running) -> dict[str, float]:
    """Return how many values of the column color were counted so far, by why."""
    page = server.http.get("/metrics").text
    names = {name: f"podium_serve_{name}_values_total" for name in ("unknown", "missing")}
    labels = {"model": "rows", "column": "color"}
    return {
        name: sum(many for found, many in read_samples(page, metric) if found == labels)
        for name, metric in names.items()
    }


def test_what_cannot_be_read_is_said_at_its_place(server: Running) -> None:
    rows = [{"x": x, "color": "red"} for x in (1, "many", -1)]
    said = server.http.post("/v2/models/rows/predict", json={"rows": rows}).json()["predictions"]
    assert [item.get("class") for item in said] == ["high", None, "low"]
    assert "row 2, column x: 'many' is not a number" in said[1]["problem"]


def test_a_client_that_hangs_up_counts_as_such(server: Running) -> None:
    host, _, port = server.url.rpartition("/")[2].partition(":")
    for path in ("infer", "predict"):
        with socket.create_connection((host, int(port))) as held:
            held.sendall(f"POST /v2/models/rows/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())  # fmt: skip
            until_said(server, "podium_serve_under_way 1")
    until_said(server, 'requests_total{model="rows",status="499"} 2')
    assert 'requests_total{model="rows",status="500"}' not in server.http.get("/metrics").text


def test_inference_takes_no_other_verb_than_post(server: Running) -> None:
    answer = server.http.get("/v2/models/shapes/infer")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json() == {"error": "/v2/models/shapes/infer takes POST, not GET"}


def test_numbers_in_an_answer_are_those_of_the_model(server: Running) -> None:
    table = np.array([[0.1, 1], [1e-7, 0], [12345.678, 1]], np.float32)
    (output,) = server.infer("rows", {"inputs": [tensor(table, "table", "FP32")]}).json()["outputs"]
    said = np.array(output["data"], np.float32).reshape(output["shape"])
    assert (
        said.tobytes()
        == np.stack([-table[:, 0] + 0.0, table[:, 0] + 100 * table[:, 1]], 1).tobytes()
    )


def test_a_text_is_never_read_as_a_path(server: Running, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret")
    answer = server.http.post(
        "/v2/models/rows/predict", json={"texts": [str(tmp_path / "secret.txt")]}
    )
    assert "secret" not in answer.text.replace("secret.txt", "")


def test_many_clients_at_once_are_answered_in_batches(server: Running) -> None:
    wrong: list[Any] = []

    def ask(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as http:
            for at in range(20):
                x = float(number * 100 + at)
                table = np.array([[x, 0]], np.float32)
                answer = http.post(
                    "/v2/models/rows/infer", json={"inputs": [tensor(table, "table", "FP32")]}
                ).json()
                if answer["outputs"][0]["data"] != [-x, x]:
                    wrong.append(answer)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    page = server.http.get("/metrics").text
    assert 'podium_serve_requests_total{model="rows",status="200"}' in page
    calls = float(re.search(r'podium_serve_batches_total\{model="rows"\} (\d+)', page)[1])  # type: ignore[index]
    rows = float(re.search(r'podium_serve_rows_total\{model="rows"\} (\d+)', page)[1])  # type: ignore[index]
    assert rows >= 320 > calls


def constant(value: float) -> bytes:
    """A model that says one number of every row."""
    weights = numpy_helper.from_array(np.zeros((2, 1), np.float32), "weights")
    more = numpy_helper.from_array(np.array([value], np.float32), "more")
    nodes = [
        helper.make_node("MatMul", ["table", "weights"], ["zero"]),
        helper.make_node("Add", ["zero", "more"], ["number"]),
    ]
    return save(nodes, {"table": (TensorProto.FLOAT, ["n", 2])}, "number", 1, weights, more)


@pytest.fixture
def numbers(tmp_path: Path) -> Model:
    model = open_registry(tmp_path / "store").model("numbers")
    for number in range(1, 4):
        model.upload({"model.onnx": constant(number)}, {"run_id": f"v{number}"})
    model.set_champion("v1", {}, expect=None)
    return model


def test_a_new_champion_takes_over_without_a_lost_request(numbers: Model, tmp_path: Path) -> None:
    with serving("numbers", "--storage", tmp_path / "store", "--follow", "0.2") as server:
        answers: list[tuple[str, float]] = []
        over, wrong = threading.Event(), list[Any]()

        def ask() -> None:
            body = {"inputs": [tensor(np.zeros((1, 2), np.float32), "table", "FP32")]}
            with httpx.Client(base_url=server.url, timeout=30) as http:
                while not over.is_set():
                    answer = http.post("/v2/models/numbers/infer", json=body)
                    if answer.status_code != 200:
                        wrong.append(answer.text)
                        continue
                    answers.append(
                        (answer.json()["model_version"], answer.json()["outputs"][0]["data"][0])
                    )

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for version in ("v2", "v3", "v1", "v2"):
            numbers.promote(version)
            end = time.monotonic() + 10
            while answers[-1:] == [] or answers[-1][0] != version:
                assert time.monotonic() < end
                time.sleep(0.02)
        over.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert {version for version, _ in answers} == {"v1", "v2", "v3"}
    assert all(number == float(version[1:]) for version, number in answers)


def test_a_slow_request_is_answered_by_the_new_champion(numbers: Model, tmp_path: Path) -> None:
    with serving("numbers", "--storage", tmp_path / "store", "--follow", "0.1") as server:
        whole = json.dumps(
            {"inputs": [tensor(np.zeros((1, 2), np.float32), "table", "FP32")]}
        ).encode()

        def pieces() -> Iterator[bytes]:
            yield whole[:20]
            numbers.promote("v3")
            while httpx.get(f"{server.url}/v2/models/numbers").json()["versions"] != ["v3"]:
                time.sleep(0.02)
            yield whole[20:]

        answer = server.http.post("/v2/models/numbers/infer", content=pieces())
    assert (answer.status_code, answer.json().get("model_version")) == (200, "v3")


def test_a_pinned_version_stays(numbers: Model, tmp_path: Path) -> None:
    with serving("numbers@v1", "--storage", tmp_path / "store", "--follow", "0.1") as server:
        numbers.promote("v2")
        time.sleep(0.5)
        assert server.http.get("/v2/models/numbers").json()["versions"] == ["v1"]


def test_other_files_under_the_same_id_take_over(numbers: Model, tmp_path: Path) -> None:
    (model,) = find_models(["numbers@v2"], str(tmp_path / "store"))

    async def replace() -> float:
        model.open()
        numbers.delete("v2")
        numbers.upload({"model.onnx": constant(9)}, {"run_id": "v2"})
        await model.follow()
        said = await model.now.batcher.ask({"table": np.zeros((1, 2), np.float32)})
        return float(said["number"][0, 0])

    assert asyncio.run(replace()) == 9


def test_a_token_is_needed_where_one_is_set(tmp_path: Path) -> None:
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/model.onnx").write_bytes(constant(7))
    (tmp_path / "token").write_text("a-token\n")
    with serving(tmp_path / "trained", "--token-file", tmp_path / "token") as server:
        assert server.http.get("/v2/health/ready").status_code == 200
        assert server.http.get("/v2/models/trained").status_code == 401
        for given, status in (("a-token", 200), ("another", 401)):
            assert (
                server.http.get(
                    "/v2/models/trained", headers={"authorization": f"Bearer {given}"}
                ).status_code
                == status
            )
            answer = server.http.post(
                "/v2/models/trained/infer", json={}, headers={"authorization": f"Bearer {given}"}
            )
            assert answer.status_code == {200: 400, 401: 401}[status]
        refused = server.http.post("/v2/models/trained/infer", json={})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


TOKENS = {
    "Bearer a-token": 200, "bearer a-token": 200, "BEARER  a-token": 200, "a-token": 401, "Basic a-token": 401,
    "Bearer": 401, "Bearer ": 401, "Bearer a-token b": 401, "": 401,
}  # fmt: skip
"""The status that each Authorization header gets (RFC 9110, 11.1)."""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TestClient]:
    """Asks a server in this process that wants a token."""
    (tmp_path / "model.onnx").write_bytes(constant(7))
    model = Served("trained", lambda: ("1", "", lambda: open_model(tmp_path)))
    model.open()
    with TestClient(Server([model], token="a-token", limits=Limits(), follow=60)) as http:
        yield http


def test_a_token_needs_its_scheme_in_any_case(guarded: TestClient) -> None:
    got = {
        given: guarded.get("/v2", headers={"authorization": given}).status_code for given in TOKENS
    }
    assert got == TOKENS


def test_a_host_header_does_not_pass_the_token_by(guarded: TestClient) -> None:
    for host in ("x/v2/health/", "x/v2/health/?", "x/v2/health/#", "/v2/health/live"):
        for path in ("/v2", "/v2/models/trained", "/metrics", "/"):
            assert guarded.get(path, headers={"host": host}).status_code == 401, (host, path)
        predict = guarded.post("/v2/models/trained/predict", headers={"host": host}, json={})
        assert predict.status_code == 401
    assert guarded.get("/v2/health/ready", headers={"host": "x"}).status_code == 200


def test_a_server_that_cannot_follow_says_so_and_goes_on(
    numbers: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE", 0.01)
    (model,) = find_models(["numbers"], str(tmp_path / "store"))
    model.open()
    broken, find = threading.Event(), model._find

    def sometimes() -> Any:
        if broken.is_set():
            raise ValueError("string argument should contain only ASCII characters")
        return find()

    model._find = sometimes
    with TestClient(Server([model], token="", limits=Limits(), follow=0.01)) as http:

        def until(status: int) -> Any:
            end = time.monotonic() + 30
            while (answer := http.get("/v2/health/ready")).status_code != status:
                assert time.monotonic() < end
                time.sleep(0.02)
            return answer.json()

        broken.set()
        assert until(503)["stuck"] == ["following the champion of numbers"]
        page = http.get("/metrics").text
        assert 'podium_serve_trouble{model="numbers"} 1' in page
        assert int(re.search(r'follow_failures_total\{model="numbers"\} (\d+)', page)[1]) >= 5  # type: ignore[index]
        broken.clear()
        assert until(200) == {"ready": True}
        numbers.promote("v2")
        while http.get("/v2/models/numbers").json()["versions"] != ["v2"]:
            time.sleep(0.02)
        assert 'podium_serve_trouble{model="numbers"} 0' in http.get("/metrics").text


def test_a_champion_that_cannot_be_opened_is_logged_once(
    numbers: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (model,) = find_models(["numbers"], str(tmp_path / "store"))
    model.open()
    numbers.upload({"model.onnx": b"no network"}, {"run_id": "v4"})

    async def look() -> None:
        for champion in ("v4", "v4", "v2", "v4"):
            if numbers.champion.version != champion:
                numbers.promote(champion)
            await model.follow()
        await model.close()

    asyncio.run(look())
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(": ")[0] for text in said] == [
        "numbers still answers with v1",
        "numbers still answers with v2",
    ]
    assert "numbers v4" in said[0]


def test_a_store_that_never_answers_is_trouble(
    numbers: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "SLOW_LOOK", 0.2)
    (model,) = find_models(["numbers"], str(tmp_path / "store"))
    model.open()
    silent, find = threading.Event(), model._find

    def waits() -> Any:
        assert silent.wait(30)
        return find()

    model._find = waits
    with TestClient(Server([model], token="", limits=Limits(), follow=0.01)) as http:
        for trouble in (1, 0):
            end = time.monotonic() + 30
            while (
                f'podium_serve_trouble{{model="numbers"}} {trouble}'
                not in http.get("/metrics").text
            ):
                assert time.monotonic() < end
                time.sleep(0.02)
            silent.set()


def slow(seconds_of_work: int) -> bytes:
    """A model that multiplies large matrices many times."""
    size = 1500
    square = numpy_helper.from_array(np.full((2, size), 1e-3, np.float32), "first")
    weights = numpy_helper.from_array(np.full((size, size), 1e-6, np.float32), "weights")
    last = numpy_helper.from_array(np.full((size, 1), 1e-3, np.float32), "last")
    nodes = [helper.make_node("MatMul", ["table", "first"], ["h0"])]
    nodes += [
        helper.make_node("MatMul", [f"h{at}", "weights"], [f"h{at + 1}"])
        for at in range(seconds_of_work)
    ]
    nodes.append(helper.make_node("MatMul", [f"h{seconds_of_work}", "last"], ["number"]))
    return save(nodes, {"table": (TensorProto.FLOAT, ["n", 2])}, "number", 1, square, weights, last)


def test_a_slow_model_keeps_probes_answered_and_drains(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/model.onnx").write_bytes(slow(6))
    rows = np.zeros((1500, 2), np.float32)
    answers: list[int] = []
    with serving(tmp_path / "slow", "--max-requests", "2", "--timeout", "240") as server:
        body = {"inputs": [tensor(rows, "table", "FP32")]}
        threads = [
            threading.Thread(target=lambda: answers.append(server.infer("slow", body).status_code))
            for _ in "12"
        ]
        for thread in threads:
            thread.start()
        while "podium_serve_under_way 2" not in server.http.get("/metrics").text:
            time.sleep(0.02)
        assert server.http.get("/v2/health/live").status_code == 200
        busy = server.infer("slow", body)
        assert busy.status_code == 503, "both were still under way when the probe was answered"
        assert busy.headers["retry-after"] == "1"
    for thread in threads:  # SIGTERM came while they were under way
        thread.join()
    assert answers == [200, 200]


def test_too_large_a_request_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/model.onnx").write_bytes(constant(7))
    with serving(tmp_path / "trained", "--max-body", "1") as server:
        answer = server.http.post("/v2/models/trained/infer", content=b"x" * (2 << 20))
        assert (answer.status_code, answer.json()["error"]) == (
            413,
            "a request has at most 1048576 bytes",
        )
        for path in ("infer", "predict"):
            head = f"POST /v2/models/trained/{path} HTTP/1.1\r\nContent-Length: {1 << 40}\r\n"
            with _connected(server) as held:
                held.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
                assert held.recv(12) == b"HTTP/1.1 413", "before any of the body is sent"


@pytest.mark.parametrize("path", ["infer", "predict"])
def test_a_compressed_request_is_refused_by_its_name(server: Running, path: str) -> None:
    body, form = gzip.compress(asked()), {"Content-Type": "application/json"}
    for encoding, code in (("gzip", 415), ("Identity", 400), ("utf-8", 400)):
        headers = {**form, "Content-Encoding": encoding}
        answer = server.http.post(f"/v2/models/shapes/{path}", content=body, headers=headers)
        assert answer.status_code == code
        told = "Content-Encoding 'gzip' is not read: send the request as it is"
        assert (answer.json()["error"] == told) is (code == 415)
    plain = {**form, "Content-Encoding": "utf-8"}  # no coding, but some clients say so
    answer = server.http.post("/v2/models/shapes/infer", content=asked(), headers=plain)
    assert answer.status_code == 200


@pytest.mark.parametrize("width", [1000, "any"])
def test_too_large_an_answer_is_refused(tmp_path: Path, width: int | str) -> None:
    """A thousand numbers for one, whether the model says so or not."""
    weights = numpy_helper.from_array(np.ones((1, 1000), np.float32), "weights")
    nodes = [helper.make_node("MatMul", ["table", "weights"], ["values"])]
    made = save(nodes, {"table": (TensorProto.FLOAT, ["n", 1])}, "values", width, weights)
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/model.onnx").write_bytes(made)
    with serving(tmp_path / "trained", "--max-body", "1") as server:
        for rows, code in ((1048, 200), (1049, 400)):
            body = {"inputs": [tensor(np.zeros((rows, 1), np.float32), "table", "FP32")]}
            answer = server.infer("trained", body)
            assert answer.status_code == code, answer.text
        assert answer.json()["error"].startswith("the answer has 4.2 MB, but at most 4.2 MB")


REFUSED: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "an empty registry": (lambda place: ["--storage", str(place / "none")], "no model in"),
    "an unknown model": (lambda place: ["nobody", "--storage", str(place / "none")], "nobody"),
    "an empty token": (lambda place: [str(place), "--token-file", "/dev/null"], "token"),
    "a key without its certificate": (
        lambda place: ["--tls-key", str(place / "key")],
        "go together",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_served_is_said_at_the_start(
    what: str, tmp_path: Path, typed: Callable[..., Any]
) -> None:
    words, sentence = REFUSED[what]
    (tmp_path / "key").write_text("")
    done = typed("serve", *words(tmp_path))
    assert done.returncode in (1, 2)
    assert sentence in done.stderr


def test_a_server_that_drains_sends_its_clients_elsewhere(store: Path) -> None:
    with serving("rows", "--storage", store, "--drain", "3") as server:
        body = {"inputs": [tensor(np.zeros((1, 2), np.float32), "table", "FP32")]}
        assert "connection" not in server.infer("rows", body).headers
        server.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        while server.http.get("/v2/health/ready").status_code == 200:
            assert time.monotonic() < began + 2
        answers = [server.infer("rows", body) for _ in range(3)]  # each on a connection of its own
        assert [(answer.status_code, answer.headers["connection"]) for answer in answers] == [
            (200, "close")
        ] * 3
        assert server.http.get("/v2/health/live").status_code == 200
        assert server.process.wait(30) in (0, 143)
        assert 2.5 < time.monotonic() - began < 20
        server.process.send_signal = lambda _: None  # type: ignore[method-assign]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_loses_no_request_under_way(tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/model.onnx").write_bytes(slow(6))
    body = {"inputs": [tensor(np.zeros((1500, 2), np.float32), "table", "FP32")]}
    answers: list[int] = []
    with serving(tmp_path / "slow") as server:
        asking = threading.Thread(
            target=lambda: answers.append(server.infer("slow", body).status_code)
        )
        asking.start()
        while "under_way 1" not in httpx.get(f"{server.url}/metrics", timeout=60).text:
            assert asking.is_alive()
        server.process.send_signal(sent)
        asking.join()
        assert (answers, server.process.wait(60)) == ([200], 143)
    assert not [line for line in server.said if "Traceback" in line]


def test_a_second_signal_ends_a_drain_at_once(store: Path) -> None:
    with serving("rows", "--storage", store, "--drain", "300") as server:
        server.process.send_signal(signal.SIGTERM)
        while server.http.get("/v2/health/ready").status_code == 200:
            time.sleep(0.02)
    assert server.process.returncode in (0, 143)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1, signed by itself; its key is beside it."""
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    extra = [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:TRUE",
    ]
    files = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    subprocess.run(["openssl", *words.split(), *extra, *files], check=True, capture_output=True)
    return tmp_path / "cert.pem"


def test_https_is_answered_with_the_certificate(
    numbers: Model, tmp_path: Path, certificate: Path
) -> None:
    key = certificate.with_name("key.pem")
    words = (
        "numbers",
        "--storage",
        tmp_path / "store",
        "--tls-cert",
        certificate,
        "--tls-key",
        key,
        "--grpc-port",
        "0",
    )
    with serving(*words) as server:
        (address,) = (line.split()[-1] for line in server.said if line.startswith("gRPC at "))
        known = grpc.ssl_channel_credentials(certificate.read_bytes())
        with grpc.secure_channel(address, known) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            assert live(b"", timeout=60) == b"\x08\x01"
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=60)
        assert server.url.startswith("https://")
        with httpx.Client(verify=ssl.create_default_context(cafile=str(certificate))) as known:
            answer = known.post(
                f"{server.url}/v2/models/numbers/infer",
                json={"inputs": [tensor(np.zeros((1, 2), np.float32), "table", "FP32")]},
            )
        assert answer.json()["outputs"][0]["data"] == [1.0]
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{server.url}/v2/health/live")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{server.url.replace('https', 'http')}/v2/health/live")


def test_a_certificate_that_does_not_fit_its_key_is_refused(
    numbers: Model, tmp_path: Path, certificate: Path, typed: Callable[..., Any]
) -> None:
    key = certificate.with_name("other.pem")
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True
    )
    done = typed("serve", "numbers", "--storage", str(tmp_path / "store"), "--port", "0", "--tls-cert", str(certificate),
                 "--tls-key", str(key))  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "--tls-key" in done.stderr


class Slow(Served):
    """A model that is opened when the test says so."""

    def __init__(self, graph: Path) -> None:
        self.opens = threading.Event()
        super().__init__("slow", self._slowly)
        self.graph = graph

    def _slowly(self) -> tuple[str, str, Callable[[], Predictor]]:
        assert self.opens.wait(10)
        return "1", "", lambda: open_model(self.graph)


def test_a_model_that_is_being_opened_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(constant(7))
    model = Slow(tmp_path)
    asyncio.run(model.follow())
    model.opens.set()
    model.open()
    assert (model.opened, model.swaps) == (True, 0)


def test_a_model_whose_description_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(constant(7))
    (tmp_path / "preprocessing.json").write_text("[]")
    (model,) = find_models([f"{tmp_path}/"], str(tmp_path / "store"))
    with pytest.raises(InvalidInput, match=r"preprocessing.json .* is not a JSON object"):
        model.open()


def test_a_server_is_ready_once_its_models_are_open(tmp_path: Path) -> None:

    (tmp_path / "model.onnx").write_bytes(constant(7))
    model = Slow(tmp_path)
    opening = threading.Thread(target=model.open)
    opening.start()
    server = Server([model], token="", limits=Limits(), follow=0.05)
    body = {"inputs": [tensor(np.zeros((1, 2), np.float32), "table", "FP32")]}
    with TestClient(server) as http:
        assert http.get("/v2/health/live").status_code == 200
        answer = http.get("/v2/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"ready": False})
        assert http.get("/metrics").status_code == http.get("/").status_code == 200
        refused = http.post("/v2/models/slow/infer", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert http.get("/v2/models/slow/ready").status_code == 503
        model.opens.set()
        opening.join()
        assert http.get("/v2/health/ready").json() == {"ready": True}
        assert http.get("/v2/models/slow/ready").json()["ready"]
        assert http.post("/v2/models/slow/infer", json=body).json()["outputs"][0]["data"] == [7.0]


def test_a_server_stays_ready_while_the_champion_changes(numbers: Model, tmp_path: Path) -> None:
    over, answers = threading.Event(), list[int]()
    with serving("numbers", "--storage", tmp_path / "store", "--follow", "0.1") as server:

        def probe() -> None:
            while not over.is_set():
                answers.append(httpx.get(f"{server.url}/v2/health/ready").status_code)

        prober = threading.Thread(target=probe)
        prober.start()
        for version in ("v2", "v3"):
            numbers.promote(version)
            while server.http.get("/v2/models/numbers").json()["versions"] != [version]:
                time.sleep(0.02)
        over.set()
        prober.join()
    assert set(answers) == {200}


def test_a_replaced_version_frees_its_memory_at_once(numbers: Model, tmp_path: Path) -> None:
    (model,) = find_models(["numbers"], str(tmp_path / "store"), share=1.0)

    async def swap() -> None:
        model.open()
        replaced = weakref.ref(model.now.predictor.model)
        await model.now.batcher.ask({"table": np.zeros((1, 2), np.float32)})
        numbers.promote("v2")
        await model.follow()
        assert model.now.version == "v2"
        assert replaced() is None, "a large model must not wait for the collector of cycles"

    gc.disable()
    try:
        asyncio.run(swap())
    finally:
        gc.enable()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", "schlüssel".encode()])
def test_a_file_without_a_token_is_refused(
    store: Path, tmp_path: Path, typed: Callable[..., Any], content: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    done = typed("serve", "rows", "--storage", str(store), "--port", "0", "--token-file", str(file))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert str(file) in done.stderr
