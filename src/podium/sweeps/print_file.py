"""``python -m podium.sweeps.print_file FILE READY``, a sidecar: print a file's lines as it grows, until SIGTERM.

The kubelet ends a sidecar after the pod's other containers: what they wrote last is printed then. READY is a file that
is made once SIGTERM is awaited: the sidecar's startup probe looks for it, and holds back the program until then.
"""

import signal
import sys
import threading
from pathlib import Path

LOOK_SECONDS = 0.2


def print_file(path: Path, ended: threading.Event) -> None:
    """Print the whole lines of a file as they are written; at the end also a last one without a line end."""
    at, rest = 0, b""
    while True:
        over = ended.wait(LOOK_SECONDS)
        if path.is_file():
            with path.open("rb") as file:
                if path.stat().st_size < at:  # the program began the file anew
                    at, rest = 0, b""
                file.seek(at)
                new = file.read()
                at += len(new)
                whole, newline, rest = (rest + new).rpartition(b"\n")
                sys.stdout.buffer.write(whole + newline)
        if over:
            sys.stdout.buffer.write(rest + b"\n" if rest else b"")
        sys.stdout.buffer.flush()
        if over:
            return


if __name__ == "__main__":
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    Path(sys.argv[2]).touch()
    print_file(Path(sys.argv[1]), over)
