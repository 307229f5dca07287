"""The columns of faults.py: how each command begins, is called again, and what has to be true in the end."""

import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from fault_place import LONGEST, OUTAGE, TRIALS, VERSIONS, Call, Place, processes, require, until


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
        states = [run["state"] for run in runs]
        require(states.count("succeeded") == 1, f"runs are {states}")
        promoted = [event["version"] for event in self.verify() if event["event"] == "promotion"]
        succeeded = [run["run"] for run in runs if run["state"] == "succeeded"]
        require(promoted == succeeded, f"{promoted} were promoted, and {succeeded} succeeded")


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

    def status(self) -> dict[str, Any]:
        """Return what is said of the sweep; nothing if there is none."""
        call = self.place.call("experiment", "status", "sweep", *self.at, "--json")
        code, text = call.process.wait(), call.err.read_text()
        absent = code and ("error: no Experiment" in text or '"sweep" not found' in text)
        return {"state": ""} if absent else dict(call.json())

    def again(self) -> None:
        self.go_on(self.words())

    def go_on(self, first: list[str]) -> None:
        """Resume the sweep; begin it if there is none, or another if it has failed for good."""
        status = self.status()
        lost = "esume it with" in status.get("message", "")
        if status["state"] == "failed" and not lost:  # its trials failed of the fault, and count
            self.place.run(*(word.replace("sweep", "second") for word in first))
        elif status["state"] != "succeeded":
            more = ["experiment", "resume", "sweep", *self.at]
            self.place.run(*(more if status["state"] else first))

    def holds(self) -> None:
        status = self.status()
        trials = self.place.run("experiment", "trials", "sweep", *self.at)
        states = [trial["state"] for trial in trials]
        names = {trial["name"] for trial in trials}
        require(len(names) == len(trials) <= TRIALS, f"trials are {states}")
        require(set(states) <= {"Succeeded", "Failed"}, f"trials of an ended sweep are {states}")
        if status["state"] != "failed":
            require(len(trials) == TRIALS, f"{TRIALS} trials are {states}")
        right = [trial for trial in trials if trial["state"] == "Succeeded"]
        wrong = [trial for trial in right if trial["value"] != float(trial["parameters"]["x"])]
        require(not wrong, f"trials have the metric of others: {wrong}")
        best = max((trial["value"] for trial in right), default=None)
        require(status["best"] == best, f"the best is {best}, but {status['best']} is said")
        self.succeeded = sorted(trial["parameters"]["x"] for trial in right)


class Deterministic(Tune):
    name = "deterministic"
    more = ("--deterministic", "2")

    def holds(self) -> None:
        super().holds()
        values = self.place.common.values
        values.extend([] if values else self.succeeded)
        if len(self.succeeded) == TRIALS:
            same = self.succeeded == values
            require(same, f"other trials than undisturbed: {self.succeeded}")


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

    def has_ended(self) -> bool:
        time.sleep(1)
        return str(self.status()["state"]) in ("", "succeeded", "failed")

    def again(self) -> None:
        if not self.status()["state"]:
            self.place.run(*self.words())
        until(self.has_ended, LONGEST, "the engine did not end the sweep")
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
        self.go_on(super().words())


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


COMMANDS = [Run, Tune, Deterministic, Pool, Resume, Promote, Serve, Ui, Submit]
