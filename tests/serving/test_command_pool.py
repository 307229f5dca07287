"""`podium serve` with a model that is a command: real commands in real processes."""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from handmade import TABLE, rows_model
from servers import Running, serving, tensor

from podium.models import Model, open_registry

pytestmark = pytest.mark.whole

PREDICT = """
import argparse, json, os, pathlib, subprocess, sys, time
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--stay", action="store_true")
for name in ("model", "inputs", "output"):
    parser.add_argument("--" + name)
given = parser.parse_args()
notes = pathlib.Path(os.environ["NOTES"])

def note(what):
    with notes.open("a") as stream:
        stream.write(f"{what} {os.getpid()} {time.monotonic()}\\n")

def answer(inputs, output):
    note("begin")
    table = np.load(inputs + "/table.npy")
    if (table < 0).any():
        print("cannot take", table.min(), file=sys.stderr, flush=True)
        os._exit(3)
    time.sleep(float(table[:, 0].max()))
    np.save(output, table.sum(1) + FACTOR)
    note("end")

print("ready", flush=True)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
notes.with_suffix(".children").open("a").write(f"{child.pid}\\n")
if given.stay:
    for line in sys.stdin:
        call = json.loads(line)
        print("a call")
        answer(call["inputs"], call["output"])
        print(call["output"], flush=True)
else:
    answer(given.inputs, given.output)
"""
KINDS = {
    "each call": {"predict": ["python", "predict.py"]},
    "stays": {"predict": ["python", "predict.py"], "serve": ["python", "predict.py", "--stay"]},
}


def files(kind: str, factor: float = 0.0) -> dict[str, Path | bytes]:
    """The files of a model that adds up each row."""
    return {
        "model.json": json.dumps(KINDS[kind]).encode(),
        "predict.py": PREDICT.replace("FACTOR", str(factor)).encode(),
    }


@pytest.fixture
def sums(tmp_path: Path) -> Callable[[str], Path]:
    def make(kind: str) -> Path:
        place = tmp_path / "sums"
        place.mkdir()
        for name, content in files(kind).items():
            assert isinstance(content, bytes)
            (place / name).write_bytes(content)
        return place

    return make


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "scratch").mkdir()
    return {"NOTES": str(tmp_path / "notes"), "TMPDIR": str(tmp_path / "scratch")}


def ask(server: Running, *rows: Sequence[float], name: str = "sums") -> httpx.Response:
    """Ask on a connection of its own; the first number of a row is how many seconds it takes."""
    body = {"inputs": [tensor(np.array(rows, np.float32), "table", "FP32")]}
    return httpx.post(f"{server.url}/v2/models/{name}/infer", json=body, timeout=120)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make calls in threads of their own; return what they return."""
    said: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda at=at, call=call: said.update({at: call()}))
        for at, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [said[at] for at in range(len(calls))]


def noted(environ: dict[str, str]) -> list[list[str]]:
    return [line.split() for line in Path(environ["NOTES"]).read_text().splitlines()]


def kill_keeper(server: Running) -> None:
    """Kill the process between a server and its predict command."""
    for child in Path(f"/proc/{server.process.pid}/task").glob("*/children"):
        for pid in map(int, child.read_text().split()):
            if b"system.supervised" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, 9)
                return
    raise AssertionError("there is no keeper")


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but is not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_wait_are_one_call(
    kind: str, sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    with serving(sums(kind), "--processes", "1", **environ) as server:
        answers = at_once(*(lambda at=at: ask(server, [1, at]) for at in range(10)))
        page = server.http.get("/metrics").text
    assert [answer.json()["outputs"][0]["data"] for answer in answers] == [
        [1.0 + at] for at in range(10)
    ]
    calls = [note for note in noted(environ) if note[0] == "begin"]
    assert len(calls) <= 4
    assert f'podium_serve_batches_total{{model="sums"}} {len(calls)}' in page


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_processes_work_as_asked_for(
    kind: str, sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    def later(at: int) -> httpx.Response:
        time.sleep(at * 0.4)
        return ask(server, [2, at])

    with serving(sums(kind), "--processes", "2", **environ) as server:
        answers = at_once(*(lambda at=at: later(at) for at in range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4
    most = running = 0
    for what, _, _ in sorted(noted(environ), key=lambda note: float(note[2])):
        running += 1 if what == "begin" else -1
        most = max(most, running)
    assert most == 2


def test_a_served_command_is_no_old_temporary_file(
    sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    """systemd-tmpfiles passes over a directory whose exclusive lock it does not get (tmpfiles.d(5))."""
    with serving(sums("each call"), "--processes", "2", **environ) as server:
        copies = list(Path(environ["TMPDIR"]).glob("podium-worker-*"))
        assert len(copies) == 2
        for copy in copies:
            taken = os.open(copy, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(taken)
        assert ask(server, [0, 1]).status_code == 200
    assert not list(Path(environ["TMPDIR"]).glob("podium-worker-*"))


def test_a_command_that_stays_is_started_once(
    sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    with serving(sums("stays"), "--processes", "1", **environ) as server:
        assert [ask(server, [0, at]).json()["outputs"][0]["data"] for at in range(5)] == [
            [at] for at in range(5)
        ]
    assert len({pid for _, pid, _ in noted(environ)}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_dies_is_replaced(
    kind: str, sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    with serving(sums(kind), "--processes", "1", **environ) as server:
        assert ask(server, [0, 1]).status_code == 200
        failed = ask(server, [0, -7])
        assert failed.status_code == 500
        assert "exited with 3:\ncannot take -7.0" in failed.json()["error"].replace("ready\n", "")
        assert ask(server, [0, 2]).json()["outputs"][0]["data"] == [2.0]
        if kind == "stays":
            os.kill(int(noted(environ)[-1][1]), 9)  # while nobody asks
            time.sleep(0.5)
            assert ask(server, [0, 3]).json()["outputs"][0]["data"] == [3.0]
    assert "cannot take -7.0\n" in server.said


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_hangs_is_ended(
    kind: str, sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    with serving(sums(kind), "--processes", "1", "--timeout", "3", **environ) as server:
        assert ask(server, [600, 1]).status_code in (500, 504)
        began = time.monotonic()
        while ask(server, [0, 2]).status_code != 200:
            assert time.monotonic() < began + 120


REFUSED = {
    "an input cannot be named '../": ("../../../../../../{place}/written", [1, 2], "FP32"),
    "an input cannot be named '/": ("{place}/written", [1, 2], "FP32"),
    "an input cannot be named 'a\\x00b'": ("a\0b", [1, 2], "FP32"),
    "an input cannot be named 'xxx": ("x" * 900, [1, 2], "FP32"),
    "input table holds texts": ("table", [1, 2], "BYTES"),
    "input table has no rows": ("table", [0, 2], "FP32"),
}
"""The sentence by the name, shape and datatype of an input."""


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_writes_no_file_of_its_own_name(
    kind: str, sums: Callable[[str], Path], environ: dict[str, str], tmp_path: Path
) -> None:
    with serving(sums(kind), "--processes", "1", **environ) as server:
        for sentence, (name, shape, datatype) in REFUSED.items():
            named = name.format(place=str(tmp_path).lstrip("/")) if "." in name else name.format(place=tmp_path)  # fmt: skip
            data = ["1", "2"] if datatype == "BYTES" else [0.0] * (2 * shape[0])
            body = {"inputs": [{"name": named, "shape": shape, "datatype": datatype, "data": data}]}
            said = server.infer("sums", body)
            assert (said.status_code, sentence in said.json()["error"]) == (400, True), said.text
        assert not (tmp_path / "written.npy").exists()
        assert not [line for line in server.said if "Traceback" in line]
        assert ask(server, [0, 1]).json()["outputs"][0]["data"] == [1.0]


def test_a_killed_keeper_holds_nothing_up(
    sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    """What the command started lives on, and keeps its pipes open."""
    with serving(sums("stays"), "--processes", "1", "--timeout", "5", **environ) as server:
        assert ask(server, [0, 1]).status_code == 200
        kill_keeper(server)
        began = time.monotonic()
        while ask(server, [0, 2]).status_code != 200:
            assert time.monotonic() < began + 20
        kill_keeper(server)
        began = time.monotonic()
    assert time.monotonic() < began + 20, "SIGTERM ends it in time"
    left = [int(pid) for pid in Path(environ["NOTES"]).with_suffix(".children").read_text().split()]
    assert len(left) >= 2
    assert any(map(alive, left))
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_champion_takes_over_from_a_command(
    kind: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    model: Model = open_registry(tmp_path / "store").model("sums")
    for number in (1, 2):
        model.upload(files(kind, 100 * number), {"run_id": f"v{number}"})
    model.set_champion("v1", {}, expect=None)
    with serving("sums", "--storage", tmp_path / "store", "--follow", "0.2", **environ) as server:
        over, answers = threading.Event(), list[httpx.Response]()

        def client() -> None:
            while not over.is_set():
                answers.append(ask(server, [0.1, 0]))

        threads = [threading.Thread(target=client) for _ in range(3)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60
        while not answers:
            assert time.monotonic() < until
            time.sleep(0.05)
        model.promote("v2")
        until = time.monotonic() + 60
        while not answers or answers[-1].json().get("model_version") != "v2":
            assert time.monotonic() < until
            time.sleep(0.05)
        over.set()
        for thread in threads:
            thread.join()
    said = [
        (answer.json()["model_version"], answer.json()["outputs"][0]["data"][0])
        for answer in answers
    ]
    assert {version for version, _ in said} == {"v1", "v2"}
    assert all(
        abs(number - {"v1": 100.1, "v2": 200.1}[version]) < 0.001 for version, number in said
    )


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_behind_after_sigterm(
    kind: str, sums: Callable[[str], Path], environ: dict[str, str]
) -> None:
    answers: list[httpx.Response] = []
    with serving(sums(kind), "--processes", "2", **environ) as server:
        assert ask(server, [0, 1]).status_code == 200
        thread = threading.Thread(target=lambda: answers.append(ask(server, [3, 1])))
        thread.start()
        time.sleep(1.5)  # SIGTERM comes while it is under way
    thread.join()
    assert answers[0].json()["outputs"][0]["data"] == [4.0]
    assert_nothing_is_left(environ)


def assert_nothing_is_left(environ: dict[str, str]) -> None:
    started = {int(pid) for _, pid, _ in noted(environ)}
    started |= {
        int(pid) for pid in Path(environ["NOTES"]).with_suffix(".children").read_text().split()
    }
    assert len(started) >= 3
    assert not [pid for pid in started if alive(pid)]
    assert not list(Path(environ["TMPDIR"]).iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_a_shadows_command_ends_with_the_server(
    kind: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    model = open_registry(tmp_path / "store").model("rows")
    described: dict[str, Path | bytes] = {"preprocessing.json": json.dumps(TABLE).encode()}
    model.upload({"model.onnx": rows_model(), **described}, {"run_id": "v1"})
    model.upload({**files(kind), **described}, {"run_id": "v2"})
    model.set_champion("v1", {}, expect=None)
    words = ("--shadow", "v2", "--timeout", "3600", "--processes", "2")
    with serving("rows", "--storage", tmp_path / "store", *words, **environ) as server:
        assert ask(server, [3000, 1], name="rows").status_code == 200
        for _ in range(2):  # one waits for a free process
            raw = {"rows": [{"x": 3000, "color": "red"}]}
            assert server.http.post("/v2/models/rows/predict", json=raw).status_code == 200
        notes = Path(environ["NOTES"])
        while not notes.exists() or notes.read_text().count("begin") < 2:
            time.sleep(0.05)
    assert "the server ended before 3 answers came beside a client's\n" in server.said
    assert_nothing_is_left(environ)
