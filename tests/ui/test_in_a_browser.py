"""The pages of `podium ui` as Chromium shows them, by mouse and by keyboard alone."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handmade import TABLE, rows_model

import podium
from podium.models import open_registry
from podium.runner.record import RunRecord, StepRecord

pytestmark = pytest.mark.whole


def test_what_runs_is_followed_without_a_reload(
    browser: Any,
    shown: Any,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    sweep = begin(experiment(seconds=1.0, parallelTrialCount=1))
    browser.goto(shown.url)
    browser.get_by_role("link", name=sweep.name, exact=True).click()
    browser.wait_for_selector(".state.running")
    browser.evaluate("window.loaded = 'once'")
    browser.wait_for_selector("[data-figure=curves] .scatterlayer .trace")
    browser.wait_for_selector("h1 .state.succeeded")
    assert browser.locator("tbody tr.best").count() == 1
    assert browser.locator("[data-figure=history] .main-svg").count() > 0
    assert browser.evaluate("window.loaded") == "once"
    assert "token" not in browser.url


def test_a_sweep_is_stopped_by_keyboard_after_one_question(
    browser: Any,
    shown: Any,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    sweep = begin(experiment(seconds=2.0))
    browser.goto(f"{shown.base}/sweeps/{sweep.name}?token={shown.token}")
    browser.get_by_role("button", name="Stop").focus()
    browser.keyboard.press("Enter")
    browser.wait_for_selector("dialog[open]")
    browser.keyboard.press("Enter")  # the focus is on No
    browser.wait_for_selector("dialog[open]", state="detached")
    assert sweep.status == "Running"
    browser.get_by_role("button", name="Stop").focus()
    browser.keyboard.press("Enter")
    browser.keyboard.press("Shift+Tab")
    browser.keyboard.press("Enter")
    browser.wait_for_selector("h1 .state.stopped")
    assert sweep.status == "Stopped"


def test_the_focus_stays_with_a_run_when_another_begins(
    browser: Any,
    shown: Any,
    experiment: Callable[..., dict[str, Any]],
    begin: Callable[..., podium.Sweep],
) -> None:
    first = begin(experiment(seconds=30.0))
    browser.goto(f"{shown.base}/sweeps?token={shown.token}")
    browser.get_by_role("link", name=first.name, exact=True).focus()
    second = begin(experiment(seconds=30.0))
    browser.wait_for_selector(f"a:text-is('{second.name}')")
    assert browser.evaluate("document.activeElement.textContent") == first.name
    first.stop()
    second.stop()


def test_a_digit_is_drawn_and_a_row_is_filled_in(browser: Any, models: None, shown: Any) -> None:
    browser.goto(f"{shown.base}/models/rows?token={shown.token}")
    browser.get_by_label("x").fill("3")
    browser.get_by_label("color").fill("red")
    browser.get_by_role("button", name="Predict").click()
    browser.wait_for_selector("output .answer")
    browser.goto(f"{shown.base}/models/shapes")
    browser.wait_for_selector("form.try")
    browser.locator("input[type=file]").set_input_files(
        {"name": "tall.svg", "mimeType": "image/svg+xml", "buffer": b"<svg/>"}
    )
    browser.wait_for_selector("output .trouble")


def test_a_version_is_promoted_from_the_page(browser: Any, models: None, shown: Any) -> None:
    browser.goto(f"{shown.base}/models/shapes?token={shown.token}")
    browser.get_by_label("rule for v2").select_option("")
    browser.get_by_role("button", name="Promote").click()
    browser.get_by_role("button", name="Yes").click()
    browser.wait_for_selector("tr.best >> text=v2")
    assert open_registry(None)["shapes"].champion.version == "v2"
    assert browser.locator("#said").inner_text() == "v2 is champion of shapes"


def test_a_form_goes_with_the_version_that_it_names(browser: Any, models: None, shown: Any) -> None:
    model = open_registry(None)["rows"]
    files = {"model.onnx": rows_model(), "preprocessing.json": json.dumps(TABLE).encode()}
    model.upload(files, {"run_id": "v3"})  # type: ignore[arg-type]
    for version in ("v2", "v3"):
        model.ledger.refuse(version, "v1", {"rule": "approved", "reasons": ["no: waits"], "waiting": True})  # fmt: skip
    browser.goto(f"{shown.base}/models/rows?token={shown.token}")
    browser.get_by_label("reason to reject v3").wait_for()
    browser.get_by_label("reason to reject v2").fill("of v2 alone")
    model.reject("v2", "somewhere else")
    browser.get_by_label("reason to reject v2").wait_for(state="detached")
    reason = browser.get_by_label("reason to reject v3")
    assert reason.input_value() == ""
    reason.fill("not this one")
    browser.get_by_role("button", name="Reject").click()
    browser.get_by_role("button", name="Yes").click()
    browser.wait_for_selector("#said:text-is('v3 of rows is rejected')")
    assert not model.waiting


def test_a_row_to_try_has_the_columns_of_the_champion(
    browser: Any, models: None, shown: Any
) -> None:
    model = open_registry(None)["rows"]
    columns = [{**column, "name": f"new {column['name']}"} for column in TABLE["columns"]]
    described = json.dumps({**TABLE, "columns": columns}).encode()
    model.upload({"model.onnx": rows_model(), "preprocessing.json": described}, {"run_id": "v3"})
    browser.goto(f"{shown.base}/models/rows?token={shown.token}")
    browser.locator("[name=color]").fill("red")
    model.set_champion("v3", {"reason": "other columns"}, expect="v1")
    browser.get_by_label("new color").fill("green")
    browser.get_by_label("new x").fill(" ")  # is missing
    with browser.expect_request("**/try") as asked:
        browser.get_by_role("button", name="Predict").click()
    assert asked.value.post_data_json == {"rows": [{"new x": None, "new color": "green"}]}
    browser.wait_for_selector("output .answer")


def test_a_note_that_nobody_types_follows_the_others(
    browser: Any, shown: Any, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment(parallelTrialCount=1, maxTrialCount=1))
    browser.goto(f"{shown.base}/sweeps/{sweep.name}/trials/{sweep.best.name}?token={shown.token}")
    browser.get_by_text("Write a note").click()
    browser.get_by_label("note").fill("mine")
    browser.get_by_role("button", name="Save").click()
    browser.wait_for_selector("p.note:text-is('mine')")
    sweep.cluster.write_note("Trial", sweep.best.name, "yours")
    browser.evaluate("setInterval(follow, 1000)")  # nothing of an ended trial is followed
    browser.wait_for_selector("p.note:text-is('yours')")
    assert browser.get_by_label("note").input_value() == "yours"


def test_an_action_without_an_answer_says_so(browser: Any, models: None, shown: Any) -> None:
    browser.goto(f"{shown.base}/models/shapes?token={shown.token}")
    browser.route("**/promote", lambda route: route.fulfill(status=500, body="no JSON"))
    browser.get_by_role("button", name="Promote").click()
    browser.get_by_role("button", name="Yes").click()
    browser.wait_for_selector("#said.trouble:has-text('podium ui gave no answer')")


def test_nothing_is_wider_than_a_phone_in_the_dark(
    browser: Any, models: None, shown: Any, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment())
    browser.set_viewport_size({"width": 390, "height": 800})
    browser.emulate_media(color_scheme="dark")
    for path in (
        "/",
        f"/sweeps/{sweep.name}",
        f"/sweeps/{sweep.name}/trials/{sweep.best.name}",
        "/models/shapes",
    ):
        browser.goto(f"{shown.base}{path}{'?token=' + shown.token if path == '/' else ''}")
        browser.wait_for_timeout(500)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390, path
    colors = browser.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    light, dark = (sum(map(int, re.findall(r"\d+", color)[:3])) for color in colors)
    assert light > 600 > 120 > dark


def test_times_are_the_readers_under_days_with_utc_on_hover(
    chromium: Any, home: Path, shown: Any
) -> None:
    for day, dataset in (("27", "table:in/churn.csv"), ("28", "mnist")):
        folder = home / "runs" / f"202611{day}-010000-aaaa"
        folder.mkdir(parents=True)
        RunRecord(
            id=folder.name,
            pipeline="tune_and_promote",
            directory=folder,
            parameters={"dataset": dataset},
            steps={"evaluate": StepRecord(title="Evaluate", state="failed")},
            state="failed",
            began=f"2026-11-{day}T01:00:00+00:00",
        ).save()
    context = chromium.new_context(
        timezone_id="America/New_York", viewport={"width": 390, "height": 900}
    )
    page = context.new_page()
    page.goto(f"{shown.base}/runs?token={shown.token}")
    rows = [
        [cell.strip() for cell in row.inner_text().split("\t")[:2]]
        for row in page.locator("tr").all()
    ]
    assert rows[1:] == [
        ["Friday, November 27, 2026"],
        ["mnist\n20261128-010000-aaaa", 'failed it printed nothing, in "Evaluate"'],
        ["Thursday, November 26, 2026"],
        ["churn.csv\n20261127-010000-aaaa", 'failed it printed nothing, in "Evaluate"'],
    ]
    time = page.locator("time").first
    assert (time.inner_text(), time.get_attribute("title")) == ("20:00", "2026-11-28 01:00 UTC")
    heads = page.locator("th", has_text="result")
    assert heads.evaluate("head => head.getBoundingClientRect().right") <= 390
    context.close()


def test_a_phone_shows_metric_and_state_of_each_trial(
    browser: Any, shown: Any, experiment: Callable[..., dict[str, Any]]
) -> None:
    sweep = podium.sweep(experiment())
    browser.set_viewport_size({"width": 390, "height": 800})
    browser.goto(f"{shown.base}/sweeps/{sweep.name}?token={shown.token}")
    heads = browser.locator("th").all()
    right = "head => head.getBoundingClientRect().right"
    shown_heads = [head.inner_text() for head in heads if head.evaluate(right) <= 390]
    assert shown_heads[1:5] == ["rank", "trial", "loss", "state"]
    best = browser.locator("tr.best a")
    assert best.inner_text() == sweep.best.name.removeprefix(f"{sweep.name}-")
    assert best.get_attribute("title") == sweep.best.name
