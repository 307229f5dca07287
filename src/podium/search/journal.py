"""The file of an Optuna study: a line for each thing that happened."""

import json
import os
from pathlib import Path
from typing import Any

JOURNAL = "optuna.journal"
"""File name of the study in an Experiment's directory."""


def open_journal(path: Path) -> Any:
    """Return the backend of a journal that this process alone writes; half a line at its end is cut
    off."""
    from optuna.storages.journal import JournalFileBackend

    class Journal(JournalFileBackend):
        """Optuna's own waits for the disk and takes a lock at each of a trial's entries; the engine
        writes alone."""

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            with path.open("ab") as file:
                file.write(
                    b"".join(
                        json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs
                    )
                )

    _cut_partial_line(path)
    return Journal(str(path))


def _cut_partial_line(path: Path) -> None:
    # A full disk or a crash of the machine leaves half a line; the next one would continue it.
    if path.exists():
        written = path.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            os.truncate(path, whole)
