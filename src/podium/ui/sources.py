"""Sources of the pages: the runs of this machine, a cluster, a registry, and a server of Kubeflow
Pipelines; optuna-dashboard looks at copies of studies, since it writes to the files it opens and
has no access control."""

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.cluster.base import Cluster
from podium.cluster.traits import traits_of
from podium.errors import Failed, InvalidInput
from podium.kfp.client import Server
from podium.models import Registry, open_registry
from podium.prediction import Predictor
from podium.prediction.command import CommandModel
from podium.search.search import JOURNAL
from podium.ui.sweeps import FollowedSweep

_START_SECONDS = 60.0
"""It loads scikit-learn before it listens."""


class _Dashboards:
    """Those that run, at addresses of this machine, one for each study; they end with this process."""

    def __init__(self) -> None:
        self._running: dict[Path, tuple[subprocess.Popen[bytes], Path]] = {}
        self._lock = threading.Lock()

    def open(self, directory: Path) -> str:
        """Return the address of one over a copy of the study in an Experiment's directory.

        Raises:
            InvalidInput: There is no study, as where Katib ran the sweep, or optuna-dashboard is
                not installed.
            Failed: It does not start.
        """
        study, program = directory / JOURNAL, Path(sys.executable).with_name("optuna-dashboard")
        if not study.is_file():
            raise InvalidInput(
                f"there is no study in {directory}", "a sweep of this machine has one"
            )
        if not program.is_file():
            raise InvalidInput(f"there is no {program}", "pip install 'podium-ml[ui]'")
        folder = Path(tempfile.mkdtemp(prefix="podium-study-"))
        copy = shutil.copy(study, folder / f"{directory.name}.journal")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--server",
            "wsgiref",
            "--storage-class",
        ]
        command = [str(program), *words, "JournalFileStorage", str(copy)]
        with self._lock:
            self._end(directory)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self._running[directory] = process, folder
        self._wait(process, port)
        return f"http://127.0.0.1:{port}/"

    def _wait(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise Failed(f"optuna-dashboard does not answer at port {port}", "try again")

    def close(self) -> None:
        for directory in [*self._running]:
            self._end(directory)

    def _end(self, directory: Path) -> None:
        if found := self._running.pop(directory, None):
            process, folder = found
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


_TRY_SECONDS = 60.0
"""For a champion that is a command, and is tried."""

_KNOWN_SECONDS = 2.0
"""Seconds for which a registry's answers are cached: it may be far away, and several pages ask
it."""


class _FollowedRegistry:
    """A registry that is polled.

    Args:
        registry: The registry.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._read = -_KNOWN_SECONDS
        self._rows: list[dict[str, Any]] = []
        self._opened: dict[str, tuple[str, Predictor]] = {}

    def rows(self) -> list[dict[str, Any]]:
        if time.monotonic() - self._read > _KNOWN_SECONDS:
            overviews = [self.registry[name].overview() for name in self.registry]
            self._rows = [
                overview.to_json() | {"path": f"/models/{overview.name}"} for overview in overviews
            ]
            self._read = time.monotonic()
        return self._rows

    def predictor(self, name: str) -> Predictor:
        """Return the champion of a model, opened once.

        Raises:
            NotFound: There is none.
        """
        champion = self.registry[name].champion
        if name not in self._opened or self._opened[name][0] != champion.version:
            opened = champion.opened
            if isinstance(opened.model, CommandModel):  # one that hangs would hold a thread of all
                opened.model = replace(opened.model, seconds=_TRY_SECONDS)
            self._opened[name] = champion.version, opened
        return self._opened[name][1]

    def forget(self) -> None:
        """Read again next time: something was changed."""
        self._read = -_KNOWN_SECONDS


_MOST_OPEN = 32
"""Clusters of runs, and sweeps, that are kept open."""


class Sources:
    """Sources of the pages. Safe to use from several threads.

    Args:
        spec: The cluster whose Experiments and jobs are shown; each run on this machine has its own
            besides.
        storage: URL of the registry; that of PODIUM_HOME if None.
        server: Opens the server whose runs are shown too; None shows none.
    """

    def __init__(
        self, spec: ClusterSpec, storage: str | None, server: Callable[[], Server] | None
    ) -> None:
        self.spec = spec
        self.registry = _FollowedRegistry(open_registry(storage))
        self.dashboards = _Dashboards()
        self._server, self._lock = server, threading.RLock()
        self._cluster_at = lru_cache(_MOST_OPEN)(lambda url: ClusterSpec.of(url).open())
        self._sweep_at = lru_cache(_MOST_OPEN)(
            lambda url, name: FollowedSweep(self._cluster_at(url), name)
        )

    @property
    def is_here(self) -> bool:
        """Whether everything is read from files of this machine, which is cheap for everybody."""
        return traits_of(self.spec.url).shares_files and self._server is None

    @property
    def server(self) -> Server | None:
        return self._server() if self._server else None

    def url(self, run: str = "") -> str:
        """Return the URL of a run's own cluster, or of the one whose Experiments are shown."""
        return f"local://{podium.runs()[run].record.cluster.absolute()}" if run else self.spec.url

    def cluster(self, run: str = "") -> Cluster:
        with self._lock:
            return self._cluster_at(self.url(run))

    def sweep(self, name: str, run: str = "") -> FollowedSweep:
        """Return a sweep of a cluster, whether it exists or not."""
        with self._lock:
            return self._sweep_at(self.url(run), name)
