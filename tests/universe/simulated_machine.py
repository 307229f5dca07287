"""A machine of a universe: processes with numbers, pipes, signals and locks, and a disk that fails.

Files are real ones below a directory; what podium does to them goes through pathlib, whose functions
let others go on first, and fail or kill where a fault strikes."""

import errno
import fcntl as real_fcntl
import os as real_os
import signal as real_signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from greenlet import getcurrent
from simulation import Crash, Event, Life, Task, Universe, Violation, here

READS = ("hitch", "io", "jump", "crash", "interrupt")
WRITES = ("hitch", "lag", "space", "io", "torn", "crash", "died", "interrupt")
CHANGES = ("hitch", "io", "crash", "died", "interrupt")
"""Of names in directories: a file appears, moves or is gone."""


class Pipe:
    """A pipe between two processes; either end is closed as its process ends."""

    def __init__(self) -> None:
        self.content = b""
        self.is_written, self.is_read = True, True
        self._readers: deque[Task] = deque()

    def write(self, content: bytes) -> None:
        if not self.is_read:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self.content += content
        here().wake(self._readers)

    def take(self, line: bool = False) -> bytes:
        """Wait for content; return all, or a line, nothing at the end."""
        while self.is_written and not (b"\n" in self.content if line else self.content):
            here().block(self._readers, None)
        at = self.content.find(b"\n") + 1 if line and b"\n" in self.content else len(self.content)
        taken, self.content = self.content[:at], self.content[at:]
        return taken

    def end_writing(self) -> None:
        self.is_written = False
        if Universe.current:
            here().wake(self._readers)

    def end_reading(self) -> None:
        self.is_read = False


class Running:
    """A process of the machine.

    Args:
        name: Its name in faults.
        main: Returns its exit code.
    """

    def __init__(self, machine: "Machine", name: str, main: Callable[[], int]) -> None:
        machine.count += 1
        self.number, self.code = 100 + machine.count, 0
        self.name, self._has_code = name, False
        self.over = Event()
        self.askers: set[Life | None] = set()
        """Who sent it signals: maybe itself, as its parent is gone; None for the kernel."""

        self.handlers: dict[int, Callable[..., object]] = {}
        self.environ = dict(real_os.environ)
        self.at_exit: list[Callable[[], object]] = []
        self.closing: list[Callable[[], object]] = []
        """Closes its ends of pipes."""

        self.stdin, self.stdout = Pipe(), Pipe()
        self.broke: Exception | None = None
        universe = machine.universe
        process = universe.process(name)
        process.skew = 0.0
        self.life: Life = universe.begin(process, lambda: self._run(main))
        self.life.after = self._ended
        self.main = next(iter(self.life.tasks))
        machine.running[self.number] = self
        machine.of[self.life] = self

    def _run(self, main: Callable[[], int]) -> None:
        try:
            code = main()
        except Violation:
            raise
        except Exception as error:  # a traceback
            self.broke, code = error, 1
        for function in reversed(self.at_exit):
            function()
        self._end(code)
        here().kill(self.life)

    def _end(self, code: int) -> None:
        if not self._has_code:
            self.code, self._has_code = code, True

    def _ended(self) -> None:
        self._end(-real_signal.SIGKILL)
        for close in self.closing:
            close()
        self.over.set()

    def send(self, number: int) -> None:
        """Send it a signal."""
        if self.life.dead:
            return
        task = getcurrent()
        self.askers.add(task.life if isinstance(task, Task) else None)
        handler = self.handlers.get(number)
        if number != real_signal.SIGKILL and handler:
            here().spawn(self.life, lambda: handler(number, None), "signal")
        else:
            self._end(-number)
            here().kill(self.life)


class File:
    """An open file, of which a fault may strike what is written."""

    def __init__(self, machine: "Machine", real: Any, kind: str, path: str) -> None:
        self._real, self._kind, self._path = real, kind, path
        self.life, self.machine = here().task().life, machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._real)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._real.close()
        if Universe.current and not self.life.dead:
            here().wake(self.machine.waiters)

    def write(self, content: Any) -> int:
        if self.life.dead:
            raise Crash
        kind, self._kind = self._kind, ""
        if kind in ("torn", "space"):
            self._real.write(content[: len(content) // 2])
            self._real.flush()
        if kind == "torn":
            here().crash()
        if kind == "space":
            raise OSError(errno.ENOSPC, "No space left on device", self._path)
        self._real.write(content)
        self._real.flush()
        if kind == "died":
            here().crash()
        return len(content)


class Machine:
    """Processes and disk.

    Args:
        root: Directory of the files that belong to it.
    """

    def __init__(self, universe: Universe, root: Path) -> None:
        self.universe, self.root = universe, str(root)
        self.count = 0
        self.running: dict[int, Running] = {}
        self.of: dict[Life, Running] = {}
        self.waiters: deque[Task] = deque()
        self._locks: dict[int, dict[File, bool]] = {}

    def current(self) -> Running:
        """Return the process that runs."""
        return self.of[here().task().life]

    def operation(self, place: str, possible: tuple[str, ...]) -> str:
        """Let others go on; return the fault that strikes, unless it is raised here."""
        kind = self.universe.operation(place, possible)
        if kind == "io":
            raise OSError(errno.EIO, "Input/output error", place.partition(" ")[2])
        if kind == "interrupt" and getcurrent() is self.current().main and self._is_command():
            raise KeyboardInterrupt
        return kind

    def _is_command(self) -> bool:
        return self.current().name.startswith("user")

    def send(self, group: int, number: int) -> None:
        """Send a signal to the group of a process, as os.killpg."""
        self.universe.pause()
        found = self.running.get(group)
        if found is None or found.over.is_set():
            raise ProcessLookupError(errno.ESRCH, "No such process")
        found.send(number)

    def flock(self, file: File, how: int) -> None:
        """Lock a file, as fcntl.flock; a lock is gone with its process."""
        self.operation("lock", ("hitch", "crash"))
        held = self._locks.setdefault(real_os.fstat(file.fileno()).st_ino, {})
        held.pop(file, None)
        if how & real_fcntl.LOCK_UN:
            self.universe.wake(self.waiters)
            return
        exclusive = bool(how & real_fcntl.LOCK_EX)
        while any(
            exclusive or held[other] for other in held if not (other.closed or other.life.dead)
        ):
            if how & real_fcntl.LOCK_NB:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            self.universe.block(self.waiters, 0.5)
        held[file] = exclusive

    def _sees(self, path: Path) -> str:
        """Return the name below the root; empty for what is none of the universe's."""
        text = str(path)
        inside = isinstance(getcurrent(), Task) and text.startswith(self.root)
        return text[len(self.root) + 1 :] if inside else ""

    @contextmanager
    def disk(self) -> Iterator[None]:
        """Let pathlib's files below the root be this machine's."""
        names = ("open", "touch", "unlink", "mkdir", "replace")
        usual = {name: getattr(Path, name) for name in names}

        def opened(path: Path, mode: str = "r", *given: Any, **more: Any) -> Any:
            name = self._sees(path)
            if not name:
                return usual["open"](path, mode, *given, **more)
            reads = "r" in mode
            verb = "read" if reads else "write"
            kind = self.operation(f"{verb} {name}", READS if reads else WRITES)
            return File(self, usual["open"](path, mode, *given, **more), kind, str(path))

        def changing(verb: str) -> Callable[..., Any]:
            def changed(path: Path, *given: Any, **more: Any) -> Any:
                name = self._sees(path)
                if not name:
                    return usual[verb](path, *given, **more)
                kind = self.operation(f"{verb} {name}", CHANGES)
                result = usual[verb](path, *given, **more)
                if kind == "died":
                    here().crash()
                return result

            return changed

        for name in names:
            setattr(Path, name, opened if name == "open" else changing(name))
        try:
            yield
        finally:
            for name, function in usual.items():
                setattr(Path, name, function)
