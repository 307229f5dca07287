"""What figures were measured on, and the memory of a process (Linux)."""

import os
import platform
from pathlib import Path


def describe() -> str:
    """Return processor, cores, torch and system as one line."""
    import torch

    from podium.trainer.output import describe_environment

    environment = describe_environment(torch=str(torch.__version__))
    system = platform.platform(terse=True)
    return f"{environment['processor']}, {os.cpu_count()} cores, torch {environment['torch']}, {system}"


def memory(pid: int | str = "self") -> dict[str, float]:
    """Return the sizes in /proc/PID/status by name (VmRSS, VmHWM, RssAnon …), MiB; zeros for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        lines = []
    fields = (line.partition(":") for line in lines if line.endswith(" kB"))
    return {"VmRSS": 0.0, "VmHWM": 0.0, "RssAnon": 0.0} | {
        name: int(size.split()[0]) / 1024 for name, _, size in fields
    }
