"""The Open Inference Protocol v2 over gRPC, beside HTTP: the same models, token, limits and
figures.

Source of methods and messages:
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/open_inference_grpc.proto
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import grpc
import numpy as np

from podium import __version__
from podium.errors import InvalidInput, PodiumError
from podium.files.documents import foreign
from podium.files.protobuf import make_messages
from podium.scoring.families import Array
from podium.serving.service import Refused, Service
from podium.serving.tensors import (
    MOST_JSON,
    MOST_NAME,
    NAMES,
    InferRequest,
    TensorForm,
    to_bytes,
)

_CONTENTS = {
    "bool": "bool_contents", "int8": "int_contents", "int16": "int_contents", "int32": "int_contents",
    "int64": "int64_contents", "uint8": "uint_contents", "uint16": "uint_contents", "uint32": "uint_contents",
    "uint64": "uint64_contents", "float32": "fp32_contents", "float64": "fp64_contents", "object": "bytes_contents",
}  # fmt: skip
"""Field of InferTensorContents by numpy's name; FP16 comes as raw bytes only."""

_TENSOR = {"name": "1 string", "datatype": "2 string", "shape": "3 *int64"}
_MODEL = {"name": "1 string", "version": "2 string"}
_INFER = {"model_name": "1 string", "model_version": "2 string", "id": "3 string"}
MESSAGES = {
    "Contents": {
        "bool_contents": "1 *bool",
        "int_contents": "2 *int32",
        "int64_contents": "3 *int64",
        "uint_contents": "4 *uint32",
        "uint64_contents": "5 *uint64",
        "fp32_contents": "6 *float",
        "fp64_contents": "7 *double",
        "bytes_contents": "8 *bytes",
    },
    "Tensor": {**_TENSOR, "contents": "5 Contents"},
    "TensorMetadata": _TENSOR,
    "Output": {"name": "1 string"},
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": "1 bool"},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": "1 bool"},
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": {"ready": "1 bool"},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**_MODEL, "extensions": "3 *string"},
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse": {
        "name": "1 string",
        "versions": "2 *string",
        "platform": "3 string",
        "inputs": "4 *TensorMetadata",
        "outputs": "5 *TensorMetadata",
    },
    "ModelInferRequest": {
        **_INFER,
        "inputs": "5 *Tensor",
        "outputs": "6 *Output",
        "raw_input_contents": "7 *bytes",
    },
    "ModelInferResponse": {
        **_INFER,
        "outputs": "5 *Tensor",
        "raw_output_contents": "6 *bytes",
    },
}
"""As make_messages takes them; parameters are not read."""

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""By status of HTTP; INTERNAL for others."""

_MOST_METADATA = 64 << 10
"""Bytes of a call's metadata."""

_MOST_SAID = 2 << 10
"""Bytes of a refusal: as a header each may take three, and clients take 8 KiB of those."""

_SMALL_SECONDS = 5.0
"""For the message of a call that is no ModelInfer; as many as ModelInfer may wait for theirs."""

_RAW = 7
"""Number of the field raw_input_contents of a ModelInferRequest."""

_MOST_PARTS = 10_000
"""Fields of a ModelInferRequest."""

_Headers = Mapping[str, str | bytes]


class RpcServer:
    """Answers calls.

    Args:
        service: Answers.
        address: Host and port.
        credentials: PEM of the key and of the certificate; None for no encryption.
    """

    def __init__(
        self, service: Service, address: str, credentials: tuple[bytes, bytes] | None = None
    ) -> None:
        self._service, self._address, self._credentials = service, address, credentials
        self._messages = make_messages("inference", MESSAGES)
        self._server: Any = None
        self._began = threading.Event()
        self._failure: PodiumError | None = None
        self._silent = 0
        """Calls that are no ModelInfer, and whose message has not come."""

    async def start(self) -> None:
        service = self._service
        options = {
            "grpc.so_reuseport": 0,
            "grpc.max_receive_message_length": service.limits.body,
            "grpc.max_send_message_length": -1,
            "grpc.max_metadata_size": _MOST_METADATA,
            "grpc.absolute_max_metadata_size": _MOST_METADATA,
        }
        self._server = grpc.aio.server(options=list(options.items()))
        methods: dict[str, Callable[[Any], Mapping[str, Any]] | None] = {
            "ServerLive": lambda asked: {"live": True},
            "ServerReady": lambda asked: {"ready": service.ready},
            "ServerMetadata": lambda asked: {"name": "podium", "version": __version__},
            "ModelReady": lambda asked: {
                "ready": service.find(asked.name, asked.version or None).opened
            },
            "ModelMetadata": lambda asked: service.describe(asked.name, asked.version or None),
            "ModelInfer": None,
        }
        handlers = {
            name: grpc.stream_unary_rpc_method_handler(partial(self._handle, name, answer))
            for name, answer in methods.items()
        }
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)]
        )
        try:
            if self._credentials:
                secure = grpc.ssl_server_credentials([self._credentials])
                self._server.add_secure_port(self._address, secure)
            else:
                self._server.add_insecure_port(self._address)
        except RuntimeError:
            self._failure = PodiumError(
                f"{self._address} cannot be listened on", "--grpc-port takes another"
            )
        else:
            await self._server.start()
        self._began.set()

    def wait_until_listening(self) -> None:
        """Wait until it listens.

        Raises:
            PodiumError: The port is taken.
        """
        self._began.wait()
        if self._failure:
            raise self._failure

    async def stop(self) -> None:
        """Wait until what is under way is answered."""
        await self._server.stop(self._service.limits.seconds)

    async def _handle(
        self,
        name: str,
        answer: Callable[[Any], Mapping[str, Any]] | None,
        requests: Any,
        context: Any,
    ) -> bytes:
        """Answer a call. Its only message is read here, as of a stream: the token is checked
        before, and what does not come in time is not waited for."""
        try:
            headers: _Headers = dict(context.invocation_metadata())
            if name not in ("ServerLive", "ServerReady"):
                authorization = headers.get("authorization", "")
                self._service.check_token(
                    authorization if isinstance(authorization, bytes) else authorization.encode()
                )
            if answer is None:
                return await self._infer(partial(_only, context), headers)
            asked = f"{name}Request"
            # A probe's message has no fields: it is not waited for, so that no silent ones pile up.
            message = await self._small(context) if MESSAGES[asked] else b""
            said = answer(self._parse(asked, message))
            content: bytes = self._messages[f"{name}Response"](**said).SerializeToString()
            return content
        except Exception as error:
            refused = Refused.of(error)
            code = _CODES.get(refused.status, grpc.StatusCode.INTERNAL)
            details = str(refused).encode(errors="replace")[:_MOST_SAID]
            await context.abort(code, details.decode(errors="ignore"))
            raise  # not reached

    async def _small(self, context: Any) -> bytes:
        """Return the message of a call that is no ModelInfer.

        Raises:
            Refused: It does not come in time, or those of too many other calls do not.
        """
        if self._silent >= self._service.limits.requests:
            raise Refused(503, f"the messages of {self._silent} calls are waited for")
        self._silent += 1
        try:
            async with asyncio.timeout(_SMALL_SECONDS):
                return await _only(context)
        except TimeoutError:
            raise Refused(504, f"no message came within {_SMALL_SECONDS:g} s") from None
        finally:
            self._silent -= 1

    def _parse(self, message: str, content: bytes) -> Any:
        with foreign(f"the request is not a {message}"):
            return self._messages[message].FromString(content)

    async def _infer(self, body: Callable[[], Awaitable[bytes]], headers: _Headers) -> bytes:
        service, name = self._service, ""

        async def answer(content: bytes, limit: asyncio.Timeout) -> bytes:
            nonlocal name
            message, request = await service.beside(len(content), self._read, content)
            version = message.model_version or None
            name = service.find(message.model_name, version).name  # a figure of it, if there is one
            called = service.id_of(request.id, _text(headers, "x-request-id"))
            key = _text(headers, "podium-sticky")
            write = partial(self._write, request)
            return await service.infer(
                name, version, key, called, request.inputs, len(content), limit, write
            )

        return await service.limited(lambda: name, body, answer)

    def _read(self, content: bytes) -> tuple[Any, InferRequest]:
        _check_parts(content)
        message = self._parse("ModelInferRequest", content)
        inputs, raw = dict[str, Array](), message.raw_input_contents
        if raw and len(raw) != len(message.inputs):
            raise InvalidInput(
                f"raw_input_contents has {len(raw)} tensors, but there are {len(message.inputs)} inputs"
            )
        if not message.inputs:
            raise InvalidInput("the request has no inputs")
        for at, tensor in enumerate(message.inputs):
            name = _name(tensor.name, f"inputs[{at}]")
            if name in inputs:
                raise InvalidInput(f"input {name!r} is given twice")
            form = TensorForm.read(name, tensor.datatype, list(tensor.shape))
            if raw:
                if tensor.HasField("contents"):
                    raise InvalidInput(f"input {name!r} has contents and raw_input_contents")
                inputs[name] = form.from_bytes(raw[at])
                continue
            field = _CONTENTS.get(str(form.dtype))
            if field is None:
                raise InvalidInput(
                    f"{tensor.datatype} of input {name!r} comes as raw_input_contents"
                )
            other = [one.name for one, _ in tensor.contents.ListFields() if one.name != field]
            if other:
                raise InvalidInput(
                    f"{tensor.datatype} of input {name!r} come as {field}, not {other[0]}"
                )
            flat = list(getattr(tensor.contents, field))
            texts = [form.text(item) for item in flat] if form.dtype.kind == "O" else flat
            inputs[name] = form.from_elements(texts)
        if len(message.id) > MOST_NAME:
            raise InvalidInput(f"id has at most {MOST_NAME} letters, not {len(message.id)}")
        outputs = {
            _name(output.name, f"outputs[{at}]"): bool(raw)
            for at, output in enumerate(message.outputs)
        }
        return message, InferRequest(
            id=message.id, inputs=inputs, outputs=outputs, binary=bool(raw)
        )

    def _write(
        self, request: InferRequest, head: Mapping[str, str], outputs: Mapping[str, Array]
    ) -> bytes:
        """Write an answer, raw where the request was, or where a datatype has no other form."""
        request.check_outputs(outputs)
        message = self._messages["ModelInferResponse"](**head)
        wanted = {name: outputs[name] for name in request.outputs or outputs}
        raw = request.binary or any(str(array.dtype) not in _CONTENTS for array in wanted.values())
        for name, array in wanted.items():
            dtype = str(array.dtype)
            tensor = message.outputs.add(name=name, datatype=NAMES[dtype], shape=array.shape)
            if raw:
                message.raw_output_contents.append(to_bytes(array))
                continue
            flat = np.ascontiguousarray(array).reshape(-1).tolist()
            texts = [str(item).encode() for item in flat] if array.dtype.kind == "O" else flat
            getattr(tensor.contents, _CONTENTS[dtype]).extend(texts)
        content: bytes = message.SerializeToString()
        return content


async def _only(context: Any) -> bytes:
    """Return the only message of a call, past grpcio's iterator, which costs a task a call."""
    message: Any = await context.read()
    if message is grpc.aio.EOF:
        raise InvalidInput("the call has no message")
    return bytes(message)


def _name(text: str, where: str) -> str:
    if not 0 < len(text) <= MOST_NAME:
        raise InvalidInput(f"{where} needs a name of at most {MOST_NAME} letters")
    return text


def _text(headers: _Headers, name: str) -> str:
    value = headers.get(name, "")
    return (value if isinstance(value, str) else value.decode("latin-1"))[:MOST_NAME]


def _check_parts(content: bytes) -> None:
    """Refuse a request of many parts, or of large ones beside its raw tensors, before it is read:
    in memory each takes many times its bytes.

    Raises:
        InvalidInput: It is one.
    """
    at = parts = beside = 0
    while at < len(content):
        start, parts = at, parts + 1
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == 2:
            length, at = _varint(content, at)
            at += length
        elif kind in (0, 1, 5):
            at = _varint(content, at)[1] if kind == 0 else at + (8 if kind == 1 else 4)
        else:  # a group, within which lengths mean other bytes
            raise InvalidInput("the request is not a ModelInferRequest: it has groups")
        beside += 0 if tag >> 3 == _RAW else at - start
        if parts > _MOST_PARTS or beside > MOST_JSON:
            raise InvalidInput(
                f"a request has at most {_MOST_PARTS:,} tensors, outputs and parameters and {MOST_JSON} bytes "
                f"beside raw_input_contents",
                "send large tensors as raw_input_contents",
            )
    if at > len(content):  # by a length beyond 64 bits, which protobuf cuts off
        raise InvalidInput("the request is not a ModelInferRequest: it ends within a field")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of the wire and the place behind it; past the end it is 0."""
    value = shift = 0
    for place in range(at, min(at + 10, len(content))):
        value |= (content[place] & 127) << shift
        shift += 7
        if content[place] < 128:
            return value, place + 1
    return 0, len(content)
