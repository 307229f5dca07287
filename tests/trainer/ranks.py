"""Processes of one training, forked from one that has imported torch."""

import multiprocessing
import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

import torch


def run_ranks(program: str, dataset: Path, target: Path, size: int = 2) -> list[Any]:
    """Run a program as processes of one training; return what each saved under its rank in the target directory."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    context = multiprocessing.get_context("forkserver")
    ranks = [
        context.Process(target=_run, args=(program, [str(dataset), str(target)], shared | _own(rank)))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [0] * size
    return [torch.load(target / str(rank), weights_only=True) for rank in range(size)]


def _own(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)}


def _run(program: str, arguments: list[str], environ: dict[str, str]) -> None:
    os.environ.update(environ)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
