"""Commands of podium in forks of a process that has imported what they need: a second sooner."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.process import BaseProcess
from typing import Any, TextIO


def begin(
    words: Sequence[str], environ: Mapping[str, str], standard: Mapping[int, int]
) -> BaseProcess:
    """Begin a podium command.

    Args:
        words: What follows ``podium``.
        environ: The whole environment.
        standard: Descriptors of this process by the number, 0 to 2, that the command has them by.
    """
    handed = {number: _Handed(descriptor) for number, descriptor in standard.items()}
    process = multiprocessing.get_context("forkserver").Process(
        target=_run, args=(list(words), dict(environ), os.getcwd(), handed)
    )
    process.start()
    return process


class Command:
    """A podium command in a process of its own, with the parts of subprocess.Popen that tests use.

    Args:
        words: What follows ``podium``.
        environ: The whole environment.
    """

    def __init__(self, words: list[str], environ: dict[str, str]) -> None:
        reading, writing = os.pipe()
        self.stderr: TextIO = os.fdopen(reading)
        self._process = begin(words, environ, {2: writing})
        os.close(writing)
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> int | None:
        self._process.join(seconds)
        return self.returncode


class _Handed:
    """A descriptor that a process gets with its arguments."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _Handed._taken, (reduction.DupFd(self.descriptor),)

    @staticmethod
    def _taken(handed: Any) -> int:
        return int(handed.detach())


def _run(words: list[str], environ: dict[str, str], place: str, standard: dict[int, int]) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(place)
    for number, descriptor in standard.items():
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["podium", *words]

    from podium.cli import main

    main()
