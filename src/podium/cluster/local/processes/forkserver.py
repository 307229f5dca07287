"""Fork server: imports modules once, then runs ``python -m`` in forks of itself.

Part of the launcher program (launcher.py). Forking is safe because the server has a single thread:
it only imports, so no thread pool exists yet.
"""

import contextlib
import gc
import importlib
import io
import os
import runpy
import sys
import weakref
from types import TracebackType
from typing import NoReturn


def preload(modules: list[str]) -> str | None:
    """Import modules; return why this process cannot serve forks, or None."""
    weakref.finalize(
        preload, int
    )  # the first finalizer: all of them now run after every other exit function
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            return f"cannot preload {name}: {error!r}"
        if name.endswith(".__main__"):
            # It runs again in each fork, as __main__.
            del sys.modules[name]
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        return f"preloading {', '.join(modules)} started {threads - 1} thread(s), which a fork would not copy"
    # Keeps the garbage collector from touching, and so copying, pages that all forks share. No
    # collection first: it takes as long as a short trial, and imports leave little garbage.
    gc.freeze()
    return None


def run_module(module_and_arguments: list[str], env: dict[str, str]) -> NoReturn:
    """Run ``python -m module args…`` in this fork as a fresh interpreter would, and end."""
    module, *arguments = module_and_arguments
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    sys.path.insert(0, os.getcwd())
    _reopen_output(unbuffered=bool(env.get("PYTHONUNBUFFERED")))
    # Both are seeded at import; random reseeds itself after a fork, and CUDA begins with a
    # constant.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    gc.enable()
    code = [1]
    weakref.finalize(run_module, _end, code)
    code[0] = _run(module)
    sys.exit(code[0])


def _end(code: list[int]) -> None:
    """End this fork in the middle of the interpreter's exit.

    Threads have been joined and exit functions have run; finalizers run newest first, so those of
    the module have too. What is left are the finalizers of the preloaded imports and the teardown
    of every module: with torch 0.2 and 2 s.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code[0])


def _run(module: str) -> int:
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        return _exit_code(error)
    except BaseException as error:
        shown = error.with_traceback(_outside_launcher(error))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _reopen_output(unbuffered: bool) -> None:
    raw = io.FileIO(1, "wb", closefd=False)
    binary = raw if unbuffered else io.BufferedWriter(raw)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(binary, "utf-8", write_through=unbuffered)  # type: ignore[misc]
    errors = io.FileIO(2, "wb", closefd=False)
    replaced = io.TextIOWrapper(errors, "utf-8", "backslashreplace", write_through=True)
    sys.stderr = sys.__stderr__ = replaced  # type: ignore[misc]


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _outside_launcher(error: BaseException) -> TracebackType | None:
    tb = error.__traceback__
    while tb and tb.tb_frame.f_code.co_filename in (__file__, sys.modules["__main__"].__file__):
        tb = tb.tb_next
    return tb
