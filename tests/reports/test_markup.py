"""Markup in names, reasons and parameters is text in the report, never part of the page."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from podium.reports import (
    Compared,
    Failure,
    Step,
    SweepPage,
    complete,
    render,
    render_comparison,
    render_sweep,
)
from podium.reports.page import embedded

EVIL = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'><b onclick='x'>&amp;",
    "<!--",
    "]]>",
)


class Page(HTMLParser):
    """Every tag with the names of its attributes, and all text by the element that holds it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text: list[str] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attributes)))
        self._script = dict(attributes).get("id") or "main" if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._script = None if tag == "script" else self._script

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.text.append(data)


def written(evil: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an evaluation and a decision with a text wherever others may have one."""
    curve = [{"epoch": 1, "accuracy": 0.5}]
    lr = {"name": evil, "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "1"}}
    kind = {
        "name": f"k{evil}",
        "parameterType": "categorical",
        "feasibleSpace": {"list": [evil, "b"]},
    }
    trials = [
        {"name": f"t{number}{evil}", "number": number, "value": number / 10, "seconds": 1.0, "state": f"S{evil}",
         "parameters": {evil: "0.1", f"k{evil}": evil}, "epochs": curve,
         "started": "2026-01-02T03:04:05Z", "ended": "2026-01-02T03:04:06Z"}
        for number in (1, 2, 3)
    ]  # fmt: skip
    sweep = {"experiment": evil, "algorithm": evil, "objective": {"metric": evil, "maximize": True},
             "parameters": [lr, kind], "best": f"t3{evil}", "trials": trials}  # fmt: skip
    candidate = {"kind": "training", "name": evil, "uri": evil, "epochs": curve, "hyperparameters": {evil: evil},
                 "validation": {"metrics": {"accuracy": 0.5, evil: 0.1}, "count": 2}}  # fmt: skip
    row = {"name": evil, "precision": 0.5, "recall": 0.5, "f1": 0.5, "items": 1}
    example = {"item": 1, "target": evil, "predicted": evil, "score": 0.5, "text": evil, "row": {evil: evil},
               "image": f"data:image/png;base64,{evil}"}  # fmt: skip
    parts = [
        {"name": name, "items": 2, "class_counts": [1, 1], "target": []}
        for name in ("train", "validation", "test")
    ]
    column = {"name": evil, "kind": evil, "categories": 0, "missing": 1}
    evaluation = {
        "data": {"split": evil, "parts": parts, "columns": [column]},
        "pictures": [{"name": evil, "media": "image/png", "base64": evil}],
        "trained_with": {evil: evil, "nested": {evil: evil}}, "evaluated_with": {evil: evil}, "run_id": evil, "sweep": sweep, "candidates": [candidate],
        "winner": {"kind": evil, "name": evil, "uri": evil, "why": evil},
        "dataset": {"name": evil, "digest": evil, "counts": {"train": 1, "validation": 1, "test": 1},
                    "classes": [evil, "b"], "target": evil, "warnings": [evil], "source": evil},
        "metric": {"name": "accuracy", "maximize": True},
        "test": {"metrics": {"accuracy": 0.5}, "count": 2, "left_out": 1, "confusion": [[1, 0], [1, 0]], "classes": [row],
                 "calibration": {"error": 0.1, "by_chance": 0.05, "items": 2,
                                 "bins": [{"items": 2, "confidence": 0.6, "accuracy": 0.5, "low": 0.1, "high": 0.9}]},
                 "points": [{"true": [1.0], "predicted": [2.0]}], "examples": [example]},
    }  # fmt: skip
    decision = {"model_name": evil, "version": evil, "outcome": evil, "rule": evil, "storage": evil,
                "reasons": [evil, f"no: {evil}"], "champion_value": 0.4, "value": 0.5, "metric": {"name": evil}, "compared_with": evil}  # fmt: skip
    return evaluation, decision


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_names_add_no_element_to_the_page(evil: str) -> None:
    plain, hostile = Page(render(*written("plain"))), Page(render(*written(evil)))
    assert hostile.tags == plain.tags
    assert (
        sum(evil in text for text in hostile.text)
        == sum("plain" in text for text in plain.text)
        > 20
    )
    assert hostile.scripts["main"] == plain.scripts["main"]


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_steps_add_no_element_to_a_report(evil: str) -> None:
    def whole(text: str) -> Page:
        return Page(
            complete(render(*written("plain")), [Step(title=text, state=text, seconds=1)], text)
        )

    assert whole(evil).tags == whole("plain").tags
    assert sum(evil in text for text in whole(evil).text) == 3


def compared(evil: str) -> str:
    """Render a comparison with a text wherever others may have one."""
    return render_comparison(
        [
            Compared(
                name=f"{name}{evil}", state=evil, began=evil, result=evil, parameters={evil: f"{name}{evil}"},
                metrics={evil: 0.5}, metric=evil, epochs=[{evil: 0.1}], steps={evil: 1.0}, test=name,
            )
            for name in ("a", "b")
        ],
        evil,
    )  # fmt: skip


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_names_add_nothing_to_a_comparison(evil: str) -> None:
    plain, hostile = Page(compared("plain")), Page(compared(evil))
    assert hostile.tags == plain.tags
    assert (
        sum(evil in text for text in hostile.text)
        == sum("plain" in text for text in plain.text)
        > 20
    )
    assert json.loads(hostile.scripts["figures"])["curves"]["data"][0]["name"] == f"a{evil}"


def swept(evil: str) -> str:
    """Render the report of a sweep with a text wherever others may have one."""
    evaluation, _ = written(evil)
    failure = Failure(name=evil, state=evil, message=evil, lines=[evil])
    table = evaluation["sweep"]
    table["trials"] = [{**row, "model": evil} for row in table["trials"]]
    page = SweepPage(table=table, goal=evil, state=evil, message=evil, cluster=evil, command=evil, failures=[failure],
                     trained_with={evil: evil})  # fmt: skip
    return render_sweep(page)


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_names_add_nothing_to_the_report_of_a_sweep(evil: str) -> None:
    plain, hostile = Page(swept("plain")), Page(swept(evil))
    assert hostile.tags == plain.tags
    assert (
        sum(evil in text for text in hostile.text)
        == sum("plain" in text for text in plain.text)
        > 20
    )
    assert (
        json.loads(hostile.scripts["figures"])["history"]["layout"]["yaxis"]["title"]["text"]
        == evil
    )


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_names_reach_the_figures_as_text(evil: str) -> None:
    figures = json.loads(Page(render(*written(evil))).scripts["figures"])
    assert figures["history"]["layout"]["yaxis"]["title"]["text"] == evil
    assert figures["confusion"]["data"][0]["x"] == [evil, "b"]
    assert figures["curves"]["data"][0]["name"] == f"t1{evil}"


@pytest.mark.parametrize("evil", EVIL)
def test_embedded_json_ends_no_script_and_stays_json(evil: str) -> None:
    text = embedded({"one": json.dumps({"name": evil})})
    assert "<" not in text
    assert json.loads(text) == {"one": {"name": evil}}
