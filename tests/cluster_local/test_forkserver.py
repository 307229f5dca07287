"""``python -m`` in a fork of a process that has done its imports: as good as a process of its own, only sooner."""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podium.cluster.local.processes.client import (
    Command,
    LauncherPool,
    Process,
    _find_module,
    _find_preload,
)
from podium.cluster.local.scripts import imported_at_top
from podium.code.call import Call

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="fork servers are used on Linux only"
)

PROGRAM = """
import sys
forked = "click" in sys.modules
import os, random, click
print(forked, __name__, sys.argv[1:], sys.path[0] == os.getcwd(), os.environ["WHO"], "HOME" in os.environ)
print(hasattr(click, "spoiled"), os.getsid(0) == os.getpid(), random.random())
click.spoiled = True
print("error", file=sys.stderr, flush=sys.stdout.flush())
"""


@pytest.fixture
def launchers() -> Iterator[LauncherPool]:
    launchers = LauncherPool()
    yield launchers
    launchers.close()


@pytest.fixture
def run(tmp_path: Path, launchers: LauncherPool) -> Callable[..., Process]:
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(*argv: str, log: str = "log", **env: str) -> Process:
        whole = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "WHO": "me"} | env
        command = Command(argv=argv, env=whole, cwd=tmp_path, log=tmp_path / log, own_python=True)
        return launchers.start(command, lambda: None)

    return run


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_forked_module_runs_as_in_a_new_interpreter(
    run: Callable[..., Process], tmp_path: Path
) -> None:
    assert run("python", "-m", "program", "--lr", "a b").wait(60) == 0
    first, second, error = lines(tmp_path / "log")
    assert first == "True __main__ ['--lr', 'a b'] True me False"
    assert second.startswith("False True ")
    assert error == "error"


def test_two_runs_share_nothing(run: Callable[..., Process], tmp_path: Path) -> None:
    for number in "12":
        run("python", "-m", "program", log=number, WHO=number).wait(60)
    first, second = lines(tmp_path / "1"), lines(tmp_path / "2")
    assert (first[0].split()[-2], second[0].split()[-2]) == ("1", "2")
    assert second[1].startswith("False ")
    assert first[1] != second[1]


@pytest.mark.whole
def test_two_forks_draw_other_numbers(run: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "draws.py").write_text(
        "import sys\nforked = 'torch' in sys.modules\nimport random, numpy, torch\n"
        "print(forked, random.random(), numpy.random.rand(), torch.rand(1).item(), sep='\\n')\n"
    )
    for log in "12":
        assert run("python", "-m", "draws", log=log).wait(60) == 0
    first, second = lines(tmp_path / "1"), lines(tmp_path / "2")
    assert first[0] == second[0] == "True"
    assert not {*first[1:]} & {*second[1:]}


def test_a_plain_shell_string_is_seen_through(run: Callable[..., Process], tmp_path: Path) -> None:
    run("sh", "-c", "python -u -m program --lr 0.1", PYTHONUNBUFFERED="1").wait(60)
    assert lines(tmp_path / "log")[0] == "True __main__ ['--lr', '0.1'] True me False"


@pytest.mark.parametrize(
    "argv",
    [
        ("sh", "-c", "python -m program; true"),
        ("sh", "-c", "WHO=x python -m program"),
        ("python", "program.py"),
        ("python", "-O", "-m", "program"),
        ("env", "python", "-m", "program"),
    ],
)
def test_anything_else_is_a_process_of_its_own(
    argv: tuple[str, ...], run: Callable[..., Process], tmp_path: Path
) -> None:
    assert run(*argv).wait(60) == 0
    assert lines(tmp_path / "log")[0].startswith("False __main__ []")


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PODIUM_FORK_SERVER", "0")
    env = os.environ | {"WHO": "me"}
    argv = (sys.executable, "-m", "program")
    launchers = LauncherPool()
    command = Command(argv=argv, env=env, cwd=tmp_path, log=tmp_path / "log", own_python=True)
    launchers.start(command, lambda: None).wait(60)
    launchers.close()
    assert lines(tmp_path / "log")[0].startswith("False __main__")


@pytest.mark.parametrize(
    ("code", "exit_code", "last"),
    [
        ("import click, sys; sys.exit(3)", 3, ""),
        ("import click, sys; sys.exit('why')", 1, "why"),
        ("import click; raise ValueError('bad lr')", 1, "ValueError: bad lr"),
        ("import click, os; os.abort()", 134, ""),
        ("import atexit, click, threading\natexit.register(print, 'bye')\n", 0, "bye"),
        (
            "import click, weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')",
            0,
            "finalized",
        ),
        (
            "import click, concurrent.futures as f\npool = f.ThreadPoolExecutor(1)\npool.submit(print, 'worked')",
            0,
            "worked",
        ),
        (
            "import click, threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()",
            0,
            "late",
        ),
    ],
)
def test_it_ends_as_an_interpreter_ends(
    code: str, exit_code: int, last: str, run: Callable[..., Process], tmp_path: Path
) -> None:
    (tmp_path / "ending.py").write_text(code)
    assert run("python", "-m", "ending").wait(60) == exit_code
    text = (tmp_path / "log").read_text()
    assert text.rstrip().endswith(last)
    assert "launcher.py" not in text
    assert "forkserver.py" not in text


def test_a_fork_is_killed_with_its_children(run: Callable[..., Process], tmp_path: Path) -> None:
    code = "import click, os, time\nif not os.fork(): os.setsid()\nopen(f'pid-{os.getpid()}', 'w')\ntime.sleep(60)"
    (tmp_path / "family.py").write_text(code)
    process = run("python", "-m", "family")
    deadline = time.monotonic() + 30
    while len(found := list(tmp_path.glob("pid-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    assert process.wait(30) == 137
    assert [path.name for path in found if Path(f"/proc/{path.name[4:]}").exists()] == []
    assert len(found) == 2


def test_imports_that_start_threads_are_not_forked(
    run: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    (site / "threaded").mkdir(parents=True)
    thread = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    (site / "threaded" / "__init__.py").write_text(f"import threading, time\n{thread}\n")
    (tmp_path / "uses.py").write_text(
        "import sys\nprint('threaded' in sys.modules)\nimport threaded\n"
    )
    monkeypatch.syspath_prepend(str(site))
    assert run("python", "-m", "uses", PYTHONPATH=str(site)).wait(60) == 0
    assert lines(tmp_path / "log") == ["False"]


@pytest.mark.whole
def test_our_trainer_trains_in_a_fork(
    run: Callable[..., Process], launchers: LauncherPool, tmp_path: Path, tiny_dataset: Path
) -> None:
    words = [
        "--data",
        str(tiny_dataset),
        "--output",
        str(tmp_path / "model"),
        "--epochs",
        "1",
        "--threads",
        "1",
    ]
    assert run("python", "-m", "podium.trainer", *words, "--no-cuda").wait(120) == 0
    (server,) = launchers._servers.values()
    assert (server.unfit, server.alive) == (None, True)
    assert " accuracy=" in (tmp_path / "log").read_text()
    assert (tmp_path / "model" / "model.onnx").exists()


def test_a_killed_server_is_replaced_by_processes(
    run: Callable[..., Process], launchers: LauncherPool, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        "import click, os, random, sys\nopen('ready', 'w')\n__import__('time').sleep(60)"
    )
    process = run("python", "-m", "slow")
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
    (server,) = launchers._servers.values()
    os.kill(server._program.pid, signal.SIGKILL)
    assert process.wait(30) == 137
    assert run("python", "-m", "program").wait(60) == 0
    assert lines(tmp_path / "log")[0].startswith("False __main__")


def test_a_variable_read_at_import_gets_its_own_server(
    run: Callable[..., Process], launchers: LauncherPool
) -> None:
    for threads in ("1", "2", "1"):
        assert run("python", "-m", "program", OMP_NUM_THREADS=threads, WHO=threads).wait(60) == 0
    assert len(launchers._servers) == 2


def test_a_package_reads_the_users_variables_as_it_is_imported(
    run: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "curious.py").write_text("import os\nfound = os.environ.get('KERAS_BACKEND')\n")
    (tmp_path / "asks.py").write_text(
        "import sys\nforked = 'curious' in sys.modules\nimport curious\nprint(forked, curious.found)\n"
    )
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    env = {"KERAS_BACKEND": "jax", "PYTHONPATH": str(packages)}
    assert run("python", "-m", "asks", **env).wait(60) == 0
    assert lines(tmp_path / "log") == ["True jax"]


@pytest.mark.parametrize(
    ("argv", "module"),
    [
        (("python", "-m", "podium.trainer", "--lr", "1"), ("podium.trainer", "--lr", "1")),
        (("python3", "-m", "x"), ("x",)),
        (("/usr/bin/python-of-another", "-m", "x"), None),
        (("python",), None),
        (("python", "-m"), None),
        (("sh", "-c", "python -m x $LR"), None),
    ],
)
def test_which_commands_qualify(
    argv: tuple[str, ...], module: tuple[str, ...] | None, tmp_path: Path
) -> None:
    env = {"PATH": str(Path(sys.executable).parent)}
    assert _find_module(Command(argv=argv, env=env, cwd=tmp_path, log=tmp_path / "log")) == module


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("import os.path, json", ("runpy", "json", "os")),
        (
            "import click.testing, no_such\nfrom yaml import safe_load\nfrom . import x",
            ("runpy", "click", "yaml"),
        ),
        ("import this", ("runpy",)),
        ("import click\nimport os\nos.environ['A'] = ''", ("runpy", "click", "os")),
        ("import os\nos.environ['A'] = ''\nimport click", ("runpy",)),
        ("def broken(:", None),
    ],
)
def test_only_what_comes_with_python_or_is_installed_is_preloaded(
    source: str, packages: tuple[str, ...] | None, tmp_path: Path
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__main__.py").write_text(source)
    command = Command(argv=("python", "-m", "pack"), env={}, cwd=tmp_path, log=tmp_path / "log")
    assert _find_preload(["pack"], command) == packages


@pytest.mark.parametrize("hidden", [False, True])
def test_what_a_called_function_imports_is_preloaded(hidden: bool, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text("import click, csv\nimport no_such\n")
    (tmp_path / "call.json").write_bytes(
        Call(module="mine", function="f", path=[str(tmp_path / "code")]).to_json()
    )
    if hidden:
        (tmp_path / "code" / "click.py").write_text("")
    words = ["podium.code.call", str(tmp_path / "call.json"), "--x=1"]
    command = Command(argv=("python", "-m", *words), env={}, cwd=tmp_path, log=tmp_path / "log")
    preload = _find_preload(words, command)
    if hidden:
        assert preload is None
    else:
        assert {"click", "csv", "podium.code", "podium.metrics"} <= set(preload or ())
        assert "mine" not in (preload or ())


@pytest.mark.parametrize("hiding", ["click.py", "random/__init__.py"])
def test_a_file_that_hides_a_preloaded_module_is_imported(
    hiding: str, run: Callable[..., Process], launchers: LauncherPool, tmp_path: Path
) -> None:
    assert run("python", "-m", "program", log="before").wait(60) == 0
    assert lines(tmp_path / "before")[0].startswith("True")
    (tmp_path / hiding).parent.mkdir(exist_ok=True)
    (tmp_path / hiding).write_text("print('hidden')\nrandom = str\n")
    assert run("python", "-m", "program").wait(60) == 0
    assert lines(tmp_path / "log")[0] == "hidden"


def test_a_program_of_the_standard_library_alone_is_forked_too(
    run: Callable[..., Process], launchers: LauncherPool, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text(
        "import sys\nforked = 'csv' in sys.modules\nimport csv\nprint(forked)"
    )
    assert run("python", "-m", "plain").wait(60) == 0
    assert lines(tmp_path / "log") == ["True"]
    assert launchers._plain is None


class _Garbage:
    """A circle, whose end lets another thread go on."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)


def test_programs_are_looked_at_from_many_threads_at_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import click\n\ndef train(x):\n    return 2 * x\n" * 40)
    command = Command(argv=("python", "-m", "program"), env={}, cwd=tmp_path, log=tmp_path / "log")

    def look(_: int) -> set[tuple[str, ...] | None]:
        found = set()
        for _ in range(30):
            imported_at_top.cache_clear()
            found.add(_Garbage() and _find_preload(["program"], command))
        return found

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert set().union(*pool.map(look, range(4))) == {("runpy", "click")}
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
