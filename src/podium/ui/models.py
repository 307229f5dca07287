"""Models, their champion and its evidence as pages."""

import time
from contextlib import suppress
from typing import Any

import podium
from podium.errors import NotFound, PodiumError
from podium.models import Model, Registry, Version
from podium.models.described import described
from podium.models.lineage import Lineage
from podium.prediction import Predictor
from podium.reports import plots
from podium.serving.announced import servers_of
from podium.serving.form import Form
from podium.ui.view import View

_MOST_RECORDS = 50
"""Events of the history that a page shows, the newest."""

_SHOWN_APART = ("created", "metrics", "chosen by", "settings")
"""Facts about a version that have a place of their own on its page."""

_KNOWN_SECONDS = 2.0
"""Seconds for which a registry's answers are cached: it may be far away, and several pages ask
it."""


class FollowedRegistry:
    """A registry that is polled.

    Args:
        registry: The registry.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._read = -_KNOWN_SECONDS
        self._rows: list[dict[str, Any]] = []
        self._opened: dict[str, tuple[str, Predictor]] = {}

    def rows(self) -> list[dict[str, Any]]:
        if time.monotonic() - self._read > _KNOWN_SECONDS:
            overviews = [self.registry[name].overview() for name in self.registry]
            self._rows = [
                overview.to_json() | {"path": f"/models/{overview.name}"} for overview in overviews
            ]
            self._read = time.monotonic()
        return self._rows

    def predictor(self, name: str) -> Predictor:
        """Return the champion of a model, opened once.

        Raises:
            NotFound: There is none.
        """
        champion = self.registry[name].champion
        if name not in self._opened or self._opened[name][0] != champion.version:
            self._opened[name] = champion.version, champion.opened
        return self._opened[name][1]

    def forget(self) -> None:
        """Read again next time: something was changed."""
        self._read = -_KNOWN_SECONDS


def view(model: Model, path: str, first: str, second: str) -> View:
    """Return the page of a model.

    Args:
        path: Path of the page.
        first: A version or alias to compare with; empty compares nothing.
        second: The version that is compared.

    Raises:
        NotFound: There is no such model, or no such version of it.
    """
    aliases, champion, versions = model.aliases(), model.find_champion(), list(model.versions)[::-1]
    held = aliases.get("champion")
    first = first or (champion.version if champion else "")
    other = next((version.version for version in versions if version != champion), "")
    return View(
        template="model.html.jinja",
        title=model.name,
        shown={
            "model": model,
            "path": path,
            "champion": champion,
            "held": held,
            "form": _form(champion),
            "versions": versions,
            "waiting": model.waiting,
            "records": model.records()[::-1][:_MOST_RECORDS],
            "aliases": {alias: record.version for alias, record in aliases.items()},
            "first": first,
            "second": second or other,
            **_compared(model, first, second),
        },
    )


def _form(version: Version | None) -> Form | None:
    with suppress(PodiumError):
        return Form.of(version.opened) if version else None
    return None


def _compared(model: Model, first: str, second: str) -> dict[str, Any]:
    if not (first and second):
        return {"difference": None, "trouble": ""}
    from podium.models.comparison import chosen_metric, difference
    from podium.models.shared_items import predictions

    versions = model.version(first), model.version(second)
    try:
        seen = predictions(versions, None)
        return {
            "difference": difference(seen, chosen_metric("", versions[1], seen.kind)),
            "trouble": "",
        }
    except PodiumError as error:
        return {"difference": None, "trouble": str(error)}


def version_view(model: Model, version: Version, path: str) -> View:
    report = version.facts.report
    chosen = version.facts.metric.name
    facts = {name: fact for name, fact in described(version).items() if name not in _SHOWN_APART}
    return View(
        template="version.html.jinja",
        title=version.title,
        figures={"confusion": plots.confusion_matrix(report.confusion, report.names)}
        if any(report.confusion)
        else {},
        shown={
            "version": version,
            "path": path,
            "chosen": chosen,
            "metrics": dict(sorted(version.metrics.items(), key=lambda item: item[0] != chosen)),
            "held": [
                alias for alias, held in model.aliases().items() if held.version == version.version
            ],
            "lineage": _lineage(model, version),
            "facts": facts,
        },
    )


def _lineage(model: Model, version: Version) -> list[tuple[str, str, str]]:
    found = Lineage.of(model, version, servers_of(version))
    here = found.run and (podium.runs().directory / found.run / "run.json").is_file()
    paths = {"champion": f"/models/{model.name}"}
    if found.served_by:
        paths["served by"] = found.served_by[0]
    if here:
        root = f"/runs/{found.run}"
        paths |= {"run": root, "sweep": f"{root}/sweeps/{found.sweep}"}
        if found.sweep and found.kind == "trial":
            paths[found.kind] = f"{root}/sweeps/{found.sweep}/trials/{found.name}"
    return [(title, text, paths.get(title, "")) for title, text in found.rows()]


def require_model(registry: Registry, name: str) -> Model:
    """Return a model that has a version.

    Raises:
        NotFound: There is none of this name.
    """
    model = registry[name]
    if not len(model.versions):
        raise NotFound(f"model {name} has no version")
    return model
