"""A plain python becomes torchrun where that is sure; anything else is left to the user."""

import pytest

from podium.manifests.torchrun import launches, with_torchrun


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        (["python", "train.py", "--lr=1"], ["torchrun", "train.py", "--lr=1"]),
        (["python3", "-m", "podium.trainer"], ["torchrun", "-m", "podium.trainer"]),
        (["python", "-u", "-m", "train"], ["torchrun", "-m", "train"]),
        (["python", "-O", "train.py"], ["torchrun", "--no-python", "python", "-O", "train.py"]),
        (["python", "-c", "print(1)"], ["torchrun", "--no-python", "python", "-c", "print(1)"]),
        (["/opt/venv/bin/python", "train.py"], ["/opt/venv/bin/python", "-m", "torch.distributed.run", "train.py"]),
        (["python3.11", "train.py"], ["python3.11", "-m", "torch.distributed.run", "train.py"]),
        (["sh", "-c", "python train.py --lr 1"], ["sh", "-c", "torchrun train.py --lr 1"]),
        (["bash", "-ec", "cd /app && exec python -u -m train"], ["bash", "-ec", "cd /app && exec torchrun -m train"]),
        (["sh", "-c", "python -m pip install x; A=b python train.py"],
         ["sh", "-c", "python -m pip install x; A=b torchrun train.py"]),
        (["sh", "-c", "pip install accelerate deepspeed && python train.py"],
         ["sh", "-c", "pip install accelerate deepspeed && torchrun train.py"]),
        (["sh", "-c", "set -e\npython -O train.py"], ["sh", "-c", "set -e\ntorchrun --no-python python -O train.py"]),
        (["sh", "-c", "python -u -W error t.py"], ["sh", "-c", "torchrun --no-python python -u -W error t.py"]),
    ],
)  # fmt: skip
def test_one_python_becomes_torchrun(command: list[str], changed: list[str]) -> None:
    assert with_torchrun(command) == tuple(changed)


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["torchrun", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["accelerate", "launch", "train.py"],
        ["./train.sh"],
        ["sh", "train.sh"],
        ["sh", "-c", "python prepare.py && python train.py"],
        ["sh", "-c", "echo python is great"],
        ["pythonista", "train.py"],
    ],
)
def test_what_is_not_one_python_stays_as_it_is(command: list[str]) -> None:
    assert with_torchrun(command) is None


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "train.py"],
        ["/opt/venv/bin/torchrun", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["env", "A=b", "accelerate", "launch", "train.py"],
        ["sh", "-c", "cd /app && torchrun train.py"],
        ["sh", "-c", "(torchrun train.py)"],
        ["sh", "-c", "python \\\n  -m torch.distributed.run train.py"],
        ["uv", "run", "--no-sync", "deepspeed", "train.py"],
        ["python", "-m", "accelerate.commands.launch", "train.py"],
        ["sh", "-c", "pip install accelerate; accelerate launch train.py"],
        ["python", "-u", "/opt/conda/bin/torchrun", "-m", "train"],
    ],
)
def test_launchers_are_known_wherever_they_stand(command: list[str]) -> None:
    assert launches(command)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["python", "train.py", "--output=/models/torchrun"],
        ["python", "train.py", "--output", "s3://models/deepspeed-1"],
        ["python", "accelerate_training.py"],
        ["python", "train.py", "--strategy", "deepspeed"],
    ],
)
def test_a_launchers_name_in_another_word_starts_nothing(command: list[str]) -> None:
    assert not launches(command)
    assert with_torchrun(command) == ("torchrun", *command[1:])
