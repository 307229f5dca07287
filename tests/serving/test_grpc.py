"""`podium serve --grpc-port`: a real server, asked over gRPC."""

import asyncio
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from handmade import SHAPES, TABLE, rows_model, shapes_model
from onnx import TensorProto, checker, helper
from servers import Running, serving, tensor, upload_gated

from podium.cli.options import listen
from podium.cli.serve import _run
from podium.errors import PodiumError
from podium.files.protobuf import make_messages
from podium.models import open_registry
from podium.serving.app import Server
from podium.serving.rpc import MESSAGES as TABLES, RpcServer
from podium.serving.served import find_models
from podium.serving.service import Limits

pytestmark = pytest.mark.whole

grpc = pytest.importorskip("grpc")
MESSAGES = make_messages("inference", TABLES)
WIDE = np.zeros((28, 28), np.uint8)
WIDE[13:15, 2:26] = 255


def words_model() -> bytes:
    """A model of texts: says each as it came, and how many letters... are one: 1.0."""
    nodes = [
        helper.make_node("Identity", ["text"], ["same"]),
        helper.make_node("Equal", ["text", "text"], ["equal"]),
        helper.make_node("Cast", ["equal"], ["number"], to=TensorProto.FLOAT),
    ]
    taken = [helper.make_tensor_value_info("text", TensorProto.STRING, ["n", 2])]
    given = [
        helper.make_tensor_value_info("same", TensorProto.STRING, ["n", 2]),
        helper.make_tensor_value_info("number", TensorProto.FLOAT, ["n", 2]),
    ]
    graph = helper.make_graph(nodes, "words", taken, given)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    checker.check_model(made)
    return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("grpc") / "store"
    for name, graph, described in (
        ("shapes", shapes_model(), SHAPES),
        ("rows", rows_model(), TABLE),
        ("words", words_model(), {}),
    ):
        model = open_registry(place).model(name)
        files: dict[str, Path | bytes] = {"model.onnx": graph}
        files |= {"preprocessing.json": json.dumps(described).encode()} if described else {}
        model.upload(files, {"run_id": "v1"})
        model.set_champion("v1", {}, expect=None)
    return place


class Client:
    """Calls by bytes, so that they may be anything."""

    def __init__(self, running: Running, token: str = "") -> None:
        (self.address,) = (
            found[1] for line in running.said if (found := re.match(r"gRPC at (\S+)", line))
        )
        self.running, self._token = running, token
        self.channel = grpc.insecure_channel(self.address)

    def call(self, method: str, content: bytes = b"", **headers: str) -> bytes:
        ask = self.channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        metadata = [(name.replace("_", "-"), value) for name, value in headers.items()]
        metadata += [("authorization", f"Bearer {self._token}")] if self._token else []
        return bytes(ask(content, timeout=120, metadata=metadata))

    def ask(self, method: str, **fields: Any) -> Any:
        request = MESSAGES[f"{method}Request"](**fields)
        content = self.call(method, request.SerializeToString())
        return MESSAGES[f"{method}Response"].FromString(content)

    def refusal(self, method: str, content: bytes, **headers: str) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as raised:
            self.call(method, content, **headers)
        return raised.value.code().name, raised.value.details()


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[Client]:
    with serving("--storage", store, "--grpc-port", "0") as running:
        yield Client(running)


def pictures(count: int = 1) -> dict[str, Any]:
    return {"name": "images", "datatype": "UINT8", "shape": [count, 28, 28]}


def infer(**changes: Any) -> bytes:
    whole = {"model_name": "shapes", "inputs": [pictures()], "raw_input_contents": [WIDE.tobytes()]}
    return bytes(MESSAGES["ModelInferRequest"](**{**whole, **changes}).SerializeToString())


def test_health_and_metadata_are_those_of_http(client: Client) -> None:
    assert client.ask("ServerLive").live
    assert client.ask("ServerReady").ready
    assert client.ask("ServerMetadata").name == "podium"
    assert client.ask("ModelReady", name="shapes", version="v1").ready
    said, http = client.ask("ModelMetadata", name="shapes"), client.running.http.get("/v2/models/shapes").json()  # fmt: skip
    assert (said.name, list(said.versions), said.platform) == ("shapes", ["v1"], http["platform"])
    for side in ("inputs", "outputs"):
        tensors = [{"name": one.name, "datatype": one.datatype, "shape": list(one.shape)} for one in getattr(said, side)]  # fmt: skip
        assert tensors == http[side]


def test_raw_and_typed_contents_get_what_http_says(client: Client) -> None:
    table = np.array([[1.5, 1], [-2, 0]], np.float32)
    held = {"name": "table", "datatype": "FP32", "shape": [2, 2]}
    raw = client.ask("ModelInfer", model_name="rows", id="17", inputs=[held], raw_input_contents=[table.tobytes()])  # fmt: skip
    typed = client.ask("ModelInfer", model_name="rows", model_version="v1", inputs=[{**held, "contents": {"fp32_contents": table.ravel()}}])  # fmt: skip
    http = client.running.infer("rows", {"inputs": [tensor(table, "table", "FP32")]}).json()
    assert (raw.model_name, raw.model_version, raw.id) == ("rows", "v1", "17")
    (content,) = raw.raw_output_contents
    assert np.frombuffer(content, "<f4").tolist() == http["outputs"][0]["data"]
    assert list(typed.outputs[0].contents.fp32_contents) == http["outputs"][0]["data"]
    assert typed.id
    assert (typed.outputs[0].name, list(typed.outputs[0].shape)) == ("logits", [2, 2])


def test_texts_go_both_ways_over_both_protocols(client: Client) -> None:
    texts = np.array([["so good", "größer"], ["", "\u2603"]], object)
    http = client.running.infer("words", {"inputs": [tensor(texts, "text", "BYTES")]}).json()
    assert http["outputs"][0] == {"name": "same", "shape": [2, 2], "datatype": "BYTES", "data": texts.ravel().tolist()}  # fmt: skip
    encoded = [text.encode() for text in texts.ravel()]
    held = {"name": "text", "datatype": "BYTES", "shape": [2, 2]}
    typed = client.ask("ModelInfer", model_name="words", inputs=[{**held, "contents": {"bytes_contents": encoded}}])  # fmt: skip
    assert list(typed.outputs[0].contents.bytes_contents) == encoded
    assert list(typed.outputs[1].contents.fp32_contents) == [1.0] * 4
    raw = b"".join(len(text).to_bytes(4, "little") + text for text in encoded)
    said = client.ask("ModelInfer", model_name="words", inputs=[held], raw_input_contents=[raw])
    assert said.raw_output_contents[0] == raw
    head = json.dumps({"inputs": [{**held, "parameters": {"binary_data_size": len(raw)}}], "outputs": [{"name": "same", "parameters": {"binary_data": True}}]}).encode()  # fmt: skip
    binary = client.running.http.post("/v2/models/words/infer", content=head + raw, headers={"inference-header-content-length": str(len(head))})  # fmt: skip
    assert binary.content.endswith(raw)


def text_tensor(content: bytes, *shape: int) -> bytes:
    held = {"name": "text", "datatype": "BYTES", "shape": list(shape)}
    return infer(model_name="words", inputs=[held], raw_input_contents=[content])


def typed(datatype: str = "UINT8", **contents: Any) -> bytes:
    held = {**pictures(), "datatype": datatype, "contents": contents}
    return infer(inputs=[held], raw_input_contents=[])


MALFORMED: dict[str, bytes] = {
    "no message": b"\xff\xff\xff", "half": infer()[:-5], "deep": b"\x2a" * 10_000, "a group": b"\x0b" * 5000,
    "no inputs": infer(inputs=[], raw_input_contents=[]), "raw without inputs": infer(inputs=[]),
    "fewer raw than inputs": infer(inputs=[pictures(), pictures()]), "more raw than inputs": infer(raw_input_contents=[b"", b""]),
    "the same input twice": infer(inputs=[pictures(), pictures()], raw_input_contents=[WIDE.tobytes()] * 2),
    "raw and contents": infer(inputs=[{**pictures(), "contents": {"uint_contents": [1]}}]),
    "raw that is short": infer(raw_input_contents=[b"abc"]), "no name": infer(inputs=[{**pictures(), "name": ""}]),
    "a long name": infer(inputs=[{**pictures(), "name": "x" * 100_000}]), "another name": infer(inputs=[{**pictures(), "name": "image"}]),
    "an unknown datatype": infer(inputs=[{**pictures(), "datatype": "UINT"}]), "no datatype": infer(inputs=[{**pictures(), "datatype": ""}]),
    "another datatype": infer(inputs=[{**pictures(), "datatype": "INT8"}]), "BYTES for numbers": infer(inputs=[{**pictures(), "datatype": "BYTES"}]),
    "no shape": infer(inputs=[{**pictures(), "shape": []}]), "a negative size": infer(inputs=[{**pictures(), "shape": [-1, 28, 28]}]),
    "a product beyond 64 bits": infer(inputs=[{**pictures(), "shape": [2**40, 2**40]}]), "large sizes": infer(inputs=[{**pictures(), "shape": [2**62] * 30}]),
    "many axes": infer(inputs=[{**pictures(), "shape": [1] * 100_000}]), "rows without columns": infer(inputs=[{**pictures(), "shape": [2**40, 0]}], raw_input_contents=[b""]),
    "no contents": typed(), "few contents": typed(uint_contents=[1]), "contents out of range": typed(uint_contents=[300] * 784),
    "contents of another type": typed(fp32_contents=[1.0] * 784), "contents of two types": typed(uint_contents=[1] * 784, int_contents=[1]),
    "FP16 as contents": typed("FP16", fp32_contents=[1.0] * 784), "a long id": infer(id="x" * 5000),
    "an unknown output": infer(outputs=[{"name": "logit"}]), "an output without a name": infer(outputs=[{}]),
    "texts that end early": text_tensor(b"\x05\x00\x00\x00abc", 1, 1), "half a length": text_tensor(b"\x05\x00", 1, 1),
    "a length beyond all": text_tensor(b"\xff\xff\xff\xffabc", 1, 1), "texts that are no UTF-8": text_tensor(b"\x01\x00\x00\x00\xff" * 2, 1, 2),
    "more texts than the shape": text_tensor(bytes(4 * 1_000_000), 1, 2), "fewer texts": text_tensor(b"", 1, 2),
    "contents that are no UTF-8": infer(model_name="words", inputs=[{"name": "text", "datatype": "BYTES", "shape": [1, 2], "contents": {"bytes_contents": [b"\xff", b""]}}], raw_input_contents=[]),
}  # fmt: skip


def test_every_malformed_call_is_a_sentence(client: Client) -> None:
    for what, content in MALFORMED.items():
        code, details = client.refusal("ModelInfer", content)
        assert code == "INVALID_ARGUMENT", (what, code, details)
        assert 10 < len(details) < 3000, what
    for method in ("ModelReady", "ModelMetadata"):
        assert client.refusal(method, b"\xff\xff")[0] == "INVALID_ARGUMENT"
    assert not [line for line in client.running.said if "Traceback" in line]
    assert client.call("ModelInfer", infer())


@pytest.mark.parametrize("content", [b"\x2a\x00" * 20_000, infer(model_name="x" * (9 << 20))])
def test_a_call_of_many_parts_is_refused_unread(client: Client, content: bytes) -> None:
    code, said = client.refusal("ModelInfer", content)
    assert code == "INVALID_ARGUMENT"
    assert "at most 10,000 tensors" in said


@pytest.mark.parametrize(
    ("head", "tail"),
    [(b"\x4b\x52\x06\0\0\x3a\xc1\xb8\x02", b"\x4c"), (b"\x3a\x83" + b"\x80" * 8 + b"\x02", b"abc")],
    ids=["a group", "a length beyond 64 bits"],
)  # fmt: skip
def test_parts_that_hide_from_their_count_are_refused(
    client: Client, head: bytes, tail: bytes
) -> None:
    content = head + tail + b"\x2a\x00" * 20_000  # protobuf reads as many inputs of it
    assert len(MESSAGES["ModelInferRequest"].FromString(content).inputs) == 20_000
    code, said = client.refusal("ModelInfer", content)
    assert (code, said.partition(":")[0]) == ("INVALID_ARGUMENT", "the request is not a ModelInferRequest")  # fmt: skip


def test_a_long_refusal_reaches_its_client(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.json").write_text(json.dumps({"predict": ["python", "fail.py"]}))
    said = "for _ in range(8):\n    print('\N{SNOWMAN}' * 1300)\nraise SystemExit(3)\n"
    (tmp_path / "model/fail.py").write_text(said)
    with serving(tmp_path / "model", "--grpc-port", "0") as running:
        caller = Client(running)
        code, details = caller.refusal("ModelInfer", infer(model_name="model"))
    assert (code, "fail.py exited with 3" in details) == ("INTERNAL", True), details


def test_names_that_are_not_served_are_not_found(client: Client) -> None:
    refused = client.refusal("ModelInfer", infer(model_name="shape"))
    assert refused == ("NOT_FOUND", "no model 'shape' is served\nhint: did you mean shapes?")
    assert client.refusal("ModelInfer", infer(model_version="v9"))[0] == "NOT_FOUND"
    for at in range(50):
        client.refusal("ModelInfer", infer(model_name=f"no{at}"))
    page = client.running.http.get("/metrics").text
    assert "no49" not in page, "a client must not make labels"
    assert client.refusal("Nothing", b"")[0] == "UNIMPLEMENTED"


def test_calls_and_requests_share_their_figures(client: Client) -> None:
    def count() -> int:
        page = client.running.http.get("/metrics").text
        found = re.search(r'podium_serve_requests_total\{model="shapes",status="200"\} (\d+)', page)
        return int(found[1]) if found else 0

    before = count()
    client.call("ModelInfer", infer())
    client.running.infer("shapes", {"inputs": [tensor(np.stack([WIDE]), "images", "UINT8")]})
    assert count() == before + 2


def test_many_callers_are_answered_in_batches(client: Client) -> None:
    wrong: list[Any] = []

    def ask(number: int) -> None:
        for at in range(20):
            x = float(number * 100 + at)
            held = {"name": "table", "datatype": "FP32", "shape": [1, 2]}
            said = client.ask("ModelInfer", model_name="rows", inputs=[held], raw_input_contents=[np.array([x, 0], "<f4").tobytes()])  # fmt: skip
            if np.frombuffer(said.raw_output_contents[0], "<f4").tolist() != [-x, x]:
                wrong.append(said)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_client_that_hangs_up_is_no_failure(tmp_path: Path) -> None:
    model = open_registry(tmp_path / "store").model("rows")
    model.upload({"model.onnx": rows_model(), "preprocessing.json": json.dumps(TABLE).encode()}, {"run_id": "v1"})  # fmt: skip
    upload_gated(model, tmp_path / "gate")  # which never opens
    (canary,) = (each.version for each in model.versions if each.version != "v1")
    model.set_champion("v1", {}, expect=None)
    words = ("--storage", tmp_path / "store", "--grpc-port", "0", "--timeout", "10")
    more = ("--canary", f"{canary}=99.9%", "--record", tmp_path / "answers")
    with serving("rows", *words, *more) as running:
        caller = Client(running)
        held = {"name": "table", "datatype": "FP32", "shape": [1, 2]}
        content = infer(model_name="rows", inputs=[held], raw_input_contents=[bytes(8)])
        ask = caller.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        def lines(word: str) -> list[str]:
            page = running.http.get("/metrics").text
            return [line for line in page.splitlines() if line.startswith(word)]

        call = ask.future(content)
        while lines("podium_serve_under_way") != ["podium_serve_under_way 1"]:
            assert not call.done()
        call.cancel()
        end = time.monotonic() + 60
        while not (counted := lines("podium_serve_requests_total{")):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert counted == ['podium_serve_requests_total{model="rows",status="499"} 1']
        assert not lines("podium_serve_compared_total{")
        assert caller.refusal("ModelInfer", content)[0] in ("DEADLINE_EXCEEDED", "INTERNAL")
        failed = f'podium_serve_compared_total{{model="rows",version="{canary}",role="canary",outcome="failed"}} 1'  # fmt: skip
        assert failed in lines("podium_serve_compared_total{")


@pytest.fixture(scope="module")
def guarded(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Has a token, and small limits."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("a-token\n")
    words = ("--token-file", token, "--max-body", "1", "--timeout", "2", "--max-requests", "4")
    with serving("shapes", "--storage", store, "--grpc-port", "0", *words) as running:
        yield Client(running, "a-token")


def test_a_call_needs_the_token(guarded: Client) -> None:
    assert guarded.call("ModelInfer", infer())
    bare = Client(guarded.running)
    assert bare.ask("ServerLive").live
    assert bare.ask("ServerReady").ready
    for method in ("ModelInfer", "ModelReady", "ModelMetadata", "ServerMetadata"):
        assert bare.refusal(method, infer())[0] == "UNAUTHENTICATED"
        assert bare.refusal(method, infer(), authorization="Bearer other")[0] == "UNAUTHENTICATED"


def test_large_calls_and_metadata_are_refused(guarded: Client) -> None:
    large = infer(raw_input_contents=[bytes(2 << 20)])
    assert guarded.refusal("ModelInfer", large)[0] == "RESOURCE_EXHAUSTED"
    ask = guarded.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    token = ("authorization", "Bearer a-token")
    with pytest.raises(grpc.RpcError) as raised:
        ask(large, metadata=[token], compression=grpc.Compression.Gzip, timeout=60)
    assert raised.value.code().name == "RESOURCE_EXHAUSTED", "what is compressed is measured open"
    with pytest.raises(grpc.RpcError):
        guarded.call("ModelInfer", infer(), x="y" * 200_000)
    assert guarded.call("ModelInfer", infer())


def test_a_call_that_does_not_come_is_not_waited_for(guarded: Client) -> None:
    token = ("authorization", "Bearer a-token")
    calls = [silent(guarded, "ModelInfer", token) for _ in "1234"]
    assert {call.exception(60).code().name for _, call in calls} == {"DEADLINE_EXCEEDED"}
    for over, _ in calls:
        over.set()
    end = time.monotonic() + 60
    while True:  # the places of these calls are free again
        try:
            assert guarded.call("ModelInfer", infer())
            break
        except grpc.RpcError:
            assert time.monotonic() < end


def silent(client: Client, method: str, *metadata: tuple[str, str]) -> tuple[threading.Event, Any]:
    """Begin a call whose message does not come; set the event, and it ends."""
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait(60)
        yield b""

    ask = client.channel.stream_unary(f"/inference.GRPCInferenceService/{method}")
    return over, ask.future(never(), metadata=metadata)


def test_a_health_call_is_answered_before_its_message(guarded: Client) -> None:
    bare = Client(guarded.running)
    calls = [silent(bare, method) for method in ("ServerLive", "ServerReady") for _ in range(25)]
    for over, call in calls:
        assert call.result(60) == b"\x08\x01"
        over.set()


def test_silent_calls_beyond_the_limit_are_refused(guarded: Client) -> None:
    token = ("authorization", "Bearer a-token")
    calls = [silent(guarded, "ModelReady", token) for _ in range(25)]
    assert guarded.call("ModelInfer", infer())
    assert guarded.ask("ServerLive").live
    codes = [call.exception(60).code().name for _, call in calls]
    assert 1 <= codes.count("DEADLINE_EXCEEDED") <= 24
    assert {*codes} == {"DEADLINE_EXCEEDED", "UNAVAILABLE"}
    for over, _ in calls:
        over.set()
    assert guarded.ask("ModelReady", name="shapes").ready


def test_a_small_call_that_does_not_come_leaves_no_traceback(guarded: Client) -> None:
    token = ("authorization", "Bearer a-token")
    over, call = silent(guarded, "ModelMetadata", token)
    assert call.exception(60).code().name == "DEADLINE_EXCEEDED"
    over.set()
    assert not [line for line in guarded.running.said if "Traceback" in line]


def test_calls_beyond_the_limit_are_told_to_come_again(guarded: Client) -> None:
    token = ("authorization", "Bearer a-token")
    clients = [Client(guarded.running, "a-token") for _ in "1234"]
    calls = [silent(each, "ModelInfer", token) for each in clients]
    page = guarded.running.http
    while "podium_serve_under_way 4" not in page.get("/metrics", headers={"Authorization": "Bearer a-token"}).text:  # fmt: skip
        assert not calls[0][1].done()
    assert guarded.refusal("ModelInfer", infer())[0] == "UNAVAILABLE"
    for over, call in calls:
        over.set()
        assert call.exception(60)


def test_bytes_that_are_no_http2_end_their_connection_alone(client: Client) -> None:
    port = int(client.address.rpartition(":")[2])
    for content in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(100_000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000):  # fmt: skip
        with socket.create_connection(("127.0.0.1", port)) as held:
            held.sendall(content)
    assert client.call("ModelInfer", infer())


def test_a_call_under_way_is_answered_at_the_end(store: Path) -> None:
    with serving("rows", "--storage", store, "--grpc-port", "0") as running:
        caller, answers = Client(running), list[Any]()
        rows = 300_000
        held = {"name": "table", "datatype": "FP32", "shape": [rows, 2]}
        content = infer(model_name="rows", inputs=[held], raw_input_contents=[bytes(rows * 8)])
        assert caller.ask("ServerLive").live
        thread = threading.Thread(target=lambda: answers.append(caller.call("ModelInfer", content)))
        thread.start()
        while not answers and "podium_serve_under_way 1" not in running.http.get("/metrics").text:
            time.sleep(0.001)
    thread.join()
    assert len(answers) == 1


def test_a_canary_answers_calls_too(tmp_path: Path) -> None:
    model = open_registry(tmp_path / "store").model("rows")
    for version in ("v1", "v2"):
        model.upload({"model.onnx": rows_model(), "preprocessing.json": json.dumps(TABLE).encode()}, {"run_id": version})  # fmt: skip
    model.set_champion("v1", {}, expect=None)
    words = ("--storage", tmp_path / "store", "--grpc-port", "0", "--canary", "v2=50%")
    with serving("rows", *words) as running:
        caller = Client(running)
        held = {"name": "table", "datatype": "FP32", "shape": [1, 2]}
        content = infer(model_name="rows", inputs=[held], raw_input_contents=[bytes(8)])

        def version(**headers: str) -> str:
            said = caller.call("ModelInfer", content, **headers)
            return str(MESSAGES["ModelInferResponse"].FromString(said).model_version)

        assert len({version(podium_sticky="ann") for _ in range(10)}) == 1
        assert {version() for _ in range(60)} == {"v1", "v2"}


def test_a_server_says_that_it_listens_once_grpc_does(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (model,) = find_models(["rows"], str(store))
    server = Server([model], token="", limits=Limits(), follow=60)
    listening = listen("127.0.0.1", 0)
    run, goes_on = uvicorn.Server(uvicorn.Config(server)), threading.Event()

    class Late(RpcServer):
        async def start(self) -> None:
            while not goes_on.is_set():
                await asyncio.sleep(0.01)
            await super().start()

    server.rpc = Late(server.service, "127.0.0.1:0")
    serving = threading.Thread(
        target=_run, args=(run, listening, [model], "it", server.rpc), daemon=True
    )
    serving.start()
    said, end = "", time.monotonic() + 120
    while "serving rows" not in said:
        assert time.monotonic() < end
        time.sleep(0.05)  # what is printed during a look is lost
        said += capfd.readouterr().err
    time.sleep(0.2)  # in which it could have said so
    assert "listening on" not in said + capfd.readouterr().err
    goes_on.set()
    while "listening on it" not in said:
        assert time.monotonic() < end
        time.sleep(0.05)
        said += capfd.readouterr().err
    run.should_exit = True
    serving.join()
    listening.close()


def test_a_port_taken_at_the_last_moment_fails_the_server(store: Path) -> None:
    (model,) = find_models(["rows"], str(store))
    server = Server([model], token="", limits=Limits(), follow=60)
    run = uvicorn.Server(uvicorn.Config(server))
    with listen("127.0.0.1", 0) as listening, socket.create_server(("127.0.0.1", 0)) as taken:
        server.rpc = RpcServer(server.service, f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(PodiumError, match="cannot be listened on"):
            _run(run, listening, [model], "it", server.rpc)


def test_a_taken_port_is_a_sentence(store: Path, typed: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = typed("serve", "rows", "--storage", str(store), "--port", "0", "--grpc-port", port)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"port {port} of 127.0.0.1 cannot be listened on" in done.stderr
    assert "--grpc-port takes another" in done.stderr
