"""Chooses how a process is started: from a fork server where that is possible and pays, else on its own."""

import ast
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path

from podium.cluster.local.processes.client import Command, Launcher, Process
from podium.errors import Failed

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
"""What a run of podium's trainer imports sooner or later."""

_SETTINGS = {
    # OpenBLAS starts its threads when numpy is imported; a fork needs a single-threaded parent.
    "OPENBLAS_NUM_THREADS": "1",
    # Its telemetry would start a thread when onnxruntime is imported.
    "ORT_DISABLE_TELEMETRY": "1",
    # Huge pages: a fork with 300 MB of them has few entries to copy, and computes with a quarter of the page faults.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Environment of a fork server itself, unless a process that it is to run sets them."""

_STANDARD = sys.stdlib_module_names - {"this", "antigravity"}  # those two show things when they are imported

MAX_SERVERS = 3
"""Fork servers at once; each holds its imports in memory."""


class Starter:
    """Starts processes for one cluster; close stops them all.

    Args:
        fork_server: Whether ``python -m`` may run in forks of a process that has done its imports.
    """

    def __init__(self, fork_server: bool = True) -> None:
        self._fork_server = fork_server and sys.platform == "linux" and os.environ.get("PODIUM_FORK_SERVER") != "0"
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
            raise Failed(f"{command.argv[0]} was not started: its cluster is being closed", "connect again")
        if server and ready:
            try:
                return server.start(replace(command, module=module), on_exit)
            except Failed:
                if server.alive:
                    raise
        return self._launcher().start(command, on_exit)

    def warm(self, command: Command) -> None:
        """Let the fork server of a command that will be started soon begin with its imports, without waiting."""
        self._server_of(command)

    def give_up(self) -> None:
        """Start nothing any more; what waits for a fork server's imports fails at once."""
        with self._lock:
            self._given_up = True
            waiting = [one for one in self._servers.values() if not one.is_ready]
        for one in waiting:
            one.close()

    def close(self) -> None:
        """Stop everything that runs; returns when nothing is left."""
        self.give_up()
        with self._lock:
            launchers = [*self._servers.values(), *([self._plain] if self._plain else [])]
            self._servers, self._plain = {}, None
        for one in launchers:
            one.close()

    def _server_of(self, command: Command) -> tuple[tuple[str, ...] | None, Launcher | None]:
        module = find_module(command) if self._fork_server and command.own_python else None
        preload = find_preload(module[0], command) if module else None
        return module, self._server(preload, command.env) if preload is not None else None

    def _launcher(self) -> Launcher:
        with self._lock:
            if self._plain is None or not self._plain.alive:
                if self._plain:
                    self._plain.close()
                self._plain = Launcher()
            return self._plain

    def _server(self, preload: tuple[str, ...], env: dict[str, str]) -> Launcher | None:
        # What a library reads from the environment while it is imported must be what the process would have read.
        read = {name: value for name, value in env.items() if _SENSITIVE.fullmatch(name) and name != "PYTHONUNBUFFERED"}
        key = (preload, *sorted(read.items()))
        with self._lock:
            if key not in self._servers:
                if len(self._servers) >= MAX_SERVERS:
                    return None
                settings = _SETTINGS | {name: env[name] for name in _PLACES if name in env} | read
                self._servers[key] = Launcher((sys.executable, "-P"), preload, settings)
            return self._servers[key]


def find_module(command: Command) -> tuple[str, ...] | None:
    """Return module and arguments if a command is ``python -m module …`` with this Python, also as a shell string."""
    argv = command.argv
    if len(argv) == 3 and argv[0] in _SHELLS and argv[1] == "-c" and not _SHELL_SPECIAL.search(argv[2]):
        argv = tuple(shlex.split(argv[2]))
    if len(argv) < 3 or not Path(argv[0]).name.startswith("python"):
        return None
    program = shutil.which(argv[0], path=command.env.get("PATH"))
    if program is None or Path(program).parent != Path(sys.executable).parent:
        return None
    unbuffered = argv[1] == "-u" and bool(command.env.get("PYTHONUNBUFFERED"))
    options = argv[2:] if unbuffered else argv[1:]
    return tuple(options[1:]) if len(options) > 1 and options[0] == "-m" else None


def find_preload(module: str, command: Command) -> tuple[str, ...] | None:
    """Return what a fork server imports for a module; None if the module cannot run in a fork of one.

    podium's trainer is imported whole. Of any other module, the packages that it imports at its top and that come with
    Python or are installed: its own code may change from trial to trial. A file beside it that hides one of them needs
    a process of its own: the server would have imported the wrong one.
    """
    if module == "podium.trainer" or module.startswith("podium.trainer."):
        return TRAINER
    source = _find_source(module, command)
    if source is None:
        return None
    try:
        body = ast.parse(source.read_bytes()).body
    except (SyntaxError, ValueError):
        return None
    imported: set[str] = set()
    for node in body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        imported |= {name.partition(".")[0] for name in names}
    found = {name for name in imported if name and (name in _STANDARD or _is_installed(name))}
    beside = {path.stem for path in command.cwd.glob("*.py")}
    beside |= {path.parent.name for path in command.cwd.glob("*/__init__.py")}
    return None if beside & (found | _STANDARD) else ("runpy", *sorted(found - {"runpy"}))


def _find_source(module: str, command: Command) -> Path | None:
    """Find a module's file without importing anything; of a package, its __main__."""
    inside = os.path.join(*module.split("."))
    for place in (str(command.cwd), *command.env.get("PYTHONPATH", "").split(os.pathsep), *sys.path):
        for found in (Path(place, f"{inside}.py"), Path(place, inside, "__main__.py")):
            if found.is_file():
                return found
    return None


def _is_installed(package: str) -> bool:
    spec = PathFinder.find_spec(package)
    places = [*(spec.submodule_search_locations or []), spec.origin or ""] if spec else []
    return any("site-packages" in place or "dist-packages" in place for place in places)
