"""Every fault against every command, with real processes: `python benchmarks/faults.py --tries 5`.

A row is a fault, a column a command, and a cell some tries. Each try begins the command in a directory of its own, lets
the fault strike at a random moment of the command's length, ends the fault, and then looks: the command ended well or
with a sentence, nothing of it still runs, a second call ends well, no trial is lost or counted twice, the registry
verifies, what was acknowledged is there, and a server answers again. A fault that came too late is drawn again.

    python benchmarks/faults.py --only "full disk,read-only" tune,resume --tries 20

Full disk, read-only and no memory need root, the clock a C compiler, the store a MinIO server (`make minio`). A cell
that cannot be tried here says why. `--write FILE` replaces the table in a document.
"""

import argparse
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fault_commands import COMMANDS, Command, Pool, Run
from fault_place import (
    LONGEST,
    OUTAGE,
    Broken,
    Call,
    Common,
    Place,
    build,
    minio_program,
    require,
    until,
)
from machine import describe

CGROUP = Path("/sys/fs/cgroup/memory")
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


NOT_IN_IT = "–"
"""Cell of a fault that cannot reach the command."""


class Fault:
    """A row: what is done to a command. docs/reliability.md says what is promised then."""

    name = ""
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

    def __init__(self, number: signal.Signals, *codes: int) -> None:
        self.number, self.name, self.codes = number, number.name, (*codes, -number)

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        hit = call.running
        call.process.send_signal(self.number)
        return hit


class FullDisk(Fault):
    name = "full disk"

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

    def why_not(self, command: type[Command]) -> str:
        return "" if os.geteuid() == 0 else "needs root"

    def strike(self, place: Place, command: Command, call: Call) -> bool:
        subprocess.run(["mount", "--bind", place.home, place.home], check=True)
        remount = ["mount", "-o", "remount,ro,bind", place.home]
        until(  # it is refused while a file is being written
            lambda: subprocess.run(remount, capture_output=True, check=False).returncode == 0,
            20,
            "the directory cannot be made read-only",
        )
        return call.running

    def lift(self, place: Place, command: Command) -> bool:
        subprocess.run(["umount", "-l", place.home], check=True)
        return True


class NoMemory(Fault):
    name = "no memory"
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

    def __init__(self, name: str, share: str) -> None:
        self.name, self.share = name, share

    def why_not(self, command: type[Command]) -> str:
        return "" if self.share in command.shares else NOT_IN_IT


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
            return NOT_IN_IT
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
        until(lambda: command.workers() or not call.running, 60, "no worker appears")
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
    Signal(signal.SIGKILL),
    Signal(signal.SIGTERM, 143),
    FullDisk(),
    ReadOnly(),
    NoMemory(),
    ClockStep("clock forward", 3600),
    ClockStep("clock back", -3600),
    ApiServerAway("API server away", "API server"),
    StoreAway("store away", ""),
    EngineKilled("engine killed", "engine"),
    WorkerEnds("worker killed", "worker"),
    WorkerEnds("node drain", "node", drain=True),
    WebhookAway("webhook away", "webhook"),
]


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


def cell(common: Common, fault: Fault, column: type[Command], tries: int, seed: int) -> str:
    """Try until the fault has hit so often; return tries that were right, all, and successes."""
    outcomes: list[Outcome] = []
    for number in range(5 * tries):
        outcome = attempt(common, fault, column, number, seed)
        outcomes += [outcome] if outcome.hit or outcome.broken else []
        if len(outcomes) == tries:
            break
    right = sum(not outcome.broken for outcome in outcomes)
    text = f"{right}/{len(outcomes)} ({sum(outcome.succeeded for outcome in outcomes)})"
    print(f"{fault.name}, {column.name}: {text}", flush=True)
    return text


def why_not(fault: Fault, column: type[Command]) -> str:
    """Return why a cell makes no sense, or cannot be tried here."""
    return needs(column) or fault.why_not(column)


def needs(column: type[Command]) -> str:
    """Return what a command cannot be tried without, and is not here."""
    return "needs MinIO" if "always store" in column.shares and not minio_program() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", nargs=2, default=["", ""], metavar=("ROWS", "COLUMNS"), help="'' for all"
    )
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2, help="cells at a time")
    parser.add_argument("--write", type=Path, help="document whose table is replaced")
    given: Any = parser.parse_args()
    only = [names.split(",") if names else [] for names in given.only]
    faults = [fault for fault in FAULTS if not only[0] or fault.name in only[0]]
    columns = [column for column in COMMANDS if not only[1] or column.name in only[1]]
    began, common = time.monotonic(), Common(Path(tempfile.mkdtemp(prefix="podium-faults-")))
    build(common)
    undisturbed = NoMemory() if not NoMemory().why_not(Run) else Fault()
    undisturbed.name = ""
    for column in columns:
        if needs(column):
            continue
        outcome = attempt(common, undisturbed, column, 0, given.seed)
        if outcome.broken or not outcome.succeeded:
            sys.exit(f"{column.name} undisturbed: {outcome.broken or 'it did not succeed'}")
        print(f"{column.name}: {common.seconds[column.name]:.1f} s", flush=True)
    with ThreadPoolExecutor(given.at_once) as pool:
        jobs = {
            (fault, column): pool.submit(cell, common, fault, column, given.tries, given.seed)
            for fault in faults
            for column in columns
            if not why_not(fault, column)
        }
    cells = {key: job.result() for key, job in jobs.items()}
    rows = [["fault", *(f"`{column.name}`" for column in columns)], ["---"] * (len(columns) + 1)]
    for fault in faults:
        tried = [cells.get((fault, column)) or why_not(fault, column) for column in columns]
        rows.append([fault.name, *tried])
    bad = [text for text in cells.values() if len(set(text.partition(" ")[0].split("/"))) > 1]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = f"{describe()}, seed {given.seed}, {(time.monotonic() - began) / 60:.0f} minutes:\n\n{table}"
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
