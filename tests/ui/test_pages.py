"""What the pages of `podium ui` show and change, and for whom."""

import fcntl
import html
import json
import re
import shutil
import socket
import statistics
import threading
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import numpy as np
import pytest
from handmade import TABLE, shapes_model
from pages import running
from PIL import Image
from s3servers import KEYS

import podium
from podium.errors import Failed
from podium.models import Model, open_registry
from podium.models.lineage import Lineage
from podium.runner.record import RunRecord, StepRecord
from podium.serving.announced import servers_of
from podium.ui import app, sources
from podium.ui.app import _MOST_BODY
from podium.ui.sources import _Dashboards, _FollowedRegistry
from podium.ui.sweeps import FollowedSweep

pytestmark = pytest.mark.whole

HEADERS = {"X-Podium-Token": "open-sesame"}

HALVING = """
from kfp import dsl

@dsl.component(install_kfp_package=False)
def halve(number: float) -> float:
    print("<script>alert(1)</script> halves")
    return number / 2

@dsl.pipeline
def halving(number: float) -> float:
    return halve(number=number).output
"""


def text(client: httpx.Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def events(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    """Return all events of a page that will not change any more."""
    with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as answer:
        lines = list(answer.iter_lines())
    assert "event: over" in lines
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def test_who_does_not_know_the_token_sees_and_changes_nothing(
    models: None, stranger: httpx.Client
) -> None:
    for path in ("/", "/models/shapes", "/static/ui.js", "/runs", "/?token=guessed"):
        assert stranger.get(path, follow_redirects=False).status_code == 401
    assert stranger.post("/models/shapes/rollback", json={}).status_code == 403
    assert "shapes" not in stranger.get("/models").text


def test_the_address_lets_in_and_its_token_leaves_the_address(stranger: httpx.Client) -> None:
    answer = stranger.get("/models?token=open-sesame&x=1", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/models?x=1#token=open-sesame",
    )
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_cookie_alone_changes_nothing(models: None, visitor: httpx.Client) -> None:
    assert "open-sesame" not in "".join(visitor.cookies.values())
    assert "open-sesame" not in visitor.get("/models/shapes").text, (
        "who has the cookie sees the page, too"
    )
    for headers in ({}, {"X-Podium-Token": next(iter(visitor.cookies.values()))}):
        answer = visitor.post(
            "/models/shapes/promote", json={"version": "v2", "rule": ""}, headers=headers
        )
        assert answer.status_code == 403
    assert open_registry(None)["shapes"].champion.version == "v1"


def test_a_store_that_is_silent_holds_up_no_end(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        with (
            running("--storage", "s3://models") as address,  # which waits 60 s for its end
            httpx.Client(follow_redirects=True, timeout=3) as client,
            pytest.raises(httpx.ReadTimeout),
        ):
            client.get(address)


def test_pages_may_load_nothing_from_elsewhere(visitor: httpx.Client) -> None:
    answer = visitor.get("/")
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert re.findall(r'(?:src|href)="(?!/|data:)[^"]*"', answer.text) == []


def test_an_empty_home_says_how_to_begin(visitor: httpx.Client, home: Path) -> None:
    page = text(visitor, "/")
    assert "Nothing runs" in page
    assert "podium run " in page
    assert "There are none" in text(visitor, "/sweeps")
    assert not (home / "cluster").exists(), "looking makes nothing"


def test_a_run_shows_its_steps_log_and_outputs(visitor: httpx.Client) -> None:
    Path("halving.py").write_text(HALVING)
    run = podium.run("halving.py", number=3.0)
    run.note, run.tags = "half <b>of</b> it", ("baseline", "kept")
    page = text(visitor, f"/runs/{run.id}")
    raw = re.search(r"<details><summary>Raw.*?</details>", page, re.S)
    assert raw
    assert raw[0].count("Got executor_input") == 1
    assert re.search(r'<li class="succeeded shown">.*?<b>halve</b>', page, re.S)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; halves" in page
    assert "<script>alert" not in page
    assert re.findall(r'<th scope="row">(.*?Output)</th><td class="all">1.5', page) == [
        "halve  Output",
        "Output",
    ]
    assert '<p class="note">half &lt;b&gt;of&lt;/b&gt; it</p>' in page
    for path in ("report", "report.html"):  # reports link to each other by the names of their files
        assert "stores no version in the registry" in visitor.get(f"/runs/{run.id}/{path}").text
    assert '<span class="state">baseline</span><span class="state">kept</span>' in page
    assert f'<a href="/runs/{run.id}">' in text(visitor, "/runs")
    assert "halves" in text(visitor, f"/runs/{run.id}/logs/halve")
    (event,) = events(visitor, f"/runs/{run.id}")
    assert event["html"].strip() in page
    assert "halves" in text(visitor, f"/runs/{run.id}?step=halve")
    assert "has no step &#39;double&#39;" in visitor.get(f"/runs/{run.id}?step=double").text


def test_a_parameter_of_several_lines_keeps_them(visitor: httpx.Client) -> None:
    pipeline = HALVING.replace(
        "number: float) -> float:\n    return halve",
        "number: float, sweep: str = '') -> float:\n    return halve",
    )
    Path("halving.py").write_text(pipeline)
    run = podium.run("halving.py", number=3.0, sweep="spec:\n  <parameters>: []\n")
    page = text(visitor, f"/runs/{run.id}")
    shown = (
        '<summary>spec: (2 lines)</summary><pre tabindex="0">spec:\n  &lt;parameters&gt;: []</pre>'
    )
    assert shown in page


def test_a_run_shows_what_its_training_reports(visitor: httpx.Client, home: Path) -> None:
    folder = home / "runs" / "20261127-010000-aaaa"
    (folder / "logs").mkdir(parents=True)
    steps = {"train-distributed": StepRecord(title="Train", state="running")}
    log = folder / "logs" / "train-distributed.log"

    def figures(query: str) -> dict[str, Any]:
        page = text(visitor, f"/runs/{folder.name}?{query}")  # of its own: not the look of just now
        found = re.search(r'id="figures">(.*?)</script>', page, re.S)
        assert found
        return dict(json.loads(found[1]))

    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it runs
        RunRecord(
            id=folder.name, pipeline="train_and_promote", directory=folder, steps=steps
        ).save()
        log.write_text("podium | epoch 1: accuracy=0.5 loss=2\n")
        assert figures("a") == {}, "one point is no curve"
        log.write_text(log.read_text() + "train_loss=9\npodium | epoch 2: accuracy=0.75 loss=1\n")
        (curve,) = figures("b")["curves"]["data"]
    assert (curve["name"], curve["y"]) == ("Train", [0.5, 0.75])


def test_sweeps_and_trials_carry_notes(
    visitor: httpx.Client, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment())
    path = f"/sweeps/{sweep.name}"
    trial = f"{path}/trials/{sweep.best.name}"
    for place in (path, trial):
        sent = {"note": "warmup <b>too</b> short\x1b[31m "}
        answer = visitor.post(f"{place}/note", json=sent, headers=HEADERS)
        assert answer.json()["said"].endswith("has a note")
        assert '<p class="note">warmup &lt;b&gt;too&lt;/b&gt; short</p>' in text(visitor, place)
    assert sweep.note == "warmup <b>too</b> short"
    sweep.note = ""
    assert 'class="note"' not in text(visitor, f"{path}?new")
    long = visitor.post(f"{path}/note", json={"note": 10_001 * "x"}, headers=HEADERS)
    assert "a note has at most 10000 characters" in long.json()["error"]


def test_what_is_not_there_is_said(models: None, visitor: httpx.Client) -> None:
    for path in (
        "/runs/nothing",
        "/sweeps/nothing",
        "/models/nothing",
        "/models/shapes/versions/v9",
        "/nowhere",
    ):
        answer = visitor.get(path)
        assert answer.status_code == 404, path
        assert "Not found" in answer.text


def test_what_this_machine_refuses_is_said(
    home: Path, visitor: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    for place in ("runs/mine", "cluster/experiments/parabola"):
        (home / place / "run.json").mkdir(parents=True)
        (home / place / "object.json").mkdir()
    answers = {
        path: visitor.get(path) for path in ("/?new", "/runs", "/runs/mine", "/sweeps/parabola")
    }
    said = {path: (answer.status_code, "Is a directory" in answer.text) for path, answer in answers.items()}  # fmt: skip
    assert said == {
        "/?new": (200, False),
        "/runs": (200, False),
        "/runs/mine": (500, True),
        "/sweeps/parabola": (500, True),
    }
    assert "run mine is left out: " in caplog.text
    assert "Experiment parabola is left out: " in caplog.text
    posted = visitor.post("/runs/mine/stop", headers=HEADERS, json={})
    assert (posted.status_code, "Is a directory" in posted.json()["error"]) == (500, True)
    with visitor.stream("GET", "/runs/mine", headers={"Accept": "text/event-stream"}) as answer:
        assert not list(answer.iter_lines()), "the stream ends, and the browser asks again"


def test_a_sweep_shows_its_leaderboard_and_figures(
    visitor: httpx.Client, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment())
    page = text(visitor, f"/sweeps/{sweep.name}")
    best = sweep.best.name
    assert re.search(
        rf'<tr data-number="\d" class="best"><td class="n">1</td>.*?{best}', page, re.S
    )
    assert sorted(re.findall(r'<tr data-number="(\d+)"', page)) == ["1", "2", "3"]
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
    assert {"history", "coordinates", "curves"} <= figures.keys()
    curve = figures["curves"]["data"][-1]
    assert (curve["name"], curve["y"]) == (best, [1.0, 0.5, pytest.approx(1 / 3)])
    trial = text(visitor, f"/sweeps/{sweep.name}/trials/{best}")
    assert "loss=0.5" in trial
    assert "loss=0.5" in text(visitor, f"/sweeps/{sweep.name}/trials/{best}/log")
    report = visitor.get(f"/sweeps/{sweep.name}/report")
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts")


def test_a_running_sweep_sends_what_its_trials_print(
    visitor: httpx.Client,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "FAR_LOOK_SECONDS", 600.0)  # it is of this machine
    sweep = begin(experiment(seconds=1.5))
    seen: list[int] = []
    with visitor.stream(
        "GET", f"/sweeps/{sweep.name}", headers={"Accept": "text/event-stream"}
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                curves = json.loads(line.removeprefix("data: "))["figures"].get(
                    "curves", {"data": []}
                )
                seen.append(max((len(trace["y"]) for trace in curves["data"]), default=0))
    assert {2, 3} <= set(seen), "curves grow while their trials run"
    assert sweep.status == "Succeeded"


def test_importance_follows_where_there_was_no_result_yet(home: Path) -> None:
    program = f"""
import pathlib, sys, time
x, y = (float(word.partition("=")[2]) for word in sys.argv[1:])
while not pathlib.Path({str(home / "go")!r}).exists():
    time.sleep(0.1)
print(f"loss={{x + y / 2}}")
"""
    Path("train.py").write_text(program)
    space = {"x": [0.0, 0.3, 0.6, 0.9], "y": [0.0, 0.3, 0.6, 0.9]}
    with podium.tune(
        "train.py", space, objective="min:loss", algorithm="grid", trials=16, wait=False
    ) as sweep:
        followed = FollowedSweep(sweep.cluster, sweep.name)
        assert "importance" not in followed.view("/").figures
        (home / "go").touch()
        sweep.wait()
        assert "importance" in followed.view("/").figures


def test_a_sweep_without_trials_says_what_it_searches(
    experiment: Callable[..., dict[str, Any]],
) -> None:
    sweep = podium.sweep(experiment())
    for trial in sweep.cluster.trials(sweep.name):  # as it was before they began
        sweep.cluster.delete("Trial", trial.name)
    page = FollowedSweep(sweep.cluster, sweep.name).view("/").html()
    assert "minimize loss, grid search over x, 3 trials at most" in page


def test_a_sweep_begun_anew_has_its_own_figures(
    experiment: Callable[..., dict[str, Any]], tmp_path: Path, home: Path
) -> None:
    manifest = experiment()
    sweep = podium.sweep(manifest)
    followed = FollowedSweep(sweep.cluster, sweep.name)
    followed.view("/")
    before = followed.view("/").figures["history"]  # importance comes with the second look
    sweep.cluster.delete("Experiment", sweep.name)
    program = tmp_path / "program.py"
    program.write_text(program.read_text().replace("loss={", "loss={7 + "))
    again = podium.sweep(manifest)
    assert (again.name, again.best.value) == (sweep.name, pytest.approx(7 + 1 / 3))
    assert followed.view("/").figures["history"] != before


def test_a_sweep_is_stopped_and_goes_on(
    visitor: httpx.Client,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    sweep = begin(experiment(seconds=0.5, parallelTrialCount=1))
    path = f"/sweeps/{sweep.name}"
    while sweep.status != "Running":
        time.sleep(0.1)
    assert visitor.post(f"{path}/stop", json={}, headers=HEADERS).json() == {
        "said": "sweep parabola is being stopped"
    }
    while sweep.status != "Stopped":
        time.sleep(0.1)
    sweep.close()
    assert "Go on" in text(visitor, path)
    assert visitor.post(f"{path}/resume", json={}, headers=HEADERS).json() == {
        "said": "sweep parabola continues"
    }
    end = time.monotonic() + 60
    while podium.open_sweep(sweep.name).status != "Succeeded" and time.monotonic() < end:
        time.sleep(0.2)
    assert len(podium.open_sweep(sweep.name).results) == 3


def test_a_study_is_analysed_as_a_copy(
    visitor: httpx.Client, experiment: Callable[..., dict[str, Any]], home: Path
) -> None:
    sweep = podium.sweep(experiment())
    journal = home / "cluster" / "experiments" / sweep.name / "optuna.journal"
    before = journal.read_bytes()
    said = visitor.post(f"/sweeps/{sweep.name}/analyse", json={}, headers=HEADERS).json()["said"]
    found = re.search(r"http://127.0.0.1:\d+/", said)
    assert found, said
    studies = httpx.get(f"{found[0]}api/studies", timeout=60).json()["study_summaries"]
    assert [study["study_name"] for study in studies] == [sweep.name]
    assert (
        httpx.delete(f"{found[0]}api/studies/{studies[0]['study_id']}", timeout=60).status_code
        == 204
    )
    assert journal.read_bytes() == before


def test_a_study_is_analysed_by_one_dashboard(experiment: Callable[..., dict[str, Any]]) -> None:
    sweep = podium.sweep(experiment())
    directory = sweep.cluster.directory("Experiment", sweep.name)
    assert directory
    dashboards = _Dashboards()
    try:
        first, second = dashboards.open(directory), dashboards.open(directory)
        assert httpx.get(f"{second}api/studies", timeout=60).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{first}api/studies", timeout=60)
    finally:
        dashboards.close()


def test_a_trial_is_stopped_and_another_begun(
    visitor: httpx.Client,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    sweep = begin(experiment(seconds=20.0, maxTrialCount=1))
    while not (names := [trial.name for trial in sweep.results if trial.phase == "Running"]):
        time.sleep(0.1)
    path = f"/sweeps/{sweep.name}"
    page = text(visitor, f"{path}/trials/{names[0]}")
    assert "Stop trial" in page
    assert "A person gave its values" not in page
    said = visitor.post(f"{path}/trials/{names[0]}/stop", json={}, headers=HEADERS).json()
    assert said == {"said": f"trial {names[0]} is being stopped"}
    answer = visitor.post(f"{path}/add", json={"x": "7"}, headers=HEADERS)
    assert "x=7 lies outside of its space" in answer.json()["error"]
    said = visitor.post(f"{path}/add", json={"x": "0.5"}, headers=HEADERS).json()["said"]
    added = re.fullmatch(r"trial (\S+) starts", said)
    assert added
    while added[1] not in [trial.name for trial in sweep.results]:
        time.sleep(0.1)
    assert "A person gave its values" in text(visitor, f"{path}/trials/{added[1]}")
    sweep.close()
    answer = visitor.post(f"{path}/add", json={"x": "7"}, headers=HEADERS)
    assert "x=7 lies outside of its space" in answer.json()["error"]


def test_a_sweep_that_cannot_go_on_says_why(
    visitor: httpx.Client, experiment: Callable[..., dict[str, Any]]
) -> None:
    with pytest.raises(Failed):
        podium.sweep(experiment(seconds="never", maxFailedTrialCount=1))
    answer = visitor.post("/sweeps/parabola/resume", json={}, headers=HEADERS)
    assert (answer.status_code, "hint:" in answer.json()["error"]) == (500, True)


def test_a_sweep_without_a_result_has_failed_and_says_why(
    visitor: httpx.Client,
    experiment: Callable[..., dict[str, Any]],
    typed: Callable[..., Any],
) -> None:
    sweep = podium.sweep(experiment(seconds="never"))
    cause = "ValueError: could not convert string to float: 'never'"
    assert sweep.status == "Succeeded", "it has had its trials"
    page = text(visitor, f"/sweeps/{sweep.name}")
    assert '<span class="state failed">failed</span></h1>' in page
    assert f"No trial has a result. {sweep.name}-" in page
    assert cause in html.unescape(page)
    assert "Go on" not in page
    assert cause in html.unescape(text(visitor, "/sweeps"))
    assert "<b>failed</b>" in sweep.report().read_text()
    for words in (("runs", "list", "--json"), ("experiment", "status", sweep.name)):
        said = typed(*words).stdout
        assert cause in said
        assert "succeeded" not in said.lower()


def test_a_sweep_that_has_ended_does_not_go_on(
    visitor: httpx.Client, experiment: Callable[..., dict[str, Any]]
) -> None:
    podium.sweep(experiment(maxTrialCount=1))
    answer = visitor.post("/sweeps/parabola/resume", json={}, headers=HEADERS)
    assert answer.status_code == 400
    assert "sweep parabola has ended: Experiment has succeeded because" in answer.json()["error"]


def test_a_host_header_does_not_pass_the_token_by(stranger: httpx.Client) -> None:
    for host in ("x/static/", "x/static/?", "x/v2/health/#"):
        for path in ("/", "/models", "/runs"):
            assert stranger.get(path, headers={"host": host}).status_code == 401
        assert (
            stranger.post("/models/x/rollback", headers={"host": host}, json={}).status_code == 403
        )


def test_a_malformed_post_is_a_sentence(models: None, visitor: httpx.Client) -> None:
    for body in (
        b"{",
        b"[" * 100_000,
        b'{"version":"\\ud800"}',
        b"\xff",
        b"5",
        b'{"version":' + b"9" * 5000 + b"}",
        b'{"version":"v2","rule":{"a":1}}',
    ):
        answer = visitor.post("/models/shapes/promote", content=body, headers=HEADERS)
        assert (answer.status_code, bool(answer.json()["error"])) == (400, True), body[:20]
        tried = {**HEADERS, "content-type": "application/json"}
        assert visitor.post("/models/rows/try", content=body, headers=tried).status_code == 400, (
            body[:20]
        )


def test_a_model_shows_its_champion_and_why(models: None, visitor: httpx.Client) -> None:
    page = text(visitor, "/models/shapes")
    assert "promotion: the first" in page
    assert 'href="/models/shapes/versions/v2"' in page
    assert "sha256" in text(visitor, "/models/shapes/versions/v2")
    assert 'href="/models/shapes"' in text(visitor, "/models")


def test_a_run_that_is_not_there_cannot_go_on(home: Path, visitor: httpx.Client) -> None:
    answer = visitor.post("/runs/none/resume", headers=HEADERS, json={})
    assert (answer.status_code, "there is no run 'none'" in answer.text) == (404, True)


def test_metrics_that_are_no_numbers_break_no_page(home: Path, visitor: httpx.Client) -> None:
    model = open_registry(None).model("odd")
    metrics = {"accuracy": 0.5, "by": "hand", "per class": [0.4, 0.6]}
    model.upload({"model.onnx": shapes_model()}, {"metrics": metrics}, version="v1")
    model.set_champion("v1", {}, expect=None)
    for path in ("/models/odd", "/models/odd/versions/v1", "/models/odd/versions/v1/card"):
        assert "0.5000" in text(visitor, path)


def test_the_champion_and_its_reason_are_of_one_look(
    models: None, visitor: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    aliases = Model.aliases

    def promoted_meanwhile(model: Model) -> Any:
        found = aliases(model)
        if found["champion"].version == "v1":
            model.set_champion("v2", {"reason": "the second"}, expect="v1")
        return found

    monkeypatch.setattr(Model, "aliases", promoted_meanwhile)
    page = text(visitor, "/models/shapes")
    assert "the first" in page.partition("<h2>Try it")[0]
    assert 'champion <a href="/models/shapes/versions/v1">' in page


def test_a_version_names_what_it_was_made_from(home: Path, visitor: httpx.Client) -> None:
    metadata = {
        "run_id": "20261127-010000-aaaa",
        "metric": {"name": "accuracy", "maximize": True},
        "metrics": {"f1_macro": 0.4, "accuracy": 0.5},
        "dataset": {"name": "churn", "counts": {"train": 1200, "test": 300}, "classes": ["no"]},
        "origin": {"kind": "trial", "name": "s-1", "experiment": "s"},
        "code": {"install_requirements": False},
        "report": {"classes": [{"name": "no"}, {"name": "yes"}], "confusion": [[5, 1], [2, 9]]},
    }
    model = open_registry(None).model("churn")
    model.upload({"model.onnx": shapes_model()}, metadata)
    version = next(iter(model.versions)).version
    model.set_champion(version, {"reason": "the first"}, expect=None)
    event = Lineage.of(model, model.version("champion")).to_json()
    assert event["inputs"][0]["name"] == "churn"
    assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == version
    assert event["run"]["facets"]["podium"]["name"] == "s-1"
    assert UUID(event["run"]["runId"]).version == 5
    by_hand = [
        Lineage.of(model, model.upload({"model.onnx": shapes_model()}, {}, version=name)).to_json()
        for name in ("by-hand", "by-hand-too")
    ]
    assert len({each["run"]["runId"] for each in (event, *by_hand)}) == 3
    page = text(visitor, f"/models/churn/versions/{version}")
    line = re.findall(r"<b>([\w.]+)</b><span>([^<]+)</span>", page)[:7]
    assert line[:4] == [
        ("data", "churn 1,200 train, 300 test"),
        ("run", "20261127-010000-aaaa"),
        ("sweep", "s"),
        ("trial", "s-1"),
    ]
    assert [title for title, _ in line[4:]] == ["version", "champion", "0.5000"]
    assert 'data-figure="confusion"' in page
    assert re.findall(r'<th scope="row">(accuracy|f1_macro)</th>', page) == ["accuracy", "f1_macro"]
    assert "| f1_macro | 0.4000" in text(visitor, f"/models/churn/versions/{version}/card")
    assert "{&#39;" not in page, "no Python repr"
    assert 'href="/runs/' not in page, "its run is not on this machine"
    folder = home / "runs" / "20261127-010000-aaaa"
    folder.mkdir(parents=True)
    RunRecord(id=folder.name, pipeline="tune_and_promote", directory=folder).save()
    page = text(visitor, f"/models/churn/versions/{version}?new")  # not the look of just now
    assert f'href="/runs/{folder.name}/sweeps/s/trials/s-1"' in page


def test_a_run_links_its_sweep(
    home: Path, visitor: httpx.Client, experiment: Callable[..., dict[str, Any]]
) -> None:
    folder = home / "runs" / "20261127-010000-bbbb"
    folder.mkdir(parents=True)
    record = RunRecord(id=folder.name, pipeline="tune_and_promote", directory=folder)
    record.save()
    path = f"/runs/{record.id}"
    assert f'href="{path}/sweeps/' not in text(visitor, path)
    podium.sweep(experiment(), cluster=record.cluster).close()
    assert f'href="{path}/sweeps/parabola"' in text(visitor, f"{path}?new")
    assert "parabola" in text(visitor, f"{path}/sweeps/parabola")


def test_a_version_is_promoted_and_rolled_back(models: None, visitor: httpx.Client) -> None:
    def post(what: str, **fields: str) -> Any:
        return visitor.post(f"/models/shapes/{what}", json=fields, headers=HEADERS).json()

    assert "Roll back" not in text(visitor, "/models/shapes"), "v1 is the first champion"
    assert ">v1</" in text(visitor, "/models")
    assert post("promote", version="v2", rule="") == {"said": "v2 is champion of shapes"}
    assert ">v2</" in text(visitor, "/models"), "what is known of the registry is read anew"
    assert "Roll back" in text(visitor, "/models/shapes")
    assert open_registry(None)["shapes"].champion.version == "v2"
    assert post("rollback") == {"said": "v1 is champion of shapes again, in place of v2"}
    assert ">v2</" not in text(visitor, "/models")
    assert (
        "has no version 'v9'" in post("promote", version="v9", rule="")["error"]
        or "v9" in post("promote", version="v9", rule="")["error"]
    )
    assert open_registry(None)["shapes"].champion.version == "v1"


def test_a_version_that_waits_is_rejected_on_the_page(models: None, visitor: httpx.Client) -> None:
    model = open_registry(None)["shapes"]
    model.ledger.refuse(
        "v2", "v1", {"rule": "better,approved", "reasons": ["no: waits"], "waiting": True}
    )
    page = text(visitor, "/models/shapes")
    assert 'data-post="/models/shapes/approve"' in page
    assert 'aria-label="reason to reject v2"' in page
    sent = {"version": "v2", "reason": "worse on sevens"}
    answer = visitor.post("/models/shapes/reject", json=sent, headers=HEADERS).json()
    assert answer == {"said": "v2 of shapes is rejected"}
    assert "Waiting for approval" not in text(visitor, "/models/shapes")


def test_the_champion_is_tried(models: None, visitor: httpx.Client) -> None:
    picture, drawn = BytesIO(), np.full((28, 28), 255, np.uint8)
    drawn[2:26, 13:15] = 0
    Image.fromarray(drawn).save(picture, "PNG")
    answer = visitor.post(
        "/models/shapes/try",
        content=picture.getvalue(),
        headers={**HEADERS, "Content-Type": "image/png"},
    )
    assert answer.json()["predictions"][0]["class"] == "tall"
    row = {"rows": [{"x": 3.0, "color": "red"}]}
    assert (
        "class"
        in visitor.post("/models/rows/try", json=row, headers=HEADERS).json()["predictions"][0]
    )
    assert visitor.post("/models/rows/try", content=b"{", headers=HEADERS).status_code == 400
    page = text(visitor, "/models/rows")
    assert re.findall(r'<input name="(\w+)"', page) == ["x", "color"]


def test_a_command_that_hangs_is_ended_when_tried(
    models: None, visitor: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_TRY_SECONDS", 1.0)
    model = open_registry(None)["rows"]
    files: dict[str, Path | bytes] = {
        "model.json": json.dumps({"predict": ["sh", "-c", "sleep 600"]}).encode(),
        "preprocessing.json": json.dumps(TABLE).encode(),
    }
    model.upload(files, {"run_id": "v3"})
    model.set_champion("v3", {"reason": "a command"}, expect="v1")
    row = {"rows": [{"x": 3.0, "color": "red"}]}
    answer = visitor.post("/models/rows/try", json=row, headers=HEADERS)
    assert (answer.status_code, "did not end within 1 s" in answer.json()["error"]) == (500, True)


def test_a_client_that_hangs_up_leaves_no_traceback(
    stranger: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    where = (stranger.base_url.host, stranger.base_url.port)
    head = "POST /models/rows/try HTTP/1.1\r\nHost: x\r\nX-Podium-Token: open-sesame\r\nContent-Length: 9\r\n\r\n{"
    with socket.create_connection(where) as held:  # type: ignore[arg-type]
        held.sendall(head.encode())
        assert stranger.get("/").status_code == 401
    for _ in range(20):  # the server looks at other connections meanwhile
        assert stranger.get("/").status_code == 401
    assert not caplog.records


def test_a_log_reaches_a_browser_without_escape_sequences(visitor: httpx.Client) -> None:
    Path("halving.py").write_text(HALVING.replace("<script>", "\\x1b[31m\\x07<script>"))
    run = podium.run("halving.py", number=3.0)
    printed = text(visitor, f"/runs/{run.id}/logs/halve")
    assert "<script>alert(1)</script> halves" in printed
    assert "\x1b" not in printed
    assert "\x07" not in printed


def test_a_body_beyond_the_limit_is_refused(models: None, visitor: httpx.Client) -> None:
    body = b" " * (_MOST_BODY + 1)
    answer = visitor.post("/models/shapes/promote", content=body, headers=HEADERS)
    assert answer.status_code == 400
    assert "the request body is larger than 32 MiB" in answer.json()["error"]


def test_a_new_champion_is_opened_in_place_of_the_old(models: None) -> None:
    registry = open_registry(None)
    followed, model = _FollowedRegistry(registry), registry["shapes"]
    before = followed.predictor("shapes")
    assert followed.predictor("shapes") is before
    model.set_champion("v2", {"reason": "another"}, expect="v1")
    assert followed.predictor("shapes") is not before


def test_a_value_cannot_end_the_script_of_its_figures(
    visitor: httpx.Client, experiment: Callable[..., dict[str, Any]]
) -> None:
    manifest = experiment()
    kinds = {"name": "kind", "parameterType": "categorical"}
    manifest["spec"]["parameters"].append(
        {**kinds, "feasibleSpace": {"list": ["</script><b>", "plain"]}}
    )
    template = manifest["spec"]["trialTemplate"]
    template["trialParameters"].append({"name": "kind", "reference": "kind"})
    pod = template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    pod["env"] = [{"name": "KIND", "value": "${trialParameters.kind}"}]
    sweep = podium.sweep(manifest)
    page = text(visitor, f"/sweeps/{sweep.name}")
    assert "</script><b>" not in page
    assert "\\u003c/script>" in page


def test_a_job_shows_its_replicas_and_log(visitor: httpx.Client) -> None:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "i", "command": ["echo", "done <b>"]}],
    }
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "echo"},
                "spec": {"template": {"spec": pod}}}  # fmt: skip
    podium.run_job(manifest)
    page = text(visitor, "/jobs/Job/echo")
    assert "done &lt;b&gt;" in page
    assert "pod-0" in page
    assert 'href="/jobs/Job/echo"' in text(visitor, "/jobs")


def add_trials(sweep: podium.Sweep, count: int) -> None:
    """Add copies of a trial that has ended."""
    example = sweep.cluster.directory("Trial", sweep.best.name)
    kept = sweep.cluster.directory("Experiment", sweep.name)
    assert example
    assert kept
    written, names = (example / "object.json").read_text(), []
    for number in range(count):
        name = f"{example.name[:-8]}{number:08d}"
        shutil.copytree(example, example.with_name(name))
        manifest = json.loads(written.replace(example.name, name))
        manifest["metadata"]["uid"] = f"{number:032x}"
        (example.with_name(name) / "object.json").write_text(json.dumps(manifest))
        names.append(name)
    manifest = json.loads((kept / "object.json").read_text())
    manifest["status"]["succeededTrialList"] += names
    (kept / "object.json").write_text(json.dumps(manifest))


def test_twenty_open_pages_of_2000_trials_keep_no_answer_waiting(
    visitor: httpx.Client, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment())
    add_trials(sweep, 1997)
    path, over = f"/sweeps/{sweep.name}", threading.Event()
    page = text(visitor, path)  # what has ended is read once
    assert page.count("<tr data-number") == 100

    def follow() -> None:
        while not over.is_set():
            time.sleep(0.2)
            with visitor.stream("GET", path, headers={"Accept": "text/event-stream"}) as answer:
                assert "event: over" in list(answer.iter_lines())

    followers = [threading.Thread(target=follow) for _ in range(20)]
    for follower in followers:
        follower.start()
    took: dict[str, list[float]] = {}
    try:
        for asked in 5 * ["/static/ui.css", path, "/models", "/nowhere"]:
            began = time.monotonic()
            visitor.get(asked)
            took.setdefault(asked, []).append(time.monotonic() - began)
            time.sleep(0.2)
    finally:
        over.set()
        for follower in followers:
            follower.join()
    # A second on an idle machine; on a busy one this process and its 20 clients share what is left.
    assert max(map(statistics.median, took.values())) < 5.0, took


def test_a_lineage_ends_at_the_servers_that_answer_now(
    models: None, visitor: httpx.Client, typed: Callable[..., Any]
) -> None:
    def served_by(ref: str) -> str:
        lines = dict(line.split(maxsplit=1) for line in typed("models", "lineage", "shapes", ref).stdout.splitlines())  # fmt: skip
        return str(lines.get("served", "")).removeprefix("by ")

    followed = {"command": "serve", "said": r"listening on (http://\S+)/v2"}
    with running("shapes", "--follow", "0.1", **followed) as url:
        assert (served_by("v1"), served_by("v2")) == (url, "")
        assert f'<a href="{url}"><b>served by</b>' in text(visitor, "/models/shapes/versions/v1")
        open_registry(None)["shapes"].promote("v2")
        while not served_by("v2"):
            time.sleep(0.1)
        assert (served_by("v1"), served_by("v2")) == ("", url)
    assert served_by("v2") == "", "it has ended"


def test_a_killed_server_answers_no_more(home: Path, models: None) -> None:
    kept = open_registry(None)["shapes"].version("v1")
    folder = home / "servers"
    folder.mkdir()
    model = {"storage": kept.storage.url, "name": "shapes", "version": "v1"}
    left = folder / "7.json"
    left.write_text(json.dumps({"url": "http://127.0.0.1:1", "models": [model]}))
    assert servers_of(kept) == []
    assert not left.exists()
