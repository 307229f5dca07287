"""The sidecar that prints a file of metrics as it grows, as the process that it is."""

import signal
import subprocess
import sys
import time
from pathlib import Path


def test_each_line_of_a_file_is_printed_once(tmp_path: Path) -> None:
    file, ready = tmp_path / "metrics.log", tmp_path / "ready"
    words = [sys.executable, "-m", "podium.sweeps.print_file", str(file), str(ready)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as sidecar:
        assert sidecar.stdout
        while not ready.exists():
            time.sleep(0.02)
        file.write_text("loss=3\nlo")
        assert sidecar.stdout.readline() == "loss=3\n"
        time.sleep(0.5)  # it looks again, and nothing is new
        with file.open("a") as more:
            more.write("ss=2\n")
        assert sidecar.stdout.readline() == "loss=2\n"
        file.write_text("loss=1\n")  # the program began it anew
        assert sidecar.stdout.readline() == "loss=1\n"
        with file.open("a") as more:
            more.write("loss=0")
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.stdout.read() == "loss=0\n"
    assert sidecar.returncode == 0
