"""Processes of one training."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch


def run_ranks(program: str, dataset: Path, target: Path, size: int = 2) -> list[Any]:
    """Run a program as processes of one training; return what each saved under its rank in the target directory."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    place = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    command = [sys.executable, program, str(dataset), str(target)]
    running = [
        subprocess.Popen(command, env={**place, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(size)
    ]
    assert [process.wait(120) for process in running] == [0] * size
    return [torch.load(target / str(rank), weights_only=True) for rank in range(size)]
