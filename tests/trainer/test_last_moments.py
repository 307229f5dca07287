"""A rank that is killed while the model is written, or later, holds nobody up. This file is also a program."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import free_port, run_ranks

from podium.cluster.local.processes.client import Command, LauncherPool, Process
from podium.trainer import data, output, world as worlds
from podium.trainer.__main__ import main, train
from podium.trainer.config import parse

pytestmark = pytest.mark.whole


def flags(dataset: Path | str, folder: Path | str) -> list[str]:
    own = ["--epochs", "1", "--batch-size", "50", "--model", "mlp", "--no-cuda", "--threads", "1"]
    return ["--data", str(dataset), "--output", str(folder), *own]


def run(dataset: str, folder: str, here: worlds.World) -> list[Any]:
    """Train; the rank that DIES names does so when the model is written, which takes the other a while."""
    config = parse(flags(dataset, f"{folder}/model"))
    write, dies = output.write, int(os.environ["DIES"])
    worlds.LOST_BEATS, worlds.GRACE_SECONDS = 3, 1.0

    def end() -> None:
        torch.save([], f"{folder}/{dies}")
        os._exit(0)

    def slow(*arguments: Any) -> None:
        if dies == 0:
            end()
        time.sleep(8)  # longer than a lost rank is waited for
        write(*arguments)

    output.write = slow
    if here.rank == dies == 1:
        worlds.World.last_work = lambda self: end()  # type: ignore[assignment,method-assign]
    try:
        train(config, data.load(config), here)
    except worlds.PeerLost as error:
        return [type(error).__name__]
    return ["ended"]


def test_the_others_wait_until_rank_0_has_written(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES", "0")
    assert run_ranks(__file__, tiny_dataset, tmp_path)[1] == ["PeerLost"], "it begins again"


def test_rank_0_writes_though_another_is_gone(
    tiny_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES", "1")
    assert run_ranks(__file__, tiny_dataset, tmp_path)[0] == ["ended"]
    assert (tmp_path / "model" / "metrics.json").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_finds_nobody_ends_if_all_is_finished(
    rank: int, tiny_dataset: Path, tmp_path: Path
) -> None:
    launchers, log, model = LauncherPool(), tmp_path / "log", tmp_path / "model"
    log.touch()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    words = ("python", "-m", "podium.trainer", *flags(tiny_dataset, model))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, **place, "RANK": str(rank)}
    command = Command(argv=words, env=env, cwd=tmp_path, log=log, own_python=True)
    try:
        waiting: Process = launchers.start(command, lambda: None)
        assert main(flags(tiny_dataset, tmp_path / "other")) == 0
        assert waiting.running, log.read_text()
        (tmp_path / "other").rename(model)
        assert waiting.wait(120) == 0, log.read_text()
    finally:
        launchers.close()
    assert ("this training is finished" in log.read_text()) == (rank == 0)


if __name__ == "__main__":
    with worlds.join(parse(flags(*sys.argv[1:]))) as world:
        torch.save(run(*sys.argv[1:], world), f"{sys.argv[2]}/{world.rank}")
