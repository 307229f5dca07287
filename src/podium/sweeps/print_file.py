"""``python -m podium.sweeps.print_file FILE READY``, a sidecar: print a file's lines as it grows,
until SIGTERM.

With names of metrics after READY, FILE is a directory of TensorBoard's event files, whose scalars
are printed at the end as rows in JSON. With ``--pushed`` in their
place FILE is not read: what the pod's containers report to Katib's database is printed, which this
sidecar stands for. The kubelet ends a sidecar
after the pod's other containers: what they wrote last is printed then. READY is a file that is made
once SIGTERM is awaited: the sidecar's startup probe looks for it, and holds back the program until
then.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from podium.errors import Failed, PodiumError
from podium.metrics import UNAVAILABLE, read_events

KATIB_DATABASE, _KATIB_PORT = "katib-db-manager.kubeflow", 6789
"""Where Katib's SDK reports to if nobody says otherwise."""

PUSHED = "--pushed"
_LOOK_SECONDS = 0.2

_CHUNK = 1 << 20
"""Bytes that are read at once."""


def _print_file(path: Path, ended: threading.Event) -> None:
    """Print the whole lines of a file as they are written; at the end also a last one without a
    line end."""
    at, rest = 0, b""
    while True:
        over = ended.wait(_LOOK_SECONDS)
        if path.is_file():
            with path.open("rb") as file:
                if path.stat().st_size < at:  # the program began the file anew
                    at, rest = 0, b""
                file.seek(at)
                while new := file.read(_CHUNK):
                    at += len(new)
                    whole, newline, rest = (rest + new).rpartition(b"\n")
                    sys.stdout.buffer.write(whole + newline)
                    if len(rest) > _CHUNK:  # no line of metrics is so long
                        sys.stdout.buffer.write(rest)
                        rest = b""
        if over:
            sys.stdout.buffer.write(rest + b"\n" if rest else b"")
        sys.stdout.buffer.flush()
        if over:
            return


def _print_events(directory: Path, ended: threading.Event, names: Sequence[str]) -> None:
    """Print the metrics of these names once ended is set, or the reason why they cannot be read."""
    ended.wait()
    try:
        for reading in read_events(directory if directory.is_dir() else None, names):
            if reading.value != UNAVAILABLE:
                print(json.dumps(reading.row))
    except Failed as error:
        print(f"{error.message} ({error.hint})")
    sys.stdout.flush()


def _print_pushed(ended: threading.Event, begun: Callable[[], None]) -> None:
    """Print what ``report_metrics`` of Katib's SDK sends, as rows in JSON, until ended is set."""
    from podium.cluster.local.pushed import serve_database

    def report(trial: str, rows: Iterable[tuple[str, str, str]]) -> bool:
        for time, name, value in rows:
            print(json.dumps([name, value, time]), flush=True)
        return True

    server = None
    try:
        address = os.environ.get("PODIUM_DB_MANAGER", f"127.0.0.1:{_KATIB_PORT}")
        server = serve_database(address, report, lambda trial: ())
    except PodiumError as error:  # the program will say that nobody answers
        print(error, flush=True)
    begun()
    ended.wait()
    if server:
        server.stop(1).wait()


if __name__ == "__main__":
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    _, written, ready, *metrics = sys.argv
    if metrics == [PUSHED]:
        _print_pushed(over, Path(ready).touch)
    else:
        Path(ready).touch()
        if metrics:
            _print_events(Path(written), over, metrics)
        else:
            _print_file(Path(written), over)
