"""Every fault against every command, with real processes: `python benchmarks/faults.py --tries 5`.

A row is a fault, a column a command, and a cell some tries. Each try begins the command in a directory of its own, lets
the fault strike at a random moment of the command's length, ends the fault, and then looks: the command ended well or
with a sentence, nothing of it still runs, a second call ends well, no trial is lost or counted twice, the registry
verifies, what was acknowledged is there, and a server answers again. A fault that came too late is drawn again.

    python benchmarks/faults.py --only "full disk" tune --tries 20

Full disk, read-only and no memory need root, the clock a C compiler, the store a MinIO
server (`make minio`). A cell that cannot be tried here says why. `--write FILE` replaces the table in a document.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from machine import describe

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/server")]

from datasets import synthetic_part, write_pictures
from handmade import SHAPES, shapes_model
from s3servers import KEYS, minio_in, minio_program

from podium.models import open_registry

PODIUM = str(Path(sys.executable).with_name("podium"))
TRIALS, LONGEST, OUTAGE = 6, 90.0, 2.0
"""Trials of a sweep; seconds in which a command has to end; seconds without a store or an API server."""

VERSIONS = "v1", "v2"
CGROUP = Path("/sys/fs/cgroup/memory")
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


CLOCK = """\
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long *step;
__attribute__((constructor)) static void look(void) {
    step = mmap(0, 8, PROT_READ, MAP_SHARED, open(getenv("FAULTS_CLOCK"), O_RDONLY | O_CLOEXEC), 0);
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) now->tv_sec += *step;
    return code;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    return now ? *now = exact.tv_sec : exact.tv_sec;
}
"""
"""The system's time as programs read it, by a step in a file; files keep the times of the kernel."""


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
        words = [sys.executable, __file__, "--serve", str(self.apart)]
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


class Command:
    """A column: how a command begins, is called again, and what has to be true in the end."""

    name = ""
    shares: frozenset[str] = frozenset()
    """What of the rows it has: an API server, an engine, workers, a webhook."""

    serves = False

    def __init__(self, place: Place) -> None:
        self.place = place
        self.call: Call | None = None

    def prepare(self) -> None:
        """Bring what has to be there before."""

    def words(self) -> list[str]:
        raise NotImplementedError

    def begin(self) -> Call:
        self.call = self.place.call(*self.words())
        return self.call

    def workers(self) -> list[int]:
        """Return the processes that work for it."""
        return self.place.left(self.call) if self.call else []

    def hold(self, seconds: float) -> None:
        """Let the fault last: until the command ends, or so long."""
        with suppress(subprocess.TimeoutExpired):
            self.call.process.wait(seconds)  # type: ignore[union-attr]

    def recover(self) -> None:
        """Do what a cluster does by itself when the fault is over."""

    def end(self, allowed: Sequence[int]) -> bool:
        """Wait for the end of the first call; return whether it succeeded."""
        return self.call.end(allowed=allowed) == 0  # type: ignore[union-attr]

    def again(self) -> None:
        """Call it a second time; it has to end well."""

    def holds(self) -> None:
        """Check the outcome."""

    def verify(self) -> list[dict[str, Any]]:
        """Verify the registry; return the history of the model."""
        at = ["--storage", self.place.store_url]
        require(
            not self.place.run("models", "verify", *at)["findings"],
            "podium models verify finds fault",
        )
        return list(self.place.run("models", "history", "tiny", *at))


class Run(Command):
    name = "run"
    shares = frozenset({"webhook", "worker"})

    def words(self) -> list[str]:
        own = [
            f"dataset={self.place.common.folder}/data",
            "model_name=tiny",
            "network=mlp",
            "epochs=1",
            "workers=0",
        ]
        return [
            "run",
            "train_and_promote",
            *own,
            f"storage={self.place.store_url}",
            *self.place.notify,
        ]

    def again(self) -> None:
        states = [run["state"] for run in self.place.run("runs", "list")]
        require("running" not in states, f"a run that has ended is listed as running: {states}")
        if "succeeded" not in states:
            self.place.run(*(("run", "--resume", "latest") if states else self.words()))

    def holds(self) -> None:
        runs = self.place.run("runs", "list")
        require(
            [run["state"] for run in runs].count("succeeded") == 1, f"not one succeeded run: {runs}"
        )
        promoted = [event["version"] for event in self.verify() if event["event"] == "promotion"]
        require(
            promoted == [run["run"] for run in runs if run["state"] == "succeeded"],
            f"promoted: {promoted}",
        )


class Tune(Command):
    name = "tune"
    shares = frozenset({"webhook", "worker"})
    at: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    def words(self) -> list[str]:
        store = (
            [] if self.place.store_url.startswith("file:") else ["--storage", "s3://models/trials"]
        )
        sweep = [
            "--x",
            "0.0..1.5",
            "--trials",
            str(TRIALS),
            "--objective",
            "score",
            "--seed",
            "1",
            "--name",
            "sweep",
        ]
        return [
            "tune",
            "script.py",
            *sweep,
            "--algorithm",
            "random",
            *self.more,
            *store,
            *self.at,
            *self.place.notify,
        ]

    def state(self) -> str:
        listed = self.place.run("experiment", "list", *self.at)
        return str(listed[0]["state"]).lower() if listed else ""

    def again(self) -> None:
        state = self.state()
        if (
            state == "failed"
        ):  # as the disk was full, say: its trials count; another sweep has to do
            self.place.run(*(word.replace("sweep", "second") for word in self.words()))
        elif state != "succeeded":
            self.place.run(
                *(("experiment", "resume", "sweep", *self.at) if state else self.words())
            )

    def holds(self) -> None:
        name = "second" if self.state() == "failed" else "sweep"
        trials = self.place.run("experiment", "trials", name, *self.at)
        states = [trial["state"] for trial in trials]
        require(
            len({trial["name"] for trial in trials}) == len(trials) == TRIALS,
            f"{TRIALS} trials are {states}",
        )
        require(set(states) <= {"Succeeded", "Failed"}, f"trials of an ended sweep are {states}")
        values = {
            trial["name"]: trial["value"] for trial in trials if trial["state"] == "Succeeded"
        }
        right = all(
            trial["value"] == float(trial["parameters"]["x"])
            for trial in trials
            if trial["name"] in values
        )
        require(right, f"a trial has another's score: {trials}")
        best = self.place.run("experiment", "best", name, *self.at)
        require(
            best["value"] == max(values.values()),
            f"the best of {values} is said to be {best['name']}",
        )


class Deterministic(Tune):
    name = "deterministic"
    more = ("--deterministic", "2")

    def holds(self) -> None:
        super().holds()
        if self.state() == "failed":
            return
        trials = self.place.run("experiment", "trials", "sweep")
        tried = sorted(trial["parameters"]["x"] for trial in trials)
        self.place.common.values.extend([] if self.place.common.values else tried)
        require(tried == self.place.common.values, f"other trials than undisturbed: {tried}")


class Pool(Tune):
    name = "pool"
    shares = frozenset({"webhook", "worker", "engine", "API server", "node", "always store"})
    at = ("--cluster", "kubernetes://team")
    more = ("--pool", "2", "--image", "any")

    def prepare(self) -> None:
        self.place.start_services()
        self.start_engine()

    def start_engine(self) -> None:
        environ = self.place.environ
        self.place.environ = {
            **environ,
            "PODIUM_HOME": str(self.place.apart),
            "TMPDIR": str(self.place.apart),
        }
        words = ["engine", *self.at, "--storage", "s3://models/pools", "--image", "podium"]
        self.engine = self.place.call(*words, directory=self.place.apart)
        self.place.environ = environ

    def workers(self) -> list[int]:
        words = [(pid, Path(f"/proc/{pid}/cmdline")) for pid in processes(f"{self.place.apart}/")]
        return [
            pid
            for pid, line in words
            if line.exists() and b"podium.sweeps.worker" in line.read_bytes().split(b"\0")
        ]

    def recover(self) -> None:
        if not self.engine.running:
            self.start_engine()

    def left_alone(self) -> str:
        time.sleep(1)
        state = self.state()
        return state if state in ("", "succeeded", "failed") else ""

    def again(self) -> None:
        if not self.state():
            self.place.run(*self.words())
        until(self.left_alone, LONGEST, "the engine did not end the sweep")
        super().again()

    def holds(self) -> None:
        super().holds()
        until(lambda: not self.workers(), 30, "the pool's workers did not end")
        self.engine.process.terminate()
        self.engine.end(30, (143,))


class Resume(Tune):
    name = "resume"
    shares = frozenset({"worker"})

    def prepare(self) -> None:
        first = self.place.call(*super().words())
        until(
            lambda: " Succeeded " in first.err.read_text() or not first.running,
            60,
            "no trial succeeded",
        )
        first.process.kill()
        first.process.wait()
        self.place.nothing_left()

    def words(self) -> list[str]:
        return ["experiment", "resume", "sweep"]

    def again(self) -> None:
        if self.state() == "failed":
            self.place.run(*(word.replace("sweep", "second") for word in super().words()))
        elif self.state() != "succeeded":
            self.place.run(*self.words())


class Promote(Command):
    name = "promote"

    def prepare(self) -> None:
        self.place.copy_registry()

    def words(self) -> list[str]:
        return ["models", "promote", "tiny", VERSIONS[1], "--storage", self.place.store_url]

    def end(self, allowed: Sequence[int]) -> bool:
        self.acknowledged = super().end(allowed)
        return self.acknowledged

    def again(self) -> None:
        back = ["models", "promote", "tiny", VERSIONS[0], "--storage", self.place.store_url]
        self.place.run(*back)

    def holds(self) -> None:
        promoted = [event["version"] for event in self.verify() if event["event"] == "promotion"]
        first, second = VERSIONS
        expected = [[first, second, first]] + [[first]] * (not self.acknowledged)
        require(
            promoted in expected, f"acknowledged: {self.acknowledged}, but promoted: {promoted}"
        )


class Server(Command):
    """A command that answers until it is stopped."""

    serves = True
    address = re.compile(r"(https?://\S+)")

    def prepare(self) -> None:
        self.place.copy_registry()

    def begin(self) -> Call:
        call = super().begin()
        self.ready(call)
        return call

    def ready(self, call: Call) -> None:
        def found() -> Any:
            return self.address.search(call.err.read_text())

        until(lambda: found() or not call.running, 60, f"`{call}` does not listen")
        self.url = found()[1] if found() else "http://nowhere"
        until(lambda: not call.running or self.answers(), 30, f"`{call}` does not answer")

    def answers(self) -> bool:
        """Return whether it answers rightly now."""
        raise NotImplementedError

    def hold(self, seconds: float) -> None:
        late = time.monotonic() + min(seconds, 2 * OUTAGE)
        while self.call.running and time.monotonic() < late:  # type: ignore[union-attr]
            with suppress(httpx.HTTPError):
                self.answers()
            time.sleep(0.1)

    def end(self, allowed: Sequence[int]) -> bool:
        assert self.call
        alive = self.call.running
        if alive and not (ending := -signal.SIGTERM in allowed):
            until(self.answers, 30, "the server does not answer again")
            self.news()
        self.stop(self.call, allowed)
        return alive and not ending

    def news(self) -> None:
        """Change what it shows, and wait until it does."""

    def stop(self, call: Call, allowed: Sequence[int]) -> None:
        if call.running:
            call.process.terminate()
        call.end(30, (*allowed, 143))

    def again(self) -> None:
        call = self.begin()
        require(call.running, f"`{call}` ended at its start: {call.err.read_text()[-300:]}")
        self.stop(call, ())

    def holds(self) -> None:
        self.verify()


class Serve(Server):
    name = "serve"
    address = re.compile(r"listening on (http://\S+)/v2")

    def words(self) -> list[str]:
        return [
            "serve",
            "tiny",
            "--port",
            "0",
            "--follow",
            "0.5",
            "--storage",
            self.place.store_url,
        ]

    def version(self) -> str:
        picture = {"name": "images", "shape": [1, 28, 28], "datatype": "UINT8", "data": [0] * 784}
        answer = httpx.post(
            f"{self.url}/v2/models/tiny/infer", json={"inputs": [picture]}, timeout=10
        )
        return str(answer.json()["model_version"]) if answer.status_code == 200 else ""

    def answers(self) -> bool:
        return bool(self.version())

    def news(self) -> None:
        new = VERSIONS[1]
        self.place.run("models", "promote", "tiny", new, "--storage", self.place.store_url)
        until(lambda: self.version() == new, 30, "the server does not follow the champion")


class Ui(Server):
    name = "ui"
    address = re.compile(r"look at (http://\S+)")
    shares = frozenset({"API server"})

    def words(self) -> list[str]:
        told = self.place.told
        more = ["--cluster", "kubernetes://team", "--server", told["kfp"]] if told else []
        return ["ui", "--port", "0", "--storage", self.place.store_url, *more]

    def answers(self) -> bool:
        with httpx.Client(
            base_url=self.url.partition("/?")[0], follow_redirects=True, timeout=10
        ) as http:
            pages = [
                http.get(self.url),
                http.get("/models/tiny"),
            ]  # the address lets in by a cookie
        version = VERSIONS[0]
        return all(page.status_code == 200 for page in pages) and version in pages[1].text


class Submit(Command):
    name = "submit"
    shares = frozenset({"webhook", "API server"})

    def prepare(self) -> None:
        self.place.start_services()

    def words(self) -> list[str]:
        return [
            "submit",
            "pipeline.py",
            "--wait",
            "--host",
            self.place.told["kfp"],
            *self.place.notify,
        ]

    def end(self, allowed: Sequence[int]) -> bool:
        self.acknowledged = int(super().end(allowed))
        return bool(self.acknowledged)

    def again(self) -> None:
        before = len(self.place.tell("runs"))
        require(
            self.acknowledged <= before <= 1,
            f"{before} runs by one submit that exited with success: {self.acknowledged}",
        )
        self.place.run(*self.words())
        require(len(self.place.tell("runs")) == before + 1, "the second submit is not one run")


class Fault:
    """A row: what is done to a command, and what podium promises then."""

    name = promise = ""
    lasts = 20.0
    codes: tuple[int, ...] = ()
    must_succeed = False

    def why_not(self, command: type[Command]) -> str:
        """Return why the cell makes no sense, or cannot be tried here."""
        return ""

    def prepare(self, place: Place, command: Command) -> None:
        """Build what it needs, before the command begins."""

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        """Do it; return whether it hit."""
        return True

    def lift(self, place: Place, command: Command) -> bool:
        """End it; return whether it has hit."""
        return True


class Signal(Fault):
    lasts = LONGEST

    def __init__(self, number: signal.Signals, promise: str, *codes: int) -> None:
        self.number, self.name, self.promise, self.codes = (
            number,
            number.name,
            promise,
            (*codes, -number),
        )

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        hit = call.running
        call.process.send_signal(self.number)
        return hit


class FullDisk(Fault):
    name = "full disk"
    promise = "A sentence, or success if there was room; what is written appears whole or not at all. With room again, the next call ends well; trials that failed meanwhile count as failed. Servers keep answering."  # fmt: skip

    def why_not(self, command: type[Command]) -> str:
        return "" if os.geteuid() == 0 else "needs root"

    def prepare(self, place: Place, command: Command) -> None:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48m", "podium-faults", place.home], check=True
        )
        place.undo.callback(subprocess.run, ["umount", "-l", place.home], check=True)

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        with suppress(OSError), (place.home / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        os.truncate(
            place.home / "filler",
            max(
                0,
                (place.home / "filler").stat().st_size
                - 4096 * place.chance.choice([0, 0, 1, 4, 16]),
            ),
        )
        return call.running

    def lift(self, place: Place, command: Command) -> bool:
        (place.home / "filler").unlink()
        return True


class ReadOnly(Fault):
    name = "read-only"
    promise = "As a full disk: a sentence, nothing half-written, and the next call ends well. Servers keep answering."

    def why_not(self, command: type[Command]) -> str:
        return "" if os.geteuid() == 0 else "needs root"

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        subprocess.run(["mount", "--bind", place.home, place.home], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", place.home], check=True)
        return call.running

    def lift(self, place: Place, command: Command) -> bool:
        subprocess.run(["umount", "-l", place.home], check=True)
        return True


class NoMemory(Fault):
    name = "no memory"
    promise = "The kernel kills a process of it. A killed step or trial is named with a hint; if podium itself was killed, the row SIGKILL holds."  # fmt: skip
    codes = (-9,)

    def why_not(self, command: type[Command]) -> str:
        return "" if os.access(CGROUP / "cgroup.procs", os.W_OK) else "needs root and cgroup v1"

    def prepare(self, place: Place, command: Command) -> None:
        place.group = CGROUP / f"podium-faults-{place.folder.name}-{os.getpid()}"
        place.group.mkdir()
        place.undo.callback(self.remove, place.group)
        most = place.common.peak.get(command.name)
        if most:
            limit = int(most * place.chance.uniform(0.3, 0.9))
            (place.group / "memory.limit_in_bytes").write_text(str(limit))

    def remove(self, group: Path) -> None:
        with suppress(Broken):
            until(lambda: not (group / "cgroup.procs").read_text(), 30, "")
        with suppress(OSError):
            group.rmdir()

    def lift(self, place: Place, command: Command) -> bool:
        assert place.group
        kills = (place.group / "memory.oom_control").read_text().rpartition("oom_kill ")[2]
        (place.group / "memory.limit_in_bytes").write_text("-1")
        return int(kills) > 0


class ClockStep(Fault):
    promise = "The same as undisturbed: durations are measured by a clock that is not set, and the order of history by its sequence. A store that refuses the wrong time is named."  # fmt: skip

    def __init__(self, name: str, seconds: int) -> None:
        self.name, self.seconds = name, seconds

    def why_not(self, command: type[Command]) -> str:
        return "" if shutil.which("cc") else "needs a C compiler"

    def set(self, place: Place, seconds: int) -> None:
        with (place.apart / "clock").open("r+b") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))

    def prepare(self, place: Place, command: Command) -> None:
        library, file = place.apart / "clock.so", place.apart / "clock"
        build = ["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"]
        subprocess.run(build, input=CLOCK, text=True, check=True)
        file.write_bytes(bytes(8))
        place.environ |= {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(file)}

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        self.set(place, self.seconds)
        return call.running

    def lift(self, place: Place, command: Command) -> bool:
        self.set(place, 0)
        return True


class Outage(Fault):
    """Something that podium talks to is away for a while, and comes back."""

    lasts = OUTAGE

    def __init__(self, name: str, share: str, promise: str, otherwise: str) -> None:
        self.name, self.share, self.promise, self.otherwise = name, share, promise, otherwise

    def why_not(self, command: type[Command]) -> str:
        return "" if self.share in command.shares else self.otherwise


class ApiServerAway(Outage):
    def prepare(self, place: Place, command: Command) -> None:
        if not place.helper:
            place.start_services()

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        place.tell("stop")
        return call.running

    def lift(self, place: Place, command: Command) -> bool:
        place.tell("start")
        return True


class StoreAway(Outage):
    def why_not(self, command: type[Command]) -> str:
        if command.name in ("resume", "submit"):
            return self.otherwise
        return "" if minio_program() else "needs MinIO"

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        place.stop_store.close()  # type: ignore[union-attr]
        return call.running

    def lift(self, place: Place, command: Command) -> bool:
        place.start_store()
        return True


class EngineKilled(Outage):
    def strike(self, place: Place, command: Command, call: Call) -> bool:
        assert isinstance(command, Pool)
        command.engine.process.kill()
        command.engine.process.wait()
        return call.running


class WorkerEnds(Outage):
    """One worker is killed, or all are told to end."""

    lasts = LONGEST

    def __init__(self, *words: str, drain: bool = False) -> None:
        super().__init__(*words)
        self.drain = drain

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        pids = command.workers()
        for pid in pids if self.drain else pids and [place.chance.choice(pids)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if self.drain else signal.SIGKILL)
        return bool(pids)


class WebhookAway(Outage):
    must_succeed = True
    lasts = LONGEST

    def prepare(self, place: Place, command: Command) -> None:
        listener = place.undo.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        if place.chance.random() < 0.3:  # it takes the connection, and never answers
            listener.listen()
        place.notify = ["--notify", f"http://127.0.0.1:{listener.getsockname()[1]}/hook"]


FAULTS: list[Fault] = [
    Signal(signal.SIGKILL, "Nothing of it outlives it. The next call goes on from what was finished; no trial is lost or counted twice; a promotion is whole or did not happen."),
    Signal(signal.SIGTERM, "It ends what it started, says how to continue, and exits 143. A server finishes the requests in progress.", 143),
    FullDisk(),
    ReadOnly(),
    NoMemory(),
    ClockStep("clock forward", 3600),
    ClockStep("clock back", -3600),
    ApiServerAway("API server away", "API server", "Commands wait and go on; what was asked for twice is made once. Pages show what they last knew, and follow again.", "no API server in it"),
    StoreAway("store away", "", "Commands wait some seconds, then end with a sentence; the next call ends well. Servers answer with the model they have, and follow the champion again.", "no store in it"),
    EngineKilled("engine killed", "engine", "The next engine takes over once the Lease has run out; trials go on meanwhile and count once.", "is its own engine: see SIGKILL"),
    WorkerEnds("worker killed", "worker", "A pool gives its trial to another worker. Elsewhere a killed trial or step has failed, and is named.", "has no other process"),
    WorkerEnds("node drain", "node", "As for the loss of all workers at once: their trials run again, and count once.", "no node in it", drain=True),
    WebhookAway("webhook away", "webhook", "A warning; the outcome is the same.", "sends no notice"),
]  # fmt: skip
COMMANDS = [Run, Tune, Deterministic, Pool, Resume, Promote, Serve, Ui, Submit]


@dataclass
class Outcome:
    """One try: whether it hit, what did not hold, and whether the first call succeeded all the same."""

    hit: bool = True
    broken: str = ""
    succeeded: bool = False


def attempt(common: Common, fault: Fault, column: type[Command], number: int, seed: int) -> Outcome:
    """Try once, and clear away; the directory of a try that broke is kept."""
    chance = random.Random(f"{seed} {fault.name} {column.name} {number}")
    name = re.sub(r"\W", "-", f"{fault.name or 'none'}-{column.name}-{number}")
    shutil.rmtree(common.folder / name, ignore_errors=True)
    shutil.rmtree(common.folder / f"{name}.services", ignore_errors=True)
    place = Place(common, common.folder / name, chance)
    outcome = Outcome()
    try:
        with place.undo:
            command = column(place)
            if isinstance(fault, StoreAway) or "always store" in column.shares:
                place.use_store()
            fault.prepare(place, command)
            command.prepare()
            began = time.monotonic()
            call = command.begin()
            length = common.seconds.get(column.name, 1.0)
            if fault.name:
                time.sleep(chance.uniform(0, OUTAGE if column.serves else 0.9 * length))
            outcome.hit = fault.strike(place, command, call)
            command.hold(fault.lasts)
            outcome.hit = fault.lift(place, command) and outcome.hit
            command.recover()
            outcome.succeeded = command.end(fault.codes)
            common.seconds.setdefault(column.name, time.monotonic() - began)
            if place.group and column.name not in common.peak:
                common.peak[column.name] = int(
                    (place.group / "memory.max_usage_in_bytes").read_text()
                )
            require(outcome.succeeded or not fault.must_succeed, "it did not succeed")
            place.nothing_left()
            command.again()
            command.holds()
            place.nothing_left()
    except Exception as error:
        outcome.broken = str(error) or type(error).__name__
        if not isinstance(error, Broken):
            (common.folder / f"{name}.txt").write_text(traceback.format_exc())
        print(
            f"  {fault.name}, {column.name}, try {number}: {outcome.broken} ({place.folder})",
            flush=True,
        )
    if not outcome.broken:
        shutil.rmtree(place.folder, ignore_errors=True)
        shutil.rmtree(place.apart, ignore_errors=True)
    return outcome


def cell(
    common: Common, fault: Fault, column: type[Command], tries: int, seed: int
) -> list[Outcome]:
    """Try until the fault has hit so often."""
    outcomes: list[Outcome] = []
    for number in range(5 * tries):
        outcome = attempt(common, fault, column, number, seed)
        outcomes += [outcome] if outcome.hit or outcome.broken else []
        if len(outcomes) == tries:
            break
    return outcomes


def build(common: Common) -> None:
    """Draw a dataset, and make a registry of two versions."""
    sizes = {"train": (1, 300), "validation": (2, 100), "test": (3, 100)}
    write_pictures(
        common.folder / "data", {part: synthetic_part(*size) for part, size in sizes.items()}
    )
    model = open_registry(common.folder / "registry").model("tiny")
    for version in VERSIONS:
        files: dict[str, Path | bytes] = {
            "model.onnx": shapes_model(), "preprocessing.json": json.dumps(SHAPES).encode(), "note.txt": version.encode(),
        }  # fmt: skip
        model.upload(files, {"run_id": version})
    model.set_champion(VERSIONS[0], {}, expect=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", nargs=2, default=["", ""], metavar=("ROW", "COLUMN"), help="'' for all"
    )
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2, help="cells at a time")
    parser.add_argument("--write", type=Path, help="document whose table is replaced")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given: Any = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return 0
    faults = [fault for fault in FAULTS if given.only[0] in ("", fault.name)]
    columns = [column for column in COMMANDS if given.only[1] in ("", column.name)]
    began, common = time.monotonic(), Common(Path(tempfile.mkdtemp(prefix="podium-faults-")))
    build(common)
    undisturbed = NoMemory() if not NoMemory().why_not(Run) else Fault()
    undisturbed.name = ""
    for column in columns:
        outcome = attempt(common, undisturbed, column, 0, given.seed)
        if outcome.broken or not outcome.succeeded:
            sys.exit(f"{column.name} undisturbed: {outcome.broken or 'it did not succeed'}")
        print(f"{column.name}: {common.seconds[column.name]:.1f} s", flush=True)
    cells: dict[tuple[str, str], str] = {}
    bad = 0
    with ThreadPoolExecutor(given.at_once) as pool:
        jobs = {
            (fault.name, column.name): pool.submit(cell, common, fault, column, given.tries, given.seed)
            for fault in faults for column in columns if not fault.why_not(column)
        }  # fmt: skip
        for fault in faults:
            for column in columns:
                key = fault.name, column.name
                cells[key] = fault.why_not(column)
                if key in jobs:
                    outcomes = jobs[key].result()
                    right = sum(not outcome.broken for outcome in outcomes)
                    bad += len(outcomes) - right
                    cells[key] = (
                        f"{right}/{len(outcomes)} ({sum(outcome.succeeded for outcome in outcomes)})"
                    )
                    print(f"{fault.name}, {column.name}: {cells[key]}", flush=True)
    rows = [["fault", *(f"`{column.name}`" for column in columns)], ["---"] * (len(columns) + 1)]
    rows += [
        [fault.name, *(cells[fault.name, column.name] for column in columns)] for fault in faults
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    promises = "\n".join(f"- **{fault.name}**: {fault.promise}" for fault in faults)
    text = f"{describe()}, seed {given.seed}, {(time.monotonic() - began) / 60:.0f} minutes\n\n{table}\n\n{promises}"
    print(text)
    if given.write:
        before, mark, rest = given.write.read_text().partition("<!-- faults -->\n")
        after = rest.partition("<!-- end of faults -->")[2]
        given.write.write_text(f"{before}{mark}\n{text}\n\n<!-- end of faults -->{after}")
    if not bad:
        shutil.rmtree(common.folder, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
