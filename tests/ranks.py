"""Processes of one training, forked from one that has imported torch."""

import multiprocessing
import os
import runpy
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def run_ranks(program: str, dataset: Path, target: Path, size: int = 2,
              environs: Callable[[int], list[dict[str, str]]] | None = None) -> list[Any]:  # fmt: skip
    """Run a program as processes of one training; return what each saved under its rank in the target directory.

    Args:
        program: A Python file; it gets dataset and target as arguments.
        dataset: A dataset artifact.
        target: Where it saves.
        size: Number of processes.
        environs: Returns, for a port, the environment of each process; that of torchrun if None.
    """
    own = environs(free_port()) if environs else of_torchrun(free_port(), size)
    context = multiprocessing.get_context("forkserver")
    ranks = [
        context.Process(
            target=_run, args=(program, [str(dataset), str(target)], {**os.environ, **environ})
        )
        for environ in own
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [0] * size
    return [torch.load(target / str(rank), weights_only=True) for rank in range(size)]


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def of_torchrun(port: int, size: int) -> list[dict[str, str]]:
    """Return what torchrun and the training operator set."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def of_trainer(port: int, size: int = 2) -> list[dict[str, str]]:
    """Return what Kubeflow Trainer sets in each node's pod, and no more."""
    shared = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port), "PET_NNODES": str(size),
              "PET_NPROC_PER_NODE": "1"}  # fmt: skip
    return [
        {**shared, "PET_NODE_RANK": str(node), "JOB_COMPLETION_INDEX": str(node)}
        for node in range(size)
    ]


def _run(program: str, arguments: list[str], environ: dict[str, str]) -> None:
    os.environ.update(environ)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
