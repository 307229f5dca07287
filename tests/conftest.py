"""Fixtures every test may use."""

import gc
import io
import logging
import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result
from datasets import synthetic_part, write_pictures
from s3servers import endpoint as endpoint, new_bucket as new_bucket

# Processes inherit ignored signals, and who runs the tests under nohup or in the background has these ignored; tests send
# them to processes of theirs.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# Bytecode is kept, whatever the shell says: all processes of the tests would compile each module
# anew, which is half of what collecting costs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A developer's own settings stay out of fixtures that several tests share.
SETTINGS = ("PODIUM_STORAGE", "PODIUM_PUBLIC_KEY", "PODIUM_RUN_ID", "AWS_PROFILE")
for _name in SETTINGS:
    os.environ.pop(_name, None)

# A job on this machine has a thread for each core. Beside other tests these threads would wait for each other in busy
# loops, for twenty times as long as a small training computes.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Processes of the tests are forked from one that has imported what they need, and has no threads.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
multiprocessing.get_context("forkserver").set_forkserver_preload(
    [
        "numpy",
        "pytest",
        "minio",
        "torch",
        "onnxruntime",
        "uvicorn",
        "podium.cli.serve",
        "podium.models",
        "podium.serving.app",
        "podium.storage.s3.storage",
        "podium.trainer.loop",
    ]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --cluster: the tests marked so run against the cluster of KUBECONFIG."""
    parser.addoption(
        "--cluster", action="store_true", help="run tests against the live cluster of KUBECONFIG"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collection: imports leave hundreds of thousands of objects that stay."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Give back what was kept from garbage collection, or libraries report leaks; after pytest's own collections."""
    config.add_cleanup(gc.unfreeze)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file of which -m takes no test: importing a third of all files to deselect them takes seconds."""
    asked = config.option.markexpr.split(" and ")
    refused = [word.removeprefix("not ") for word in asked if re.fullmatch(r"not \w+", word)]
    if collection_path.suffix != ".py" or not refused or " or " in config.option.markexpr:
        return None
    marked = rf"^pytestmark = \[?pytest\.mark\.({'|'.join(refused)})\b"
    return bool(re.search(marked, collection_path.read_text(), re.MULTILINE)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a live cluster unless one is offered."""
    if config.getoption("--cluster"):
        return
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.skip(reason="needs a live cluster: pytest --cluster"))


LOADING = "Failed to load resource"
"""What a browser says of an answer that is an error, or of a server that ended: tests ask for both."""

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep a developer's ./podium-work, and what the test before has set, out of a test."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "podium-home"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything of a test goes; the working directory beside it is empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Undo what a command of this process sets up for its own process: who hears what the data room says."""
    loggers = [logging.getLogger(name) for name in ("podium", "podium.data", "podium.data.summary")]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


class Done(NamedTuple):
    """What a command that was typed ended with, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def podium(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """Run a podium command in this process; a module's COMMAND goes before its words, its OPTIONS go behind them."""
    from podium.cli import app

    before, after = (getattr(request.module, name, ()) for name in ("COMMAND", "OPTIONS"))
    return lambda *words: CliRunner().invoke(app, [*before, *words, *after])


@pytest.fixture
def typed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Type a podium command into this process; what the processes it starts print is there too."""
    from podium.cli import main

    def run(*words: str | Path, given: str = "") -> Done:
        monkeypatch.setattr("sys.argv", ["podium", *map(str, words)])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capfd.readouterr()
        return Done(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset artifact of 28x28 pictures in ten classes: 400 to train, 100 to validate, 100 to test. Read only."""
    target = tmp_path_factory.mktemp("data") / "tiny"
    parts = {
        "train": synthetic_part(1, 400),
        "validation": synthetic_part(2, 100),
        "test": synthetic_part(3, 100),
    }
    write_pictures(target, parts)
    return target


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of MNIST as a dataset artifact, made through the cache of this machine. For slow tests. Read only."""
    from podium.steps.prepare_data import DataSettings, prepare_data

    target = tmp_path_factory.mktemp("data") / "mnist"
    prepare_data(DataSettings(), target)
    return target


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a window; skipped where Debian's chromium or another one is not installed.

    No longer than a module: while it is there an event loop runs in this thread, and other tests begin their own.
    """
    if CHROMIUM is None:
        pytest.skip("needs chromium (apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """A fresh window; whatever its script throws or its policy refuses fails the test."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "console",
        lambda said: (
            troubles.append(said.text)
            if said.type == "error" and LOADING not in said.text
            else None
        ),
    )
    yield page
    context.close()
    assert troubles == []
