"""optuna-dashboard over copies of studies: it writes to the files it opens, and has no access
control."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from podium.errors import Failed, InvalidInput
from podium.search.search import JOURNAL

START_SECONDS = 60.0
"""It loads scikit-learn before it listens."""


class Dashboards:
    """Those that run, at addresses of this machine; they end with this process."""

    def __init__(self) -> None:
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

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
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._running.append((process, folder))
        self._wait(process, port)
        return f"http://127.0.0.1:{port}/"

    def _wait(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise Failed(f"optuna-dashboard does not answer at port {port}", "try again")

    def close(self) -> None:
        """End them, and remove the copies."""
        for process, folder in self._running:
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)
