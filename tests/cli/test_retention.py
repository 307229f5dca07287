"""The commands of deploy/retention, as its pods run them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.models import open_registry
from podium.training.kept_logs import KeptLogs

CRONJOB = Path(__file__).parents[2] / "deploy/retention/cronjob.yaml"


@pytest.fixture
def nightly(
    typed: Callable[..., Any], new_bucket: Callable[[str], str]
) -> tuple[str, Callable[[], None]]:
    """A bucket's storage, and the CronJob's containers one after the other."""
    bucket = new_bucket("moto")
    pod = yaml.safe_load(CRONJOB.read_text())["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    commands = [container["command"] for container in [*pod["initContainers"], *pod["containers"]]]

    def run() -> None:
        for words in commands:
            done = typed(*(word.replace("s3://$(BUCKET)", bucket) for word in words[1:]))
            assert done[0] == 0, done

    return f"{bucket}/podium", run


def test_retention_finds_nothing_to_do_in_an_empty_bucket(
    nightly: tuple[str, Callable[[], None]],
) -> None:
    nightly[1]()


@pytest.mark.whole
def test_retention_keeps_what_is_young_or_needed(nightly: tuple[str, Callable[[], None]]) -> None:
    storage, run = nightly
    model = open_registry(storage).model("mnist")
    for number in range(25):
        model.upload({"model.onnx": b"x"}, {"run_id": f"run-{number:02}"})
    model.set_champion("run-00", {}, expect=None)
    KeptLogs(storage, "today").keep("steps/prepare", "prepared\n")
    run()
    assert model.version().version == "run-00"
    assert len(model.versions) == 25, "all are younger than a day"
    assert KeptLogs(storage, "today").names() == ["steps/prepare"]
