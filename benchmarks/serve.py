"""Measure how many requests a second `podium serve` answers, beside the bare ONNX Runtime.

    python benchmarks/serve.py --seconds 5 --clients 1 8 64 --model podium-work/store/models/mnist/versions/VERSION

Server and clients have a core each (taskset), the model one thread. Clients send one picture of 28 x 28 a request, as a
binary tensor, over connections that stay open. Prints requests a second, the 95th percentile, and the server's CPU
milliseconds a request, for each number of clients.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

from podium.scoring import OnnxModel


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


async def ask(port: int, name: str, body: bytes, size: int, end: float, took: list[float]) -> None:
    """Send one request after the other over a connection, as a client does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        f"Inference-Header-Content-Length: {size}\r\n\r\n"
    ).encode()
    while time.monotonic() < end:
        began = time.monotonic()
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = int(re.search(rb"\r\ncontent-length: (\d+)", answer)[1])  # type: ignore[index]
        await reader.readexactly(length)
        took.append(time.monotonic() - began)
    writer.close()


def cpu(process: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    os.sched_setaffinity(0, {1})
    graph = OnnxModel(args.model / "model.onnx", threads=1)
    (wanted,) = graph.inputs
    shape = [1, *(size or 1 for size in wanted.shape[1:])]
    raw = np.zeros(shape, wanted.dtype).tobytes()
    names = {"uint8": "UINT8", "float32": "FP32"}
    tensor: dict[str, Any] = {"name": wanted.name, "shape": shape, "datatype": names[wanted.dtype],
                              "parameters": {"binary_data_size": len(raw)}}  # fmt: skip
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    code = "import os; os.sched_setaffinity(0, {0}); from podium.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(args.model), "--port", "0"]
    began = time.monotonic()
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    port = next(int(found[1]) for line in server.stderr if (found := re.search(r"listening on .*:(\d+)/", line)))
    started, alone = time.monotonic() - began, bare(args.model / "model.onnx", 2.0)
    print(f"{describe()}\nstart {started:.1f} s; bare ONNX Runtime {alone:,.0f} a second")
    try:
        measure(args, server.pid, port, text + raw, len(text))
    finally:
        server.terminate()
        server.wait()


def measure(args: argparse.Namespace, server: int, port: int, body: bytes, size: int) -> None:
    """Let clients ask for some seconds, and print what they saw."""
    name = args.model.resolve().name
    for clients in args.clients:
        rates, slow, costs = [], [], []
        for _ in range(args.repeats):
            took: list[float] = []
            used, end = cpu(server), time.monotonic() + args.seconds

            async def all_of_them() -> None:
                await asyncio.gather(*(ask(port, name, body, size, end, took) for _ in range(clients)))  # noqa: B023

            asyncio.run(all_of_them())
            rates.append(len(took) / args.seconds)
            slow.append(sorted(took)[int(0.95 * len(took))])
            costs.append((cpu(server) - used) / len(took))
        rate, late, cost = map(statistics.median, (rates, slow, costs))
        print(f"{clients} clients: {rate:,.0f} requests a second, 95 % within {1000 * late:.1f} ms, "
              f"{1000 * cost:.2f} ms of CPU each")  # fmt: skip


if __name__ == "__main__":
    main()
