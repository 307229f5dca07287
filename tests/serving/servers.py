"""A real `podium serve` in a process of its own."""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from forks import Command
from handmade import TABLE

from podium.models import Model


class Running:
    """A server in a process of its own."""

    def __init__(self, process: Command, url: str, said: list[str]) -> None:
        self.process, self.url, self.said = process, url, said
        self.http = httpx.Client(base_url=url, timeout=240)

    def infer(self, name: str, body: Any, **how: Any) -> httpx.Response:
        return self.http.post(f"/v2/models/{name}/infer", json=body, **how)


@contextmanager
def serving(*words: str | Path, **environ: str) -> Iterator[Running]:
    process = Command(["serve", *map(str, words), "--port", "0"], {**os.environ, **environ})
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"listening on (https?://\S+)/v2", line):
            break
    else:
        raise AssertionError("".join(said))
    reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
    reader.start()
    running = Running(process, found[1], said)
    try:
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) in (0, 143), "".join(said)
        reader.join()
        process.stderr.close()
        running.http.close()


def tensor(array: np.ndarray, name: str, datatype: str) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(array.shape),
        "datatype": datatype,
        "data": array.reshape(-1).tolist(),
    }


def upload_gated(model: Model, gate: Path) -> None:
    """Upload v4, a command that answers once there is such a file."""
    code = "import numpy, os, sys, time\nplace = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n" \
        f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.05)\n" \
        "rows = len(numpy.load(place['--inputs'] + '/table.npy'))\n" \
        "numpy.save(place['--output'], numpy.full((rows, 2), 0.5))\n"  # fmt: skip
    files: dict[str, Path | bytes] = {
        "model.json": json.dumps({"predict": ["python", "predict.py"]}).encode(),
        "predict.py": code.encode(),
        "preprocessing.json": json.dumps(TABLE).encode(),
    }
    model.upload(files, {"run_id": "v4"})
