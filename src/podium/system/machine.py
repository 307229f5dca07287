"""The machine this process runs on, and the packages that a training records."""

import getpass
import math
import os
from pathlib import Path

PACKAGES = {
    "podium": "pkg:pypi/podium-ml",
    "python": "pkg:generic/python",
    **{
        name: f"pkg:pypi/{name}"
        for name in ("torch", "torchvision", "onnxruntime", "onnx", "numpy", "scikit-learn")
    },
}
"""Package URLs by the names under which a training records versions, the most telling first."""


def user_name() -> str:
    """Return the name of the user whose process this is; its number in a container without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many processor cores this process may use: its affinity, limited by a container's
    CPU quota."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        limit, period = quota.read_text().split()
        return count if limit == "max" else max(1, min(count, math.ceil(int(limit) / int(period))))
    except (OSError, ValueError):
        return count


def memory(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Return the bytes of memory this process may use: the machine's, limited by a container's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        text = limit.read_text().strip()
        return total if text == "max" else min(total, int(text))
    except (OSError, ValueError):
        return total


def cpu_field(name: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return a field of the first CPU in /proc/cpuinfo; "" where there is none."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ""
    return next(
        (
            value.strip()
            for key, _, value in (line.partition(":") for line in lines)
            if key.strip() == name
        ),
        "",
    )
