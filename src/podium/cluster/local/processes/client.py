"""The caller's side of the launcher: processes that cannot outlive this one, in a fork server where
that is possible and faster, else in an interpreter of their own."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from podium.cluster.local.processes import launcher
from podium.cluster.local.scripts import imported_at_top
from podium.errors import Failed

START_TIMEOUT = 120.0
"""Seconds a process may take to start, including a fork server's imports."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One process to start."""

    argv: tuple[str, ...]
    """Program and arguments; the program is looked up in the PATH of env."""

    env: dict[str, str]
    """The whole environment."""

    cwd: Path
    """Working directory; must exist."""

    log: Path
    """File to which stdout and stderr are appended."""

    own_python: bool = False
    """Whether its environment is that of this interpreter, so that a fork server may run it."""

    module: tuple[str, ...] | None = None
    """Module and arguments, to run in a fork server instead of starting argv."""


class Process:
    """A started process, in a session of its own."""

    def __init__(self, owner: "Launcher", number: int, on_exit: Callable[[], None]) -> None:
        self.pid = 0
        self.exit_code: int | None = None
        self.error: str | None = None
        self._owner = owner
        self._number = number
        self._on_exit = on_exit
        self.has_started, self._ended = threading.Event(), threading.Event()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def stop(self) -> None:
        """Ask its process group to end (SIGTERM)."""
        self._owner.send(op="stop", id=self._number)

    def kill(self) -> None:
        """Kill its process group (SIGKILL); once it has ended, so are all its descendants."""
        self._owner.send(op="kill", id=self._number)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end; return the exit code (128 + number for a signal), or None at the
        timeout."""
        self._ended.wait(timeout)
        return self.exit_code

    def started(self, pid: int | None, error: str | None) -> None:
        self.pid, self.error = pid or 0, error
        self.has_started.set()
        if error is not None:
            self._ended.set()

    def ended(self, code: int) -> None:
        self.exit_code = code
        self.has_started.set()
        self._ended.set()
        self._on_exit()


class Launcher:
    """Starts processes through the launcher program, which kills them all when this process is
    gone.

    Args:
        arguments: Interpreter and its options; a plain launcher needs no site packages.
        preload: Modules to import before the first start: a fork server.
        env: Environment of the launcher itself; processes get their own.
    """

    def __init__(
        self,
        arguments: tuple[str, ...] = (sys.executable, "-I", "-S"),
        preload: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.unfit: str | None = None
        self._lock = threading.Lock()
        self._processes: dict[int, Process] = {}
        self._count = 0
        self._ready = threading.Event()
        if not preload:
            self._ready.set()
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._program = subprocess.Popen(
                [*arguments, launcher.__file__, str(theirs.fileno()), *preload],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="podium-launcher", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether it can start processes."""
        return self._channel.fileno() >= 0 and self._reader.is_alive()

    @property
    def is_ready(self) -> bool:
        """Whether its imports have ended, successfully or not."""
        return self._ready.is_set()

    def start(self, command: Command, on_exit: Callable[[], None] = lambda: None) -> Process:
        """Start a process and return when it exists.

        Args:
            command: The command to start. A program that cannot be executed ends with 127 or 126,
                with a message in its log.
            on_exit: Called from another thread when the process has ended.

        Raises:
            Failed: The system cannot start any process, or the launcher was killed.
        """
        with self._lock:
            self._count += 1
            process = self._processes[self._count] = Process(self, self._count, on_exit)
            number = self._count
        request = {
            "argv": command.argv,
            "module": command.module,
            "env": command.env,
            "cwd": str(command.cwd),
            "log": str(command.log),
        }
        self.send(op="start", id=number, **request)
        if not self.alive or not process.has_started.wait(START_TIMEOUT) or not process.pid:
            why = process.error or self.unfit or "the launcher ended"
            raise Failed(
                f"cannot start {command.argv[0]}: {why}",
                "see which resource the machine lacks, then try again",
            )
        return process

    def wait_until_ready(self) -> bool:
        """Wait for the preloaded modules; return whether processes can be forked from here (else
        see ``unfit``)."""
        self._ready.wait(START_TIMEOUT)
        return self.alive and self._ready.is_set() and self.unfit is None

    def send(self, **message: Any) -> None:
        """Send a request; if the launcher is gone, so are its processes, and nothing is sent."""
        with self._lock, contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Stop all processes and end the launcher; returns when nothing is left."""
        if not self.is_ready:
            self._program.kill()  # it runs nothing yet, and would finish its imports first
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        try:
            self._program.wait(launcher.GRACE + 8)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait()
        self._reader.join()
        self._channel.close()

    def _read(self) -> None:
        try:
            with self._channel.makefile("r") as answers, contextlib.suppress(OSError, ValueError):
                for line in answers:
                    self._handle(json.loads(line))
        finally:
            self._ready.set()
            # The launcher is gone. If it was killed, its supervisors kill their processes.
            for process in list(self._processes.values()):
                process.ended(128 + signal.SIGKILL)

    def _handle(self, answer: dict[str, Any]) -> None:
        if "ready" in answer or "unfit" in answer:
            self.unfit = answer.get("unfit")
            self._ready.set()
        elif "exit" in answer:
            self._processes.pop(answer["id"]).ended(answer["exit"])
        else:
            process = self._processes[answer["id"]]
            process.started(answer.get("pid"), answer.get("error"))
            if process.error is not None:
                del self._processes[answer["id"]]


_SENSITIVE = re.compile(
    r"(PYTHON|LD_|DYLD_|OMP_|KMP_|GOMP_|MKL_|OPENBLAS_|TORCH|PYTORCH_|ATEN_|CUDA_|NVIDIA_|MALLOC_|GLIBC_|ORT_|LC_)\w+|LANG"
)
_PLACES = ("PATH", "HOME", "USER", "TMPDIR", "VIRTUAL_ENV", "XDG_CACHE_HOME")
_SHELLS = {"sh", "/bin/sh", "bash", "/bin/bash"}
_SHELL_SPECIAL = re.compile(r"[|&;<>()$`\\\"'*?\[\]#~!{}\n]")
TRAINER = (
    "podium.trainer.__main__",
    "podium.trainer.onnx_graph",
    "podium.storage.files",
    "safetensors.torch",
    "onnx",
    "onnxruntime",
)
"""Modules that podium's trainer imports sooner or later."""

FITTED = (
    "podium.trainer.trees",
    "podium.trainer.linear",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "onnx",
    "onnxruntime",
)
"""The same where scikit-learn fits its model."""

CALLS = ("podium.code.call", "podium.code.kept")
CALLED = ("podium.code", "podium.files.documents", "podium.metrics")
"""Modules that call a function, and what they import of podium."""

_SETTINGS = {
    # OpenBLAS starts its threads when numpy is imported; a fork needs a single-threaded parent.
    "OPENBLAS_NUM_THREADS": "1",
    # onnxruntime's telemetry would start a thread at import.
    "ORT_DISABLE_TELEMETRY": "1",
    # pyarrow's allocator starts a thread as it is loaded, which pandas and scikit-learn do.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # Huge pages: forking 300 MB of them copies few page-table entries, and the fork has a quarter
    # of the page faults.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Environment of a fork server, unless the process to run sets them."""

_STANDARD = sys.stdlib_module_names - {
    "this",
    "antigravity",
}  # these two print or open a browser at import

MAX_SERVERS = 3
"""Most fork servers at once; each holds its imports in memory."""


class LauncherPool:
    """The launchers of one cluster; close stops every process they started.

    Args:
        fork_server: Whether ``python -m`` may run in forks of a process that has done its imports.
    """

    def __init__(self, fork_server: bool = True) -> None:
        self._fork_server = (
            fork_server and sys.platform == "linux" and os.environ.get("PODIUM_FORK_SERVER") != "0"
        )
        self._lock = threading.Lock()
        self._given_up = False
        self._plain: Launcher | None = None
        self._servers: dict[tuple[object, ...], Launcher] = {}

    def start(self, command: Command, on_exit: Callable[[], None]) -> Process:
        """Start a process.

        Raises:
            Failed: The system cannot start any.
        """
        module, server = self._server_of(command)
        ready = server is not None and server.wait_until_ready()
        if self._given_up:
            raise Failed(
                f"{command.argv[0]} was not started: its cluster is being closed", "connect again"
            )
        if server and ready:
            try:
                return server.start(replace(command, module=module), on_exit)
            except Failed:
                if server.alive:
                    raise
        return self._launcher().start(command, on_exit)

    def warm(self, command: Command) -> None:
        """Begin the imports of the fork server that a command will need soon, without waiting."""
        self._server_of(command)

    def give_up(self) -> None:
        """Start nothing from now on; a start that waits for a fork server's imports fails at
        once."""
        with self._lock:
            self._given_up = True
            waiting = [server for server in self._servers.values() if not server.is_ready]
        for server in waiting:
            server.close()

    def close(self) -> None:
        """Stop everything that runs; returns when nothing is left."""
        self.give_up()
        with self._lock:
            launchers = [*self._servers.values(), *([self._plain] if self._plain else [])]
            self._servers, self._plain = {}, None
        for each in launchers:
            each.close()

    def _server_of(self, command: Command) -> tuple[tuple[str, ...] | None, Launcher | None]:
        module = _find_module(command) if self._fork_server and command.own_python else None
        preload = _find_preload(module, command) if module else None
        return module, self._server(preload, command.env) if preload is not None else None

    def _launcher(self) -> Launcher:
        with self._lock:
            if self._plain is None or not self._plain.alive:
                if self._plain:
                    self._plain.close()
                self._plain = Launcher()
            return self._plain

    def _server(self, preload: tuple[str, ...], env: dict[str, str]) -> Launcher | None:
        # A library must read the same environment at import as it would in a process of its own.
        # What this process has, too, is the same for all that it starts.
        read = {
            name: value
            for name, value in env.items()
            if (_SENSITIVE.fullmatch(name) or os.environ.get(name) == value)
            and name != "PYTHONUNBUFFERED"
        }
        key = (preload, *sorted(read.items()))
        with self._lock:
            if key not in self._servers:
                if len(self._servers) >= MAX_SERVERS:
                    return None
                settings = _SETTINGS | {name: env[name] for name in _PLACES if name in env} | read
                self._servers[key] = Launcher((sys.executable, "-P"), preload, settings)
            return self._servers[key]


def _find_module(command: Command) -> tuple[str, ...] | None:
    """Return module and arguments if a command is ``python -m module …`` with this Python, also as
    a shell string."""
    argv = command.argv
    if (
        len(argv) == 3
        and argv[0] in _SHELLS
        and argv[1] == "-c"
        and not _SHELL_SPECIAL.search(argv[2])
    ):
        argv = tuple(shlex.split(argv[2]))
    if len(argv) < 3 or not Path(argv[0]).name.startswith("python"):
        return None
    program = shutil.which(argv[0], path=command.env.get("PATH"))
    if program is None or Path(program).parent != Path(sys.executable).parent:
        return None
    unbuffered = argv[1] == "-u" and bool(command.env.get("PYTHONUNBUFFERED"))
    options = argv[2:] if unbuffered else argv[1:]
    return tuple(options[1:]) if len(options) > 1 and options[0] == "-m" else None


_IMPORTS = re.compile(rb"^(import|from)\b", re.MULTILINE)


def _find_preload(words: Sequence[str], command: Command) -> tuple[str, ...] | None:
    """Return the modules that a fork server imports for a module; None if the module cannot run in
    a fork.

    podium's trainer is imported whole. Of any other module, and of that of a function to call, only
    the installed or standard packages that it imports at its top: its own code may change from
    trial to trial. If a file beside the module shadows one of them, None: the server would have
    imported the wrong package.

    Args:
        words: The module and its arguments.
    """
    module = words[0]
    if module == "podium.trainer" or module.startswith("podium.trainer."):
        return TRAINER if {"--model=trees", "--model=linear"}.isdisjoint(command.argv) else FITTED
    folders = [str(command.cwd), *command.env.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    imported = _imported(_find_source(module, folders))
    if imported is None:
        return None
    own: list[Path] = [command.cwd]
    needed: tuple[str, ...] = ()
    if module in CALLS and len(words) > 1:
        with contextlib.suppress(OSError, ValueError):
            call = json.loads(Path(words[1]).read_bytes())
            own, needed = [*map(Path, call["path"]), *own], CALLED
            places = [str(Path(words[1]).parent), *call["path"], *folders]
            imported |= _imported(_find_source(call["module"], places)) or frozenset()
    stable = {name for name in imported if name in _STANDARD or _is_installed(name)}
    if any(_hides(folder, stable | _STANDARD) for folder in own):
        return None
    return ("runpy", *needed, *sorted(stable - {"runpy"}))


def _imported(source: Path | None) -> frozenset[str] | None:
    """Return the packages that a module imports at its top, none if it speaks of the environment
    before the last of them, which may read what it sets; None if it is not Python."""
    if source is None:
        return None
    text = source.read_bytes()
    *_, last = (0, *(found.start() for found in _IMPORTS.finditer(text)))
    return frozenset() if b"environ" in text[:last] else imported_at_top(text)


def _find_source(module: str, folders: Sequence[str]) -> Path | None:
    """Find a module's file without importing anything; of a package, its __main__."""
    inside = os.path.join(*module.split("."))
    for folder in folders:
        for file in (f"{inside}.py", os.path.join(inside, "__main__.py")):
            if os.path.isfile(found := os.path.join(folder, file)):
                return Path(found)
    return None


def _hides(folder: Path, modules: Set[str]) -> bool:
    try:
        there = {*os.listdir(folder)}
    except OSError:
        return False
    packages = there & modules
    return any(f"{name}.py" in there for name in modules) or any(
        os.path.isfile(os.path.join(folder, name, "__init__.py")) for name in packages
    )


def _is_installed(package: str) -> bool:
    spec = PathFinder.find_spec(package)
    paths = [*(spec.submodule_search_locations or []), spec.origin or ""] if spec else []
    return any("site-packages" in path or "dist-packages" in path for path in paths)
