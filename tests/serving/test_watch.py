"""`podium serve --watch` and `podium models drift`: what is asked, in bins, against the training part."""

import asyncio
import csv
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from handmade import save
from onnx import TensorProto, helper, numpy_helper
from servers import Running, serving, tensor

from podium.data import artifact
from podium.errors import InvalidInput, Unavailable
from podium.models import Model, open_registry
from podium.serving.figures import Figures
from podium.serving.served import find_models
from podium.serving.tensors import InferRequest
from podium.steps.prepare_data import DataSettings, prepare_data
from podium.system.exposition import read_samples
from podium.training.import_model import ModelSource

pytestmark = pytest.mark.whole

Typed = Callable[..., Any]
PLANS = ("basic", 'say "plus"', "pro")
COLUMNS = ("age", "plan")


def customers(
    count: int, seed: int, *, older: float = 0.0, unknown: bool = False
) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    ages, plans = (
        draw.normal(40 + older, 8, count).round(1),
        draw.choice(PLANS, count, p=[0.6, 0.3, 0.1]),
    )
    return [
        {
            "age": float(age),
            "plan": "team" if unknown else str(plan),
            "left": "yes" if age > 44 else "no",
        }
        for age, plan in zip(ages, plans, strict=True)
    ]


def write_csv(file: Path, rows: list[dict[str, Any]], columns: tuple[str, ...] = COLUMNS) -> Path:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return file


def leaver(classes: tuple[str, ...], *, at: float = 44) -> bytes:
    """A model that says who leaves by age alone."""
    sign = 1.0 if classes == ("no", "yes") else -1.0
    weights = numpy_helper.from_array(np.array([[-sign, sign], [0, 0]], np.float32), "weights")
    more = numpy_helper.from_array(np.array([at * sign, -at * sign], np.float32), "more")
    nodes = [
        helper.make_node("MatMul", ["table", "weights"], ["product"]),
        helper.make_node("Add", ["product", "more"], ["logits"]),
    ]
    return save(nodes, {"table": (TensorProto.FLOAT, ["n", 2])}, "logits", 2, weights, more)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("customers")
    write_csv(folder / "customers.csv", customers(4000, 1), (*COLUMNS, "left"))
    prepare_data(
        DataSettings(dataset=f"table:{folder / 'customers.csv'}", target="left"), folder / "data"
    )
    return folder / "data"


@pytest.fixture
def churn(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """Two versions of a model, the first of them champion."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    model = open_registry().model("churn")
    for version, at in (("v1", 44), ("v2", 30)):
        place = tmp_path / version
        place.mkdir()
        (place / "model.onnx").write_bytes(leaver(artifact.describe(data).classes, at=at))
        ModelSource(uri=str(place), data=str(data)).upload(model, version)
    model.set_champion("v1", {}, expect=None)
    return model


def ask(server: Running, rows: list[dict[str, Any]], step: int = 100) -> None:
    for start in range(0, len(rows), step):
        body = {
            "rows": [{name: row[name] for name in COLUMNS} for row in rows[start : start + step]]
        }
        assert server.http.post("/v2/models/churn/predict", json=body).status_code == 200


def bins(page: str, name: str, version: str = "v1") -> dict[str, float]:
    samples = read_samples(page, "podium_serve_bin_items_total")
    return {
        labels["bin"]: count
        for labels, count in samples
        if (labels["name"], labels["version"]) == (name, version)
    }


def told(typed: Typed, *words: str) -> tuple[int, dict[str, Any]]:
    done = typed("models", "drift", "churn", *words, "--json")
    return done.returncode, json.loads(done.stdout)


def test_the_profile_is_a_file_of_the_version(churn: Model, data: Path) -> None:
    version = churn.version("v1")
    assert "profile.json" in version.files
    profile = version.opened.profile
    assert profile
    age, plan = profile.inputs["table"].bins
    count = artifact.describe(data).parts["train"].count
    assert (sum(age.counts), sum(plan.counts)) == (count, count)
    assert set(plan.labels) == {*PLANS, "(missing)", "(unknown)", "(other)"}
    said = dict(zip(profile.predictions[0].labels, profile.predictions[0].counts, strict=True))
    predicted = np.load(
        version.fetch(data.parent / f"v{np.random.randint(1 << 30)}") / "predictions.npy"
    ).argmax(1)
    assert said == {
        **dict(zip(version.facts.dataset.classes, np.bincount(predicted).tolist(), strict=True)),
        "(other)": 0,
    }


def test_requests_of_all_kinds_are_counted_alike(churn: Model, tmp_path: Path) -> None:
    rows = customers(300, 5)
    with serving("churn", "--watch") as server:
        ask(server, rows)
        by_rows = server.http.get("/metrics").text
        ages = [row["age"] for row in rows]
        body = {
            "inputs": [tensor(np.array([[age, 0] for age in ages], np.float32), "table", "FP32")]
        }
        assert server.infer("churn", body).status_code == 200
        both = server.http.get("/metrics").text
    assert sum(bins(by_rows, "age").values()) == 300
    assert bins(both, "age") == {name: 2 * count for name, count in bins(by_rows, "age").items()}
    assert bins(by_rows, "plan")['say "plus"'] == sum(row["plan"] == PLANS[1] for row in rows)
    assert bins(by_rows, "class")["yes"] == sum(age > 44 for age in ages)
    assert "40.5" not in re.sub(r'bin="[^"]*"', "", by_rows)


def test_nothing_is_counted_unless_asked_for(churn: Model) -> None:
    with serving("churn") as server:
        ask(server, customers(10, 5))
        assert "podium_serve_bin_items_total" not in server.http.get("/metrics").text


def test_requests_like_the_training_part_are_no_drift(churn: Model, typed: Typed) -> None:
    with serving("churn", "--watch") as server:
        ask(server, customers(1000, 17))
        code, said = told(typed, "--metrics", f"{server.url}/metrics", "--fail-over", "0.2")
    assert (code, said["items"]) == (0, 1000)
    assert {shift["verdict"] for shift in said["shifts"]} == {"same"}
    assert all(shift["psi"] < shift["chance"] < 0.2 for shift in said["shifts"])


def test_a_shift_is_found_where_it_is(churn: Model, typed: Typed) -> None:
    with serving("churn", "--watch") as server:
        ask(server, customers(1000, 17, older=8))
        code, said = told(typed, "--metrics", f"{server.url}/metrics", "--fail-over", "0.2")
        assert told(typed, "--metrics", f"{server.url}/metrics")[0] == 0
    verdicts = {shift["name"]: shift for shift in said["shifts"]}
    assert code == 3
    assert {name: shift["verdict"] for name, shift in verdicts.items()} == {
        "class": "drift",
        "age": "drift",
        "plan": "same",
    }
    assert verdicts["age"]["ks"] == pytest.approx(0.38, abs=0.05), (
        "of two normals a standard deviation apart"
    )
    assert verdicts["plan"]["ks"] is None


@pytest.fixture
def dated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A model whose rows of 2025 have a date, and the rows of other days."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))

    def rows(first: str, days: int, missing: int = 0) -> Path:
        people = customers(1000, days)
        for at, row in enumerate(people):
            day = np.datetime64(first) + np.timedelta64(at * days // 1000, "D")
            row["joined"] = "" if at < missing else str(day)
        return write_csv(tmp_path / f"{first}.csv", people, ("age", "joined", "left"))

    file = rows("2025-01-01", 360)
    prepare_data(DataSettings(dataset=f"table:{file}", target="left"), tmp_path / "dated")
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1/model.onnx").write_bytes(leaver(artifact.describe(tmp_path / "dated").classes))
    model = open_registry().model("churn")
    ModelSource(uri=str(tmp_path / "v1"), data=str(tmp_path / "dated")).upload(model, "v1")
    model.set_champion("v1", {}, expect=None)
    return rows


@pytest.mark.parametrize(
    ("first", "days", "missing", "verdict"),
    [
        ("2026-01-02", 30, 0, "later"),
        ("2025-10-01", 180, 0, "later"),
        ("2024-01-01", 360, 0, "drift"),
        ("2026-01-03", 30, 600, "drift"),
        ("2025-01-01", 360, 0, "same"),
    ],
)
def test_a_date_that_went_on_is_no_drift(
    dated: Callable[..., Path], typed: Typed, first: str, days: int, missing: int, verdict: str
) -> None:
    code, said = told(typed, "--data", str(dated(first, days, missing)), "--fail-over", "0.2")
    assert {shift["name"]: shift["verdict"] for shift in said["shifts"]}["joined"] == verdict
    assert code == (3 if verdict == "drift" else 0)


def test_few_items_are_never_drift(churn: Model, typed: Typed) -> None:
    with serving("churn", "--watch") as server:
        ask(server, customers(40, 17, older=30))
        where = f"{server.url}/metrics"
        code, said = told(typed, "--metrics", where, "--fail-over", "0.2")
        done = typed("models", "drift", "churn", "--metrics", where, "--fail-over", "0.2")
    assert code == done.returncode == 0
    assert {shift["verdict"] for shift in said["shifts"]} == {"too few"}
    assert "40 items are too few to judge: at least 200 (--least)" in done.stderr


def test_a_version_that_is_served_needs_its_store_no_more(churn: Model, tmp_path: Path) -> None:
    with serving("churn") as server:
        (tmp_path / "store").rename(tmp_path / "away")
        rows = [{"age": age, "plan": "basic"} for age in (40, 900, 900, 900)]
        answer = server.http.post("/v2/models/churn/predict", json={"rows": rows})
    assert answer.status_code == 200, answer.text
    assert json.loads(answer.headers["podium-unknown-values"]) == {"age": 3}
    assert not any("warning" in line for line in server.said), server.said


def test_versions_are_told_apart_when_the_champion_changes(
    churn: Model, typed: Typed, tmp_path: Path
) -> None:
    with serving("churn", "--watch", "--follow", "0.1") as server:
        ask(server, customers(400, 3))
        churn.promote("v2")
        while server.http.get("/v2/models/churn").json()["versions"] != ["v2"]:
            pass
        done = typed("models", "drift", "churn@v2", "--metrics", f"{server.url}/metrics")
        assert "0 items are too few" in done.stderr
        ask(server, customers(300, 4, older=20))
        page = server.http.get("/metrics").text
        assert (sum(bins(page, "age").values()), sum(bins(page, "age", "v2").values())) == (
            400,
            300,
        )
        words = ("--metrics", f"{server.url}/metrics", "--since", str(tmp_path / "look.json"))
        code, said = told(typed, *words, "--fail-over", "0.2")
        ask(server, customers(200, 5))
        later = told(typed, *words)[1]
    assert (code, said["version"], said["items"]) == (3, "v2", 300)
    assert said["notes"] == ["items that other versions answered are left out: 400 of v1"]
    assert (later["items"], later["notes"]) == (200, []), "v1 has answered nothing since"


def test_the_last_four_versions_keep_their_counts(churn: Model, data: Path, tmp_path: Path) -> None:
    for version in ("v3", "v4", "v5"):
        ModelSource(uri=str(tmp_path / "v1"), data=str(data)).upload(churn, version)
    (served,) = find_models(["churn"], None, share=1.0)

    async def follow(*versions: str) -> None:
        for version in versions:
            churn.promote(version)
            await served.follow()
            assert served.now.version == version

    async def follow_all() -> None:
        await follow("v2", "v3", "v4", "v5")
        assert list(served.watches) == ["v2", "v3", "v4", "v5"]
        before = served.watches["v2"]
        await follow("v2")
        assert list(served.watches) == ["v3", "v4", "v5", "v2"]
        assert served.watches["v2"] is before, "a version that is back counts on"
        await served.now.close()

    served.open()
    asyncio.run(follow_all())


def test_only_what_came_since_the_last_look_is_judged(
    churn: Model, typed: Typed, tmp_path: Path
) -> None:
    words = ["--since", str(tmp_path / "look.json"), "--fail-over", "0.2", "--metrics"]
    with serving("churn", "--watch") as server:
        ask(server, customers(3000, 3))
        assert told(typed, *words, f"{server.url}/metrics")[1]["items"] == 3000
        ask(server, customers(100, 4, older=20))
        assert told(typed, *words, f"{server.url}/metrics")[1]["items"] == 100, (
            "too few: the next look sees them again"
        )
        ask(server, customers(200, 4, older=20))
        code, said = told(typed, *words, f"{server.url}/metrics")
    assert (code, said["items"]) == (3, 300)
    look, before = tmp_path / "look.json", server.url
    with serving("churn", "--watch") as server:
        look.write_text(
            look.read_text().replace(before, server.url)
        )  # as if it had started again on its port
        ask(server, customers(250, 4))
        code, said = told(typed, *words, f"{server.url}/metrics")
    assert (code, said["items"]) == (0, 250)
    assert "has restarted since the last time" in said["notes"][0]


def test_servers_are_added_up(churn: Model, typed: Typed, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token")
    words = ("churn", "--watch", "--token-file", token)
    with serving(*words) as first, serving(*words) as second:
        for server, rows in ((first, customers(150, 3)), (second, customers(150, 4))):
            server.http.headers["authorization"] = "Bearer a-token"
            ask(server, rows)
        urls = [
            word for server in (first, second) for word in ("--metrics", f"{server.url}/metrics")
        ]
        assert told(typed, *urls, "--token-file", str(token))[1]["items"] == 300
        assert "cannot be read: Unauthorized" in typed("models", "drift", "churn", *urls).stderr


def test_recent_data_are_compared_by_the_names_of_columns(
    churn: Model, typed: Typed, tmp_path: Path
) -> None:
    rows = customers(1000, 21, unknown=True)
    same = write_csv(tmp_path / "swapped.csv", rows, ("plan", "age"))
    code, said = told(typed, "--data", str(same), "--fail-over", "0.2")
    assert code == 3
    assert {shift["name"]: shift["verdict"] for shift in said["shifts"]} == {
        "class": "same",
        "age": "same",
        "plan": "drift",
    }
    plan = next(shift for shift in said["shifts"] if shift["name"] == "plan")
    assert (plan["bin"], plan["share"][1]) == ("(unknown)", 1)
    with same.open("a") as stream:
        stream.write("pro,abc\n")
    assert "1 items could not be read" in told(typed, "--data", str(same))[1]["notes"][0]


def test_the_table_says_what_the_numbers_mean(churn: Model, typed: Typed, tmp_path: Path) -> None:
    done = typed(
        "models",
        "drift",
        "churn",
        "--data",
        str(write_csv(tmp_path / "new.csv", customers(500, 9, older=9))),
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "churn v1, 500 items seen"
    assert lines[1].split() == ["WHAT", "VERDICT", "PSI", "CHANCE", "KS", "MOST", "CHANGED"]
    assert lines[2].split()[:3] == ["predicted", "class", "drift"]
    assert "above 0.2 is drift" in lines[-1]
    assert max(map(len, lines)) <= 80


REFUSED: dict[str, tuple[list[str], str]] = {
    "neither": ([], "either a server or recent data"),
    "both": (
        ["--data", "x.csv", "--metrics", "http://localhost/metrics"],
        "either a server or recent data",
    ),
    "a server that is not there": (["--metrics", "http://127.0.0.1:9/metrics"], "cannot be read"),
    "an address that cannot be meant": (["--metrics", "http://[::1/metrics"], "cannot be read"),
    "a path": (["--metrics", "metrics.txt"], "takes the URL of a server's metrics"),
    "since of a file": (["--data", "x.csv", "--since", "last.json"], "is about servers"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_compared_is_said(what: str, churn: Model, typed: Typed) -> None:
    words, sentence = REFUSED[what]
    done = typed("models", "drift", "churn", *words)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr


def test_a_version_without_a_profile_is_served_unwatched(churn: Model, typed: Typed) -> None:
    churn.upload({"model.onnx": leaver(("no", "yes"))}, {"run_id": "old"})
    with serving("churn@old", "--watch") as server:
        assert any("has no profile.json" in line for line in server.said)
        assert "podium_serve_bin" not in server.http.get("/metrics").text
        done = typed("models", "drift", "churn@old", "--metrics", f"{server.url}/metrics")
    assert "churn old has no profile.json of its training part" in done.stderr
    with serving("churn@v2", "--watch") as server:
        done = typed("models", "drift", "churn", "--metrics", f"{server.url}/metrics")
    assert "counts no items of churn v1, but of v2" in done.stderr


def test_the_dashboard_asks_for_what_the_server_says(churn: Model) -> None:
    board = json.loads((Path(__file__).parents[2] / "deploy/monitoring/serving.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in board["templating"]["list"]]
    with serving("churn", "--watch") as server:
        ask(server, customers(10, 3))
        server.infer("churn", {"inputs": [tensor(np.zeros((1, 2), np.float32), "table", "FP32")]})
        page = server.http.get("/metrics").text
    said: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(podium_\w+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        said.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    for query in asked:
        for name, selector in re.findall(r"(podium_\w+)(?:\{([^}]*)\})?", query):
            assert set(re.findall(r'(\w+)=~?"', selector)) <= said[name], query
        for labels in re.findall(r"by \(([^)]*)\)", query):
            names = re.findall(r"podium_\w+", query)
            assert set(labels.split(", ")) <= {label for name in names for label in said[name]}, (
                query
            )
    assert {name for query in asked for name in re.findall(r"podium_\w+", query)} >= {
        "podium_serve_bin_items_total", "podium_serve_bin_training_share", "podium_serve_seconds_bucket",
    }  # fmt: skip


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Run a Prometheus that reads a server each second; yield what asks it."""
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: podium, static_configs: [{{targets: ['{target.removeprefix('http://')}']}}]}}]\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", f"--web.listen-address={address}"],
        cwd=folder, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def query(expression: str) -> list[dict[str, Any]]:
        try:
            answer = httpx.get(
                f"http://{address}/api/v1/query", params={"query": expression}, timeout=30
            ).json()
        except httpx.TransportError:
            return []  # it is starting
        assert answer["status"] == "success", (expression, answer)
        return list(answer["data"]["result"])

    try:
        yield query
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus (Debian's package prometheus)"
)
def test_a_prometheus_draws_the_drift_that_the_command_finds(
    churn: Model, typed: Typed, tmp_path: Path
) -> None:
    board = json.loads((Path(__file__).parents[2] / "deploy/monitoring/serving.json").read_text())
    with serving("churn", "--watch") as server, prometheus(server.url, tmp_path) as query:
        until = time.monotonic() + 60
        while not query('podium_serve_bin_training_share{name="age"}'):
            assert time.monotonic() < until
            time.sleep(0.1)
        for seed in range(4):
            ask(server, customers(500, seed, older=5))
            time.sleep(1)
        while not query("podium_serve_watched_items_total == 2000") or not query(
            "rate(podium_serve_seconds_sum[5m])"
        ):
            assert time.monotonic() < until
            time.sleep(0.1)
        for panel in board["panels"]:
            for target in panel["targets"]:
                asked = target["expr"]
                for name, value in {"model": "churn", "input": "age", "window": "1h"}.items():
                    asked = asked.replace(f"${name}", value)
                shown = query(asked)
                assert shown or "failures" in asked, (panel["title"], asked)
                if panel["title"] == "PSI":
                    drawn = {one["metric"]["name"]: float(one["value"][1]) for one in shown}
        said = told(typed, "--metrics", f"{server.url}/metrics")[1]
    found = {shift["name"]: shift["psi"] for shift in said["shifts"]}
    assert found["age"] > 0.2 > found["plan"]
    assert drawn == pytest.approx(found, rel=0.02, abs=0.002)


COMMAND = """
import argparse
import numpy as np
parser = argparse.ArgumentParser()
for name in ("model", "inputs", "output"):
    parser.add_argument("--" + name)
given = parser.parse_args()
older = (np.load(given.inputs + "/table.npy")[:, 0] > 44).astype(int)
np.save(given.output, np.eye(2)[older if {yes} else 1 - older])
"""


def test_a_predict_command_is_watched_too(churn: Model, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "command"
    place.mkdir()
    (place / "predict.py").write_text(
        COMMAND.replace("{yes}", str(artifact.describe(data).classes.index("yes")))
    )
    (place / "model.json").write_text('{"predict": ["python", "predict.py"]}')
    ModelSource(uri=str(place), data=str(data)).upload(churn, "command")
    rows = customers(60, 5)
    with serving("churn@command", "--watch") as server:
        ask(server, rows)
        table = np.array([[row["age"], 0] for row in rows], np.float32)
        assert (
            server.infer("churn", {"inputs": [tensor(table, "table", "FP32")]}).status_code == 200
        )
        page = server.http.get("/metrics").text
    assert bins(page, "class", "command")["yes"] == 2 * sum(row["age"] > 44 for row in rows)
    assert sum(bins(page, "age", "command").values()) == 120


def test_outputs_that_are_not_numbers_are_answered_and_told(churn: Model) -> None:
    with serving("churn", "--watch") as server:
        body = json.dumps({"inputs": [tensor(np.full((3, 2), np.nan), "table", "FP32")]})
        answer = server.http.post("/v2/models/churn/infer", content=body)
        assert answer.status_code == 400
        assert "not finite" in answer.json()["error"]
        page = server.http.get("/metrics").text
    assert 'podium_serve_watch_failures_total{model="churn",version="v1"} 1' in page


def test_a_request_without_rows_is_answered_and_not_counted(churn: Model) -> None:
    with serving("churn", "--watch") as server:
        body = json.dumps({"inputs": [tensor(np.empty((0, 2)), "table", "FP32")]})
        answer = server.http.post("/v2/models/churn/infer", content=body)
        assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [])
        page = server.http.get("/metrics").text
    assert 'podium_serve_watch_failures_total{model="churn",version="v1"} 0' in page


def test_requests_are_counted_once_by_status() -> None:
    figures = Figures()
    for status in (200, 200, 504):
        figures.note("churn", status, 0.01)
    page = figures.page([], 0, {})
    counts = dict(re.findall(r'podium_serve_requests_total\{[^}]*status="(\d+)"\} (\S+)', page))
    assert {status: float(count) for status, count in counts.items()} == {"200": 2, "504": 1}


def test_a_directorys_odd_name_breaks_no_metric() -> None:
    figures = Figures()
    figures.note('a "b"', 200, 0.01)
    page = figures.page([], 0, {})
    for name in ("seconds_count", "requests_total"):
        ((labels, count),) = read_samples(page, f"podium_serve_{name}")
        assert (labels["model"], count) == ('a "b"', 1)


def test_bytes_behind_the_last_tensor_are_refused() -> None:
    tensor = {
        "name": "x",
        "shape": [1, 1],
        "datatype": "FP32",
        "parameters": {"binary_data_size": 4},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    assert InferRequest.read(head + bytes(4), str(len(head)).encode()).inputs["x"].shape == (1, 1)
    with pytest.raises(InvalidInput, match="2 bytes are left after the last tensor"):
        InferRequest.read(head + bytes(6), str(len(head)).encode())


def test_a_profile_that_was_out_of_reach_is_read_later(
    churn: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = churn.version("champion")
    predictor, get = version.open(), version.storage.get

    def away(key: str, **limits: Any) -> bytes:
        raise Unavailable("the storage does not answer")

    monkeypatch.setattr(version.storage, "get", away)
    with pytest.raises(Unavailable):  # podium serve tells it, and tries again
        predictor.load()
    monkeypatch.setattr(
        version.storage, "get", lambda key: away(key) if "profile" in key else get(key)
    )
    with pytest.raises(Unavailable):
        predictor.load()
    monkeypatch.setattr(version.storage, "get", get)
    predictor.load()
    predictor.predict([{"age": 900, "plan": "basic"}] * 4)
    assert "column age: 4 of 4 values lie outside the range" in capsys.readouterr().err
