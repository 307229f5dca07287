"""Ranks that mpirun or srun starts, which set names of their own and no place to meet. This file is
also their program."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ranks import free_port, run_ranks

from podium.errors import InvalidInput
from podium.trainer.__main__ import main
from podium.trainer.ranks import Ranks, is_first, read

pytestmark = pytest.mark.whole

FLAGS = ["--epochs", "1", "--no-cuda", "--threads", "1", "--model", "fast"]


def open_mpi(rank: int, size: int, here: int | None = None, job: str = "1") -> dict[str, str]:
    """Return what Open MPI 4.1.4 sets for a rank."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(size if here is None else here),
        "OMPI_MCA_ess_base_jobid": job,
    }


def mpich(rank: int, size: int) -> dict[str, str]:
    """Return what MPICH's and Intel MPI's Hydra set for a rank."""
    local = {"MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": str(size)}
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(size), **local}


def slurm(rank: int, size: int) -> dict[str, str]:
    """Return what srun sets for a rank, in a job of sbatch."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": str(size),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_TASKS_PER_NODE": str(size),
    }


@pytest.mark.parametrize("launcher", [open_mpi, mpich, slurm])
def test_ranks_of_one_machine_meet_at_its_loopback(
    launcher: Callable[[int, int], dict[str, str]],
) -> None:
    ranks = [read(launcher(rank, 2)) for rank in range(2)]
    assert [(own.rank, own.local, own.size) for own in ranks] == [(0, 0, 2), (1, 1, 2)]
    assert {own.address for own in ranks} == {"127.0.0.1"}
    assert len({own.port for own in ranks}) == 1
    assert 15_000 <= ranks[0].port < 30_000
    assert [is_first(launcher(rank, 2)) for rank in range(2)] == [True, False]


def test_two_starts_meet_at_two_ports() -> None:
    assert read(open_mpi(0, 2, job="1")).port != read(open_mpi(0, 2, job="2")).port


def test_one_rank_trains_alone() -> None:
    assert read(open_mpi(0, 1)) == Ranks()


def test_a_script_of_sbatch_is_one_process() -> None:
    batch = {name: slurm(0, 4)[name] for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID")}
    assert read(batch) == Ranks()


def test_torchrun_inside_of_mpirun_counts() -> None:
    inner = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}
    assert read({**open_mpi(1, 2), **inner}).rank == 3


def test_ranks_of_several_machines_are_told_where_to_meet() -> None:
    with pytest.raises(InvalidInput, match="is 4, 2 of them here, but MASTER_ADDR") as error:
        read(open_mpi(0, 4, here=2))
    assert "-x MASTER_ADDR=HOST" in str(error.value.hint)
    there = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert read({**open_mpi(0, 4, here=2), **there}).url == "tcp://10.0.0.1:29500"


def test_a_rank_that_is_no_number_is_named() -> None:
    with pytest.raises(InvalidInput, match="OMPI_COMM_WORLD_RANK must be a number"):
        read({**open_mpi(0, 2), "OMPI_COMM_WORLD_RANK": "one"})
    with pytest.raises(InvalidInput, match="0 <= PMI_RANK < PMI_SIZE"):
        read(mpich(2, 2))


def test_two_ranks_of_mpirun_train_one_model(tiny_dataset: Path, tmp_path: Path) -> None:
    def environs(port: int) -> list[dict[str, str]]:
        return [open_mpi(rank, 2) | {"MASTER_PORT": str(port)} for rank in range(2)]

    seen = run_ranks(__file__, tiny_dataset, tmp_path, environs=environs)
    assert [rank["code"] for rank in seen] == [0, 0]
    environment = json.loads((tmp_path / "model" / "environment.json").read_text())
    assert environment["processes"] == 2
    assert len(json.loads((tmp_path / "model" / "metrics.json").read_text())["epochs"]) == 1


@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed: openmpi-bin")
def test_mpirun_trains_one_model(tiny_dataset: Path, tmp_path: Path) -> None:
    output = tmp_path / "model"
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable]
    flags = ["-m", "podium.trainer", "--data", str(tiny_dataset), "--output", str(output), *FLAGS]
    outer = {name: value for name, value in os.environ.items() if name != "RANK"}
    environment = {**outer, "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [*words, *flags], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accuracy=") == 1, done.stdout
    assert json.loads((output / "environment.json").read_text())["processes"] == 2


if __name__ == "__main__":
    code = main(["--data", sys.argv[1], "--output", f"{sys.argv[2]}/model", *FLAGS])
    torch.save({"code": code}, f"{sys.argv[2]}/{os.environ['OMPI_COMM_WORLD_RANK']}")
