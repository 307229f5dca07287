"""Nodes of a TrainJob find each other by what Kubeflow Trainer sets. This file is also their program."""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import free_port, of_trainer, run_ranks

from podium.trainer import kit
from podium.trainer.__main__ import main
from podium.trainer.ranks import Ranks, read

FLAGS = ["--epochs", "1", "--no-cuda", "--threads", "1", "--model", "fast"]


@pytest.fixture(scope="module")
def nodes(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two nodes saw, with the path of the model directory."""
    target = tmp_path_factory.mktemp("nodes")
    later = str(free_port())

    def environs(port: int) -> list[dict[str, str]]:
        return [{**node, "LATER_PORT": later} for node in of_trainer(port)]

    return [
        {**seen, "target": target}
        for seen in run_ranks(__file__, tiny_dataset, target, environs=environs)
    ]


def test_two_nodes_without_rank_train_one_model(nodes: list[dict[str, Any]]) -> None:
    output = nodes[0]["target"] / "model"
    assert [node["code"] for node in nodes] == [0, 0]
    assert json.loads((output / "environment.json").read_text())["processes"] == 2
    assert len(json.loads((output / "metrics.json").read_text())["epochs"]) == 1


def test_the_kit_tells_nodes_apart(nodes: list[dict[str, Any]]) -> None:
    assert [(node["rank"], node["size"]) for node in nodes] == [(0, 2), (1, 2)]
    assert nodes[0]["url"] == nodes[1]["url"]
    assert [node["reported"] for node in nodes] == [True, False]
    assert [node["sum"] for node in nodes] == [3.0, 3.0]


@pytest.mark.parametrize("processes", ["1", "auto", "cpu"])
def test_a_trainjob_of_one_node_is_one_rank(processes: str) -> None:
    alone = {"PET_NODE_RANK": "0", "PET_NNODES": "1", "PET_NPROC_PER_NODE": processes}
    assert read({**of_trainer(29500, 1)[0], **alone}) == Ranks()


def test_rank_outweighs_what_torchrun_was_given() -> None:
    own = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "host",
        "MASTER_PORT": "29400",
    }
    given = {**of_trainer(29500)[1], "PET_NPROC_PER_NODE": "2", **own}
    assert read(given) == Ranks(rank=3, size=4, local=1, address="host", port=29400)


def test_an_address_of_ipv6_makes_a_valid_url() -> None:
    assert Ranks(size=2, address="fd00::1", port=29500).url == "tcp://[fd00::1]:29500"


def follow(dataset: str, target: str) -> dict[str, Any]:
    """Train with the built-in trainer, then meet once more with the kit as a trainer of one's own would."""
    code = main(["--data", dataset, "--output", f"{target}/model", *FLAGS])
    os.environ["PET_MASTER_PORT"] = os.environ["LATER_PORT"]
    here, value = kit.ranks(), torch.ones(1)
    torch.distributed.init_process_group(
        "gloo", init_method=here.url, rank=here.rank, world_size=here.size
    )
    value += here.rank
    torch.distributed.all_reduce(value)
    torch.distributed.destroy_process_group()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        kit.report(accuracy=0.5)
    return {"code": code, "rank": here.rank, "size": here.size, "url": here.url, "sum": value.item(),
            "reported": "accuracy=0.5" in printed.getvalue()}  # fmt: skip


if __name__ == "__main__":
    torch.save(follow(*sys.argv[1:]), f"{sys.argv[2]}/{kit.ranks().rank}")
