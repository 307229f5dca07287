"""Where one try of faults.py happens: its directory, environment and services, and the commands called in it.

Run as a program it serves a namespace of Kubernetes and Kubeflow Pipelines in memory, whose jobs are processes.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/server"))

from datasets import synthetic_part, write_pictures
from handmade import SHAPES, shapes_model
from s3servers import KEYS, minio_in, minio_program

from podium.models import open_registry

__all__ = ["minio_program"]

ROOT = Path(__file__).parent.parent

PODIUM = str(Path(sys.executable).with_name("podium"))
TRIALS, LONGEST, OUTAGE = 6, 180.0, 2.0
"""Trials of a sweep; seconds in which a command has to end; seconds without a store or an API server."""

VERSIONS = "v1", "v2"
SCRIPT = """\
import argparse, os, pathlib, time

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
x = parser.parse_args().x
time.sleep(0.3)
output = pathlib.Path(os.environ["PODIUM_OUTPUT"])
output.mkdir(parents=True, exist_ok=True)
(output / "weights").write_text(str(x))
print(f"score={x}", flush=True)
"""
PIPELINE = """\
from kfp import dsl

@dsl.component(install_kfp_package=False)
def double(number: int) -> int:
    return 2 * number

@dsl.pipeline(name="doubling")
def doubling(number: int = 1) -> int:
    return double(number=number).output
"""


class Broken(AssertionError):
    """A promise that did not hold."""


def require(holds: object, sentence: str) -> None:
    if not holds:
        raise Broken(sentence)


def until(what: Callable[[], Any], seconds: float, sentence: str) -> Any:
    """Return the first true answer; failures count as none."""
    late, last = time.monotonic() + seconds, ""
    while time.monotonic() < late:
        try:
            if answer := what():
                return answer
        except (httpx.HTTPError, OSError) as error:
            last = f": {error}"
        time.sleep(0.05)
    raise Broken(f"{sentence} within {seconds:g} s{last}")


def processes(marker: str) -> list[int]:
    """Return the processes that know a directory: by command line, working directory or environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            if (
                any(marker.encode() in text for text in told)
                or marker in f"{(entry / 'cwd').readlink()}/"
            ):
                found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class Common:
    """Things made once: a dataset and a registry of two versions in a directory, and figures."""

    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)
    """Length of each command that nothing disturbs."""

    peak: dict[str, int] = field(default_factory=dict)
    """Memory that it takes, in bytes."""

    values: list[str] = field(default_factory=list)
    """What the deterministic sweep tries."""


def build(common: Common) -> None:
    """Draw a dataset, and make a registry of two versions."""
    sizes = {"train": (1, 300), "validation": (2, 100), "test": (3, 100)}
    write_pictures(
        common.folder / "data", {part: synthetic_part(*size) for part, size in sizes.items()}
    )
    model = open_registry(common.folder / "registry").model("tiny")
    for version in VERSIONS:
        files: dict[str, Path | bytes] = {
            "model.onnx": shapes_model(),
            "preprocessing.json": json.dumps(SHAPES).encode(),
            "note.txt": version.encode(),
        }
        model.upload(files, {"run_id": version})
    model.set_champion(VERSIONS[0], {}, expect=None)


class Call:
    """A podium command in a process of its own, what it prints in files."""

    def __init__(self, place: "Place", directory: Path, *words: str) -> None:
        self.words = words
        number = len(list(place.logs.glob("*.err")))
        self.out, self.err = (place.logs / f"{number}-{words[0]}.{end}" for end in ("out", "err"))
        enter = f"echo $$ >{place.group}/cgroup.procs; " if place.group else ""
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                ["sh", "-c", f'{enter}exec "$@"', "sh", PODIUM, *words],
                env=place.environ, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip

    def __str__(self) -> str:
        return "podium " + " ".join(self.words)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def end(self, seconds: float = LONGEST, allowed: Sequence[int] = ()) -> int:
        """Wait for the end, which is success, one of the allowed codes, or a sentence with a hint."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Broken(f"`{self}` did not end within {seconds:g} s") from None
        text = self.err.read_text(errors="replace")
        noise = [
            word
            for word in ("Exception ignored", "Fatal Python", "resource_tracker")
            if word in text
        ]
        noise += ["a traceback"] if f'File "{ROOT}/src' in text else []
        require(not noise, f"`{self}` printed {', '.join(noise)}")
        if code and code not in allowed:
            require(
                code in (1, 2) and "error:" in text, f"`{self}` exited {code} without a sentence"
            )
            hints = "hint: ", "resume it with: ", "continue with: "
            require(any(hint in text for hint in hints), f"`{self}` failed without a hint")
        return code

    def json(self) -> Any:
        """Return what it prints; a failure is one of this try."""
        require(self.end() == 0, f"`{self}` failed: {self.err.read_text()[-400:]}")
        return json.loads(self.out.read_text())


class Place:
    """One try's own directory, environment and services."""

    def __init__(self, common: Common, folder: Path, chance: random.Random) -> None:
        self.common, self.folder, self.chance = common, folder, chance
        self.work, self.home, self.logs = (folder / name for name in ("work", "home", "logs"))
        self.apart = folder.with_name(f"{folder.name}.services")
        for directory in (self.work, self.home, self.logs, self.apart):
            directory.mkdir(parents=True)
        (self.work / "script.py").write_text(SCRIPT)
        (self.work / "pipeline.py").write_text(PIPELINE)
        self.environ = {
            **os.environ, "PODIUM_HOME": str(self.home), "OMP_NUM_THREADS": "1", "TMPDIR": str(self.home / "tmp"),
        }  # fmt: skip
        self.notify: list[str] = []
        self.group: Path | None = None
        self.undo = ExitStack()
        self.store_url = f"file://{self.home}/store"
        self.stop_store: ExitStack | None = None
        self.helper: subprocess.Popen[str] | None = None
        self.told: dict[str, str] = {}

    def call(self, *words: str, directory: Path | None = None) -> Call:
        (self.home / "tmp").mkdir(exist_ok=True)
        call = Call(self, directory or self.work, *words)
        self.undo.callback(_reap, call.process)
        return call

    def run(self, *words: str) -> Any:
        """Return the JSON of a command that has to succeed."""
        return self.call(*words, "--json").json()

    def start_store(self) -> None:
        """Start a MinIO server, or start it again on its port with its data."""
        if not self.stop_store:
            self.environ |= KEYS
        port = int(self.environ.get("AWS_ENDPOINT_URL", ":0").rpartition(":")[2])
        self.stop_store = ExitStack()
        (self.apart / "minio").mkdir(exist_ok=True)
        self.environ["AWS_ENDPOINT_URL"] = self.stop_store.enter_context(
            minio_in(self.apart / "minio", port)
        )
        self.undo.push(self.stop_store)

    def python(self, code: str, *words: str) -> None:
        code = f"import sys; from pathlib import Path; {code}"
        subprocess.run([sys.executable, "-c", code, *words], env=self.environ, check=True)

    def use_store(self) -> None:
        """Keep the registry in a bucket of a server of this try."""
        self.start_store()
        self.store_url = "s3://models/registry"
        self.python("from podium.storage import connect; connect('s3://models', create=True)")

    def copy_registry(self) -> None:
        """Bring the registry with two versions into the store."""
        if self.stop_store:
            code = "from podium.storage import connect; from podium.storage.transfer import put"
            code += "; put(Path(sys.argv[1]), connect(sys.argv[2]))"
            self.python(code, f"{self.common.folder}/registry", self.store_url)
        else:
            shutil.copytree(self.common.folder / "registry", self.home / "store")

    def start_services(self) -> None:
        """Start API servers of a namespace and of Kubeflow Pipelines."""
        words = [sys.executable, __file__, str(self.apart)]
        quiet = {
            name: value
            for name, value in self.environ.items()
            if str(self.folder) + "/" not in value
        }
        self.helper = subprocess.Popen(
            words,
            env=quiet,
            cwd=self.apart,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.undo.callback(_end_helper, self.helper)
        self.told = json.loads(self.helper.stdout.readline())  # type: ignore[union-attr]
        self.environ["KUBECONFIG"] = self.told["kubeconfig"]

    def tell(self, word: str) -> Any:
        """Let the services stop or start, or say what they know."""
        assert self.helper
        self.helper.stdin.write(word + "\n")  # type: ignore[union-attr]
        self.helper.stdin.flush()  # type: ignore[union-attr]
        return json.loads(self.helper.stdout.readline())  # type: ignore[union-attr]

    def left(self, *but: Call) -> list[int]:
        """Return the processes of this try's commands."""
        return [
            pid
            for pid in processes(f"{self.folder}/")
            if pid not in [call.process.pid for call in but]
        ]

    def nothing_left(self, *but: Call) -> None:
        def names() -> list[str]:
            lines = [Path(f"/proc/{pid}/cmdline") for pid in self.left(*but)]
            return [
                line.read_bytes().replace(b"\0", b" ").decode()[:150]
                for line in lines
                if line.exists()
            ]

        with suppress(Broken):
            until(lambda: not names(), 30, "")
            return
        require(not (rest := names()), f"{len(rest)} processes still run after 30 s: {rest[:2]}")


def _reap(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def _end_helper(helper: subprocess.Popen[str]) -> None:
    helper.stdin.close()  # type: ignore[union-attr]
    try:
        helper.wait(60)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()


def serve(folder: Path) -> None:
    """Serve a namespace without Katib, its jobs as processes, and Kubeflow Pipelines, by words from stdin."""
    from api_server import ApiServer
    from job_operator import JobOperator
    from kfp_server import KfpServer

    server, kfp = ApiServer(), KfpServer()
    server.world.katib, server.world.second = False, 0.2
    server.start()
    (folder / "kubeconfig").write_text(server.kubeconfig())

    def end_runs() -> None:
        while True:
            for run in list(kfp.world.runs.values()):
                run["began"] = run.get("began") or time.monotonic()
                run["state"] = "SUCCEEDED" if time.monotonic() - run["began"] > 1 else "RUNNING"
            time.sleep(0.1)

    threading.Thread(target=end_runs, daemon=True).start()
    verbs: dict[str, Callable[[], Any]] = {
        "stop": lambda: [server.stop(), kfp.stop()],
        "start": lambda: [server.start(), kfp.start()],
        "runs": lambda: list(kfp.world.runs),
    }
    with JobOperator(server.world, folder / "operator"):
        print(json.dumps({"kubeconfig": f"{folder}/kubeconfig", "kfp": kfp.host}), flush=True)
        for line in sys.stdin:
            print(json.dumps(verbs[line.strip()](), default=str), flush=True)
    kfp.stop()
    server.stop()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
