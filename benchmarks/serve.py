"""Measure how many requests a second `podium serve` answers, beside the bare ONNX Runtime and other servers.

    python benchmarks/serve.py --model podium-work/store/models/mnist/versions/VERSION --rivals ~/.cache/podium/rivals
    python benchmarks/serve.py --model … --soak 10

Server and clients have a core each, the model one thread. Clients send one picture of 28 x 28 a request, as a binary
tensor (JSON for MLServer, which resets connections on binary ones), over connections that stay open. With --rivals
kserve's ModelServer and MLServer, with the shortest model that each takes (benchmarks/rivals), are installed into
virtual environments there and measured in turn with podium, round by round; so is furnace-server, a library of Rust
over the same ONNX Runtime, where cargo is there to build it. podium and furnace are asked over HTTP and over gRPC.
Prints the time to start, requests a second, their share of the bare ONNX Runtime's rate in the same run, the 95th
percentile, and the server's CPU milliseconds a request, for each number of clients.

With --soak a server is asked for some minutes at a low rate while the champion changes, and what its process holds is
printed: memory, open files, threads.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import uvloop
from machine import describe

from podium.files.protobuf import make_messages
from podium.models import open_registry
from podium.scoring import OnnxModel
from podium.serving.rpc import MESSAGES

HERE = Path(__file__).parent / "rivals"
NAMES = {"uint8": "UINT8", "float32": "FP32"}
LENGTH = re.compile(rb"\ncontent-length: (\d+)", re.IGNORECASE)
CLI = "from podium.cli import main; main()"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that runs on the first core."""

    name: str
    process: "subprocess.Popen[bytes]"
    port: int
    started: float
    """Seconds until its model was ready."""

    model: str
    head: bytes
    body: bytes
    grpc: bool = False
    """Whether the body is a call of gRPC, and port that of gRPC."""

    def cpu(self) -> float:
        """Return the CPU seconds of its processes so far."""
        used = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == self.process.pid:  # of its session
                used += int(fields[11]) + int(fields[12])
        return used / os.sysconf("SC_CLK_TCK")

    def held(self) -> tuple[float, int, int]:
        """Return the MiB of memory, the open files and the threads of its process."""
        here = Path(f"/proc/{self.process.pid}")
        status = dict(re.findall(r"(\w+):\s+(\d+)", (here / "status").read_text()))
        return (
            int(status["VmRSS"]) / 1024,
            len(list((here / "fd").iterdir())),
            int(status["Threads"]),
        )


def free_port() -> int:
    """Return the first of four ports in a row that are free just now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return min(int(listening.getsockname()[1]), 65000)


@contextmanager
def running(
    name: str, command: Sequence[str], port: int, model: str, body: bytes, size: int
) -> Iterator[Server]:
    """Start a server and wait until its model is ready.

    Args:
        size: Bytes of JSON at the head of the body; 0 if all of it is.
    """
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += f"Inference-Header-Content-Length: {size}\r\nContent-Type: application/octet-stream\r\n" if size else (
        "Content-Type: application/json\r\n"
    )  # fmt: skip
    began = time.monotonic()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(["taskset", "-c", "0", *command], stdout=log, stderr=log, start_new_session=True,
                                   env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
        try:
            while not ready(port, model):
                if process.poll() is not None or time.monotonic() > began + 120:
                    log.seek(0)
                    raise SystemExit(f"{name} did not start:\n{log.read().decode()}")
                time.sleep(0.01)
            yield Server(name=name, process=process, port=port, started=time.monotonic() - began, model=model,
                         head=f"{head}\r\n".encode(), body=body)  # fmt: skip
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ready(port: int, model: str) -> bool:
    """Return whether a server says that its model is ready."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(
                f"GET /v2/models/{model}/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
            )
            return b" 200 " in connection.recv(200)
    except OSError:
        return False


def bare(model: Path, seconds: float) -> float:
    """Return pictures a second of the runtime alone, one at a time."""
    graph = OnnxModel(model, threads=1)
    (wanted,) = graph.inputs
    picture = np.zeros((1, *(size or 1 for size in wanted.shape[1:])), wanted.dtype)
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        graph.run({wanted.name: picture})
        count += 1
    return count / seconds


class Client(asyncio.Protocol):
    """Sends one request after the other over a connection, and takes little of the clients' core for it.

    Args:
        server: To ask.
        end: When it is over, by time.monotonic().
        took: Gets the seconds of each answer.
        pause: Seconds between an answer and the next request.
    """

    def __init__(self, server: Server, end: float, took: list[float], pause: float = 0.0) -> None:
        self.request, self.end, self.took, self.pause = server.head + server.body, end, took, pause
        self.loop = asyncio.get_running_loop()
        self.over = self.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def send(self) -> None:
        """Send a request."""
        self.answer, self.began = b"", time.monotonic()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Send the next request once the answer is whole."""
        self.answer += data
        if not whole(self.answer):
            return
        now = time.monotonic()
        self.took.append(now - self.began)
        if not self.answer.startswith(b"HTTP/1.1 200"):
            self.over.set_exception(SystemExit(f"an answer is {self.answer!r:.500}"))
        elif now >= self.end:
            self.over.set_result(None)
        elif self.pause:
            self.loop.call_later(self.pause, self.send)
        else:
            self.send()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail if the server has closed the connection."""
        if not self.over.done():
            self.over.set_exception(error or SystemExit("a connection was closed"))


def whole(answer: bytes) -> bool:
    """Return whether an answer is there with all of its body."""
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return False
    if found := LENGTH.search(answer, 0, head):
        return len(answer) >= head + 4 + int(found[1])
    return answer.endswith(b"\r\n0\r\n\r\n")  # in chunks


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, 4.1)."""
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content


class Caller(Client):
    """Calls ModelInfer over gRPC: HTTP/2 as far as one unary call after the other needs it."""

    PATH = b"/inference.GRPCInferenceService/ModelInfer"
    HEAD = (
        b"\x83\x86\x04%c%b\x01\x09localhost\x0f\x10\x10application/grpc\x00\x02te\x08trailers"
        % (len(PATH), PATH)
    )
    """POST, http, path, authority, content type and te, none of them indexed (RFC 7541)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the connection, and its window as wide as it goes."""
        self.stream, self.held, self.answered = -1, b"", False
        window = frame(8, 0, 0, (2**31 - 1 - 65535).to_bytes(4))
        start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + window
        cast(asyncio.Transport, transport).write(start)
        super().connection_made(transport)

    def send(self) -> None:
        """Call on a new stream."""
        self.stream, self.answered, self.began = self.stream + 2, False, time.monotonic()
        head, body = frame(1, 4, self.stream, self.HEAD), frame(0, 1, self.stream, self.request)
        self.transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        """Take frames: an answer is a message, and ends with trailers."""
        self.held += data
        while len(self.held) >= 9 and len(self.held) >= (end := 9 + int.from_bytes(self.held[:3])):
            kind, flags, content = self.held[3], self.held[4], self.held[9:end]
            self.held = self.held[end:]
            if kind in (4, 6) and not flags & 1:  # settings and pings are acknowledged
                self.transport.write(frame(kind, 1, 0, content if kind == 6 else b""))
            elif kind == 0:
                self.answered = True
            elif kind in (3, 7) or (kind == 1 and flags & 1 and not self.answered):
                self.over.set_exception(SystemExit(f"a call failed: {content!r:.500}"))
            elif kind == 1 and flags & 1:
                now = time.monotonic()
                self.took.append(now - self.began)
                if now >= self.end:
                    self.over.set_result(None)
                else:
                    self.send()


async def ask(server: Server, end: float, took: list[float], pause: float = 0.0) -> None:
    """Let a client ask until the end."""
    loop = asyncio.get_running_loop()
    made = Caller if server.grpc else Client
    transport, client = await loop.create_connection(
        lambda: made(server, end, took, pause), "127.0.0.1", server.port
    )
    await client.over
    transport.close()


def bodies(graph: OnnxModel, name: str = "", kind: str = "") -> tuple[bytes, int, bytes]:
    """Return a request with a binary tensor, the bytes of JSON in it, and the same request as JSON alone.

    Args:
        name: Of the tensor; empty for the graph's own.
        kind: Type of its numbers; empty for the graph's own.
    """
    (wanted,) = graph.inputs
    kind = kind or wanted.dtype
    array = np.zeros([1, *(size or 1 for size in wanted.shape[1:])], kind)
    shape = list(array.shape)
    tensor = {"name": name or wanted.name, "shape": shape, "datatype": NAMES[kind]}
    binary = {**tensor, "parameters": {"binary_data_size": array.nbytes}}
    text = json.dumps({"inputs": [binary], "parameters": {"binary_data_output": True}}).encode()
    plain = json.dumps({"inputs": [{**tensor, "data": array.ravel().tolist()}]}).encode()
    return text + array.tobytes(), len(text), plain


def call(graph: OnnxModel, model: str, name: str = "", kind: str = "") -> bytes:
    """Return the same request as a message of gRPC; name and kind as in bodies."""
    (wanted,) = graph.inputs
    kind = kind or wanted.dtype
    array = np.zeros([1, *(size or 1 for size in wanted.shape[1:])], kind)
    tensor = {"name": name or wanted.name, "shape": array.shape, "datatype": NAMES[kind]}
    request = make_messages("inference", MESSAGES)["ModelInferRequest"]
    message = request(model_name=model, inputs=[tensor], raw_input_contents=[array.tobytes()])
    content = message.SerializeToString()
    return b"\0" + len(content).to_bytes(4) + bytes(content)


def floats(graph: OnnxModel, model: str) -> tuple[bytes, int, bytes]:
    """Return the requests for furnace, which knows no names and no bytes: a body, its bytes of JSON, a message."""
    binary, size, _ = bodies(graph, "input", "float32")
    return binary, size, call(graph, model, "input", "float32")


def interpreter(folder: Path, rival: str) -> str:
    """Return the Python of a rival's virtual environment, made if it is not there."""
    python = folder / rival / "bin/python"
    if not python.exists():
        subprocess.run(["uv", "venv", "-q", "-p", "3.11", folder / rival], check=True)
    subprocess.run(
        ["uv", "pip", "install", "-q", "-p", python, "-r", HERE / f"{rival}.txt"], check=True
    )
    return str(python)


def furnace(folder: Path) -> str:
    """Return the program of furnace-server, built with cargo if it is not there."""
    made = folder.resolve() / "furnace"
    if not (program := made / "release/furnace-rival").exists():
        build = ["cargo", "build", "--release", "--target-dir", str(made)]
        with tempfile.TemporaryDirectory() as copy:  # where the versions it finds are written
            source = shutil.copytree(HERE / "furnace", Path(copy) / "furnace")
            subprocess.run(build, cwd=source, check=True)
    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    os.environ["ORT_DYLIB_PATH"] = str(library)
    return str(program)


def servers(args: argparse.Namespace, name: str, file: str) -> dict[str, list[str]]:
    """Return the commands to compare, each but for the port, which comes last."""
    commands = {"podium": [sys.executable, "-c", CLI, "serve", str(args.model), "--port"]}
    if args.watch:
        commands["podium --watch"] = [*commands["podium"][:-1], "--watch", "--port"]
    for rival in ("kserve", "mlserver") if args.rivals else ():
        program = [interpreter(args.rivals, rival), str(HERE / f"{rival}_model.py")]
        commands[rival] = [*program, name, file]
    if args.rivals and shutil.which("cargo"):
        commands["furnace"] = [furnace(args.rivals), name, file]
    return commands


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="directory with model.onnx")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--rivals", type=Path, help="folder of their virtual environments; none if missing"
    )
    parser.add_argument("--watch", action="store_true", help="measure podium serve --watch as well")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="soak instead")
    args = parser.parse_args()
    os.sched_setaffinity(0, {1})
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    alone = bare(args.model / "model.onnx", 2.0)
    print(f"{describe()}\nbare ONNX Runtime {alone:,.0f} a second")
    if args.soak:
        soak(args.model, args.soak)
        return
    name, file = args.model.resolve().name, str(args.model / "model.onnx")
    graph = OnnxModel(Path(file), threads=1)
    binary, size, text = bodies(graph)
    requests = {"mlserver": (text, 0, b""), "furnace": floats(graph, name)}
    own = (binary, size, call(graph, name))
    commands = servers(args, name, file)
    figures: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for _ in range(args.repeats):
        for called, command in commands.items():
            port = free_port()
            body, head, message = requests.get(called, own)
            more = ["--grpc-port", str(port + 1)] if called == "podium" else []
            with running(called, [*command, str(port), *more], port, name, body, head) as server:
                figures.setdefault((called, 0), []).append((server.started, 0.0, 0.0))
                asked = {called: server}
                if more or called == "furnace":
                    asked[f"{called}, gRPC"] = replace(
                        server, port=port + 1, grpc=True, head=b"", body=message
                    )
                for how, each in asked.items():
                    for clients in args.clients:
                        figures.setdefault((how, clients), []).append(
                            measure(each, clients, args.seconds)
                        )
    for (called, clients), measured in figures.items():
        rate, late, cost = map(statistics.median, zip(*measured, strict=True))
        if not clients:
            print(f"{called} starts in {rate:.1f} s")
            continue
        print(
            f"{called}, {clients} clients: {rate:,.0f} requests a second, {rate / alone:.2f} of bare, "
            f"95 % within {1000 * late:.1f} ms, {1000 * cost:.2f} ms of CPU each"
        )


def measure(server: Server, clients: int, seconds: float) -> tuple[float, float, float]:
    """Let clients ask for some seconds; return requests a second, the 95th percentile and CPU seconds a request."""
    took: list[float] = []
    uvloop.run(clients_of(server, clients, 0.5, []))
    used = server.cpu()
    uvloop.run(clients_of(server, clients, seconds, took))
    return (
        len(took) / seconds,
        sorted(took)[int(0.95 * len(took))],
        (server.cpu() - used) / len(took),
    )


async def clients_of(server: Server, clients: int, seconds: float, took: list[float]) -> None:
    """Let clients ask at once."""
    end = time.monotonic() + seconds
    await asyncio.gather(*(ask(server, end, took) for _ in range(clients)))


def soak(directory: Path, minutes: float) -> None:
    """Ask 20 times a second while the champion changes every ten seconds, and print what the server holds."""
    binary, size, _ = bodies(OnnxModel(directory / "model.onnx", threads=1))
    with tempfile.TemporaryDirectory(prefix="podium-soak-") as store:
        model = open_registry(store).model("soak")
        for version in ("v1", "v2"):
            model.upload({"model.onnx": directory / "model.onnx"}, {"run_id": version})
        model.promote("v1")
        port = free_port()
        command = [
            sys.executable,
            "-c",
            CLI,
            "serve",
            "soak",
            "--storage",
            store,
            "--follow",
            "1",
            "--port",
            str(port),
        ]
        with running("podium", command, port, "soak", binary, size) as server:
            took: list[float] = []
            for number in range(max(2, round(minutes * 6))):
                uvloop.run(slowly(server, 10.0, took))
                model.promote(f"v{2 - number % 2}")
                memory, files, threads = server.held()
                if number % 6 == 0 or number < 3:
                    print(f"{(number + 1) / 6:5.1f} min: {memory:.1f} MiB, {files} files, {threads} threads, "
                          f"{len(took):,} answers, {number + 1} swaps", flush=True)  # fmt: skip
            memory, files, threads = server.held()
            print(f"at the end: {memory:.1f} MiB, {files} files, {threads} threads, {len(took):,} answers, all of them "
                  f"200, 95 % within {1000 * sorted(took)[int(0.95 * len(took))]:.1f} ms")  # fmt: skip


async def slowly(server: Server, seconds: float, took: list[float]) -> None:
    """Ask by four clients, each five times a second."""
    end = time.monotonic() + seconds
    await asyncio.gather(*(ask(server, end, took, 0.2) for _ in range(4)))


if __name__ == "__main__":
    main()
