"""``python -m podium.sweeps.worker URL``: runs the trials that an engine leaves for this pod, until
SIGTERM.

A trial runs as on a single machine: the same loop, the same processes, the same collector. What
comes of it is left in the storage; a trial that is cut short is not mentioned, and the engine gives
it to another worker.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from podium.cluster.local.cluster import LocalCluster
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.manifests.experiment.pool import POD_UID, TERMINATED
from podium.manifests.experiment.trial import Trial
from podium.manifests.labels import PBT_PARENT
from podium.sweeps.base import AWAY_SECONDS, RunningTrial
from podium.sweeps.local_trial import ProcessExecutor, trial_directory
from podium.sweeps.pool_store import PoolStore, TrialEnd

SHORTEST_SECONDS, LONGEST_SECONDS = 0.05, 0.5
"""Intervals between checks for the next trial; they grow while there is none."""

_PAUSE_SECONDS = 2.0
"""Interval between retries while the storage does not answer."""

_MOST_LOG = 1 << 20
"""Bytes of a trial's log that are kept, the last ones."""

_T = TypeVar("_T")


class _Worker:
    """Runs one trial after another.

    Args:
        store: Source of trials and destination of their ends.
        uid: Uid of this pod.
        directory: Directory for the files of the running trial.
    """

    def __init__(self, store: PoolStore, uid: str, directory: Path) -> None:
        self._store, self._uid = store, uid
        self._cluster = LocalCluster(directory)
        self._stopping = threading.Event()
        self._run: RunningTrial | None = None

    def stop(self) -> None:
        """End: the trial that runs is cut short."""
        self._stopping.set()
        if run := self._run:
            with suppress(PodiumError):
                run.stop()

    def work(self) -> None:
        last, pause = "", SHORTEST_SECONDS
        with self._cluster:
            while not self._stopping.wait(pause):
                try:
                    trial = self._store.given(self._uid)
                except PodiumError as error:
                    print(f"waiting for the storage: {error.message}", flush=True)
                    pause = _PAUSE_SECONDS
                    continue
                if trial is None or trial.version == last:
                    pause = min(LONGEST_SECONDS, 1.5 * pause)
                    continue
                self._carry_out(trial)
                last, pause = trial.version, SHORTEST_SECONDS

    def _carry_out(self, trial: Trial) -> None:
        print(f"trial {trial.name}", flush=True)
        end, log = self._end_of(trial)
        if end is None:
            return
        with suppress(PodiumError):  # the Experiment is gone, or this pod ends
            self._patiently(partial(self._store.put_end, trial.name, self._uid, end, log))
            print(f"trial {trial.name}: {trial.with_status(end.status).phase}", flush=True)

    def _patiently(self, work: Callable[[], _T]) -> _T:
        """Call what speaks to the storage; while that is away, wait for it until this pod ends, or
        for as long as an engine does: a full disk and lost rights look alike."""
        end = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                return work()
            except (NotFound, InvalidInput):
                raise
            except PodiumError as error:
                print(f"waiting for the storage: {error.message}", flush=True)
                if self._stopping.wait(_PAUSE_SECONDS) or time.monotonic() > end:
                    raise

    def _end_of(self, trial: Trial) -> tuple[TrialEnd | None, bytes]:
        """Run a trial and return its end, None if it was cut short, and its output."""
        # A job that is retained would keep the log, and its files on the pod's disk.
        trial = Trial(manifest={**trial.manifest, "spec": {**trial.spec, "retainRun": False}})
        folder = self._cluster.store.path("Trial", trial.name)
        try:
            experiment = self._patiently(self._store.experiment)
            family = self._cluster.store.path("Experiment", experiment.name) / "checkpoints"
            if parent := trial.labels.get(PBT_PARENT):
                self._patiently(partial(self._store.fetch_files, parent, family / parent))
            executor = ProcessExecutor(self._cluster, experiment)
            # Nothing is saved: the engine learns of a trial at its end.
            run = self._run = executor.run(
                experiment, trial, lambda trial, readings=(): None, self._stopping
            )
            result = run.run()
            if trial_directory(experiment) and run.trial.is_good:
                self._patiently(partial(self._store.keep_files, trial.name, family / trial.name))
            shutil.rmtree(family, ignore_errors=True)
        except NotFound:
            return None, b""  # the Experiment is gone, and this pod will be
        except PodiumError as error:
            if self._stopping.is_set():
                return None, b""
            return TrialEnd(status={}, readings=[], refused=str(error)), b""
        finally:
            self._run = None
        log = b"".join(_tail(path) for path in sorted(folder.glob("logs/*.log")))
        shutil.rmtree(folder, ignore_errors=True)
        if not run.trial.state.finished:
            return None, b""
        return TrialEnd.of(run.trial, result.readings, result.refused or ""), log


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_LOG))
        return file.read()


def _main(url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="podium-worker-") as directory:
        worker = _Worker(PoolStore(url), os.environ[POD_UID], Path(directory))
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.work()
    sys.exit(TERMINATED)


if __name__ == "__main__":
    _main(sys.argv[1])
