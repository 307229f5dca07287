"""A job's containers run their command in the code, in a form that Katib's webhook keeps."""

from pathlib import Path
from typing import Any

import pytest

from podium.errors import InvalidInput
from podium.manifests.shell import join
from podium.manifests.workload import Workload
from podium.training.target import with_code

URI = f"s3://bucket/team/code/{'ab' * 32}.tar.gz"
PREFIX = ["python", "-m", "podium.code", URI, "--digest", "ab" * 32]


def job(**container: Any) -> Workload:
    containers = [{"name": "main", "image": "any", **container}, {"name": "side", "command": ["x"]}]
    spec = {"template": {"spec": {"containers": containers}}}
    return Workload.parse(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}
    )


def words(wrapped: Workload, name: str = "main") -> list[str]:
    return next(
        list(container.words) for _, container in wrapped.containers() if container.name == name
    )


def test_the_command_follows_the_wrapper() -> None:
    plain = job(command=["python", "train.py"], args=["--lr=${trialParameters.lr}"])
    wrapped = with_code(plain, URI, container="main")
    assert words(wrapped) == [*PREFIX, "--", "python", "train.py", "--lr=${trialParameters.lr}"]
    assert words(wrapped, "side") == ["x"]
    asked = with_code(plain, URI, install_requirements=True)
    assert words(asked)[:8] == [*PREFIX, "--install-requirements", "--"]
    assert words(asked, "side")[-1] == "x"
    assert words(plain) == ["python", "train.py", "--lr=${trialParameters.lr}"], (
        "the given job stays"
    )


def test_a_shell_stays_in_front_of_its_script() -> None:
    script = "python train.py --name='a b' \\\n  --lr=${trialParameters.lr} | tee log.txt"
    shell = words(with_code(job(command=["sh", "-c"], args=[script]), URI))
    assert shell[:2] == ["sh", "-c"]
    assert join(shell) == (("sh", "-c"), shell[2]), "as Katib would run it"
    assert "--lr=${trialParameters.lr}" in shell[2]
    positional = words(with_code(job(command=["bash", "-c", 'echo "$1"', "me", "two words"]), URI))
    assert positional[3:] == ["me", "two words"]
    assert positional[2].endswith('"$0" "$@"')


def test_no_code_changes_nothing() -> None:
    plain = job(command=["python"])
    assert with_code(plain, "") is plain


def test_a_container_without_a_command_is_refused() -> None:
    with pytest.raises(InvalidInput, match="container main has no command") as caught:
        with_code(job(args=["--lr=1"]), URI)
    assert "manifest" in str(caught.value.hint)
    with pytest.raises(InvalidInput, match="code is <storage>/code/<sha256>"):
        with_code(job(command=["x"]), str(Path("src")))
