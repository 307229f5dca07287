"""Settings of the processor: number of threads, memory and precision."""

import ctypes
import os
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch

from podium.system.machine import cores, cpu_field, memory
from podium.trainer.config import TrainConfig
from podium.trainer.world import World

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def set_threads(config: TrainConfig, environ: Mapping[str, str] = os.environ) -> int:
    """Set the number of CPU threads, and return it.

    The flag first, then OMP_NUM_THREADS, else the cores divided by the ranks on this machine: more
    threads than cores make every step slower.
    """
    ranks = max(1, _first_number(environ.get("LOCAL_WORLD_SIZE")))
    count = (
        config.threads or _first_number(environ.get("OMP_NUM_THREADS")) or max(1, cores() // ranks)
    )
    torch.set_num_threads(count)
    return count


def _first_number(text: str | None) -> int:
    """Return the first number of a setting such as "2,1"; 0 if there is none."""
    first = (text or "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def keep_memory() -> None:
    """Let the C library keep freed memory instead of giving it back to the kernel after every
    layer.

    glibc maps each large tensor anew and every first touch of a page is a fault: keeping the pages
    makes steps on the CPU 1.1 to 2 times faster (benchmarks/trainer.py). Other C libraries are left
    as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and platform.libc_ver()[0] == "glibc":
        mallopt(M_MMAP_THRESHOLD, 1 << 30)  # from the heap, not by mmap
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)  # never shrink the heap


def memory_for_data(device: torch.device) -> int:
    """Return how many bytes of data are kept on a device: half of a GPU's free memory, an eighth of
    the machine's."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else memory() // 8


def pick_precision(config: TrainConfig, world: World) -> str:
    """Return fp32 or bf16, the same in all ranks; all of them have to call this."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if world.all(_has_bf16(world.device)) else "fp32"


def _has_bf16(device: torch.device) -> bool:
    """Return whether a device computes bf16 in hardware (emulated bf16 is slower than fp32)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(cpu_field("flags").split())


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of a forward pass."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
