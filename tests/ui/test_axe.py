"""No page has a violation of axe-core's rules, in any of its states, wide and on a phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe import violations
from pages import running, write_run

import podium

pytestmark = pytest.mark.whole

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "echo"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "i", "command": ["echo", "done"]}],
            }
        }
    },
}


@pytest.fixture
def page(browser: Any, models: None, shown: Any) -> Any:
    """A page that has opened the address with the token."""
    browser.goto(shown.url)
    browser.base = shown.base
    return browser


def check(page: Any, state: str) -> None:
    said = violations(page, state)
    assert not said, "\n".join(said)


def look(page: Any, *paths: str) -> None:
    said = []
    for path in paths:
        page.goto(f"{page.base}{path}")
        page.wait_for_load_state("load")
        said += violations(page, path)
    assert not said, "\n".join(said)


def test_first_page_lists_and_models_violate_nothing(page: Any) -> None:
    look(
        page,
        "/",
        "/runs",
        "/models",
        "/models/shapes?first=v1&second=v2",
        "/models/rows",
        "/models/shapes/versions/v1",
        "/nowhere",
    )


def test_sweeps_trials_and_jobs_violate_nothing(
    page: Any, experiment: Callable[..., dict[str, Any]]
) -> None:
    podium.run_job(JOB)
    failed = podium.sweep(experiment("failed", "never"))
    sweep = podium.sweep(experiment())
    path = f"/sweeps/{sweep.name}"
    trial = f"{path}/trials/{sweep.best.name}"
    look(page, "/", "/sweeps", "/jobs", "/jobs/Job/echo", trial, f"/sweeps/{failed.name}")
    page.goto(f"{page.base}{path}#picked=1,2&sort=x&filter=x<2")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_text("Write a note").click()
    page.wait_for_selector("[data-figure=picked] .main-svg")
    check(page, "picked trials")
    page.get_by_role("button", name="Analyse").click()
    page.wait_for_selector("dialog[open]")
    check(page, "a question")
    page.goto(sweep.report().as_uri())
    page.wait_for_selector("[data-figure=history] .main-svg")
    check(page, "the report of a sweep")


def test_runs_in_each_state_violate_nothing(page: Any, home: Path) -> None:
    for state in ("succeeded", "failed", "stopped"):
        run = write_run(home, state)
        look(page, f"/runs/{run}?step=train")
    look(page, "/runs")


def test_the_page_of_podium_serve_violates_nothing(browser: Any, models: None) -> None:
    with running(command="serve", said=r"listening on (http://\S+)/v2") as url:
        browser.goto(url)
        browser.wait_for_selector("form.try")
        check(browser, "podium serve")
