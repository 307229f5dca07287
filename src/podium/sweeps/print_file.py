"""``python -m podium.sweeps.print_file FILE READY``, a sidecar: print a file's lines as it grows,
until SIGTERM.

With names of metrics after READY, FILE is a directory of TensorBoard's event files, whose scalars
are printed at the end as JSON lines, as Katib's collectors read them. The kubelet ends a sidecar
after the pod's other containers: what they wrote last is printed then. READY is a file that is made
once SIGTERM is awaited: the sidecar's startup probe looks for it, and holds back the program until
then.
"""

import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from podium.errors import Failed
from podium.metrics import UNAVAILABLE, read_events

LOOK_SECONDS = 0.2

CHUNK = 1 << 20
"""Bytes that are read at once."""


def print_file(path: Path, ended: threading.Event) -> None:
    """Print the whole lines of a file as they are written; at the end also a last one without a
    line end."""
    at, rest = 0, b""
    while True:
        over = ended.wait(LOOK_SECONDS)
        if path.is_file():
            with path.open("rb") as file:
                if path.stat().st_size < at:  # the program began the file anew
                    at, rest = 0, b""
                file.seek(at)
                while new := file.read(CHUNK):
                    at += len(new)
                    whole, newline, rest = (rest + new).rpartition(b"\n")
                    sys.stdout.buffer.write(whole + newline)
                    if len(rest) > CHUNK:  # no line of metrics is so long
                        sys.stdout.buffer.write(rest)
                        rest = b""
        if over:
            sys.stdout.buffer.write(rest + b"\n" if rest else b"")
        sys.stdout.buffer.flush()
        if over:
            return


def print_events(directory: Path, ended: threading.Event, names: Sequence[str]) -> None:
    """Print the metrics of these names once ended is set, or the reason why they cannot be read."""
    ended.wait()
    try:
        for reading in read_events(directory if directory.is_dir() else None, names):
            if reading.value != UNAVAILABLE:
                print(
                    json.dumps({"timestamp": reading.time.isoformat(), reading.name: reading.value})
                )
    except Failed as error:
        print(f"{error.message} ({error.hint})")
    sys.stdout.flush()


if __name__ == "__main__":
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    _, written, ready, *metrics = sys.argv
    Path(ready).touch()
    if metrics:
        print_events(Path(written), over, metrics)
    else:
        print_file(Path(written), over)
