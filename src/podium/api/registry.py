"""The registry from Python: ``podium.registry()["mnist"].champion.predict(x)``."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.errors import Failed
from podium.frames import data_frame
from podium.models import Decision, Model, Record, open_registry
from podium.models.catalog import Summary
from podium.models.pointers import CHAMPION
from podium.models.version import Version
from podium.notebook import table
from podium.settings import STORAGE, Settings
from podium.terminal import echo
from podium.text import figure, one_line
from podium.training.mlflow_log import champion_in_mlflow, check_tracking

if TYPE_CHECKING:
    from pandas import DataFrame

    from podium.api.predictions import Model as PredictionModel
    from podium.api.predictions import Predictions


class ModelVersion:
    """An immutable version of a model.

    Args:
        model: The model.
        version: What is recorded of it.
    """

    def __init__(self, model: Model, version: Version) -> None:
        self._model, self.record = model, version
        self.name, self.version = version.name, version.version

    @property
    def created(self) -> datetime:
        """When it was uploaded, UTC."""
        return self.record.created

    @property
    def metrics(self) -> dict[str, float]:
        """On the test part of its dataset."""
        return dict(self.record.metadata.get("metrics") or {})

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """What it was trained with."""
        return dict(self.record.metadata.get("hyperparameters") or {})

    @property
    def files(self) -> list[str]:
        """Names of its files."""
        return sorted(self.record.files)

    @property
    def is_command(self) -> bool:
        """Whether it predicts by a command that is stored with it, not by an ONNX graph."""
        from podium.training.predict import COMMAND, ONNX

        return COMMAND in self.record.files and ONNX not in self.record.files

    @cached_property
    def opened(self) -> "PredictionModel":
        """The version as a model that predicts, which also streams files larger than memory."""
        from podium.api.predictions import Model as PredictionModel
        from podium.training import predict

        def graph() -> Any:
            with tempfile.TemporaryDirectory(prefix="podium-") as scratch:
                wanted = [name for name in (predict.ONNX, predict.PREPROCESSING) if name in self.record.files]
                if predict.ONNX not in wanted:
                    opened = predict.load_version(self._model, self.version)
                    return opened.model, opened.classes
                self._model.fetch(self.version, Path(scratch, "model"), files=wanted)
                model, classes = predict.open_graph(Path(scratch, "model"))
                return model, self.record.facts.dataset.classes or classes

        return PredictionModel(
            f"{self.name} {self.version}", graph, lambda data: predict.load_version(self._model, self.version, data)
        )

    def predict(self, items: Any, *, data: str | Path = "") -> "Predictions":
        """Predict new items, as the Model of ``podium.open_model`` does; a command runs here, with your rights."""
        return self.opened.predict(items, data=data)

    def fetch(self, directory: str | Path) -> Path:
        """Download it into a new directory; every file is verified before the directory appears."""
        self._model.fetch(self.version, Path(directory))
        return Path(directory)

    def __repr__(self) -> str:
        facts = self.record.facts
        value = f", {facts.metric.name} {figure(facts.value)}" if facts.value is not None else ""
        return one_line(f"<{self.name} {self.version}{value}>")

    def _repr_html_(self) -> str:
        rows = [(name, figure(value)) for name, value in self.metrics.items()]
        rows += [(name, str(value)) for name, value in self.hyperparameters.items()]
        return table(("NAME", ">VALUE"), rows, title=f"{self.name} {self.version}")


class Versions(Sequence[ModelVersion]):
    """The versions of a model, oldest first.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.summaries: list[Summary] = model.versions()
        self.aliases = {alias: record.version for alias, record in model.aliases().items()}

    @property
    def frame(self) -> "DataFrame":
        """A row for each version."""
        columns = ["version", "created", "metric", "value", "size", "run_id", "aliases"]
        rows = [{**vars(summary), "aliases": self._aliases_of(summary)} for summary in self.summaries]
        return data_frame(rows, columns)

    def _aliases_of(self, summary: Summary) -> str:
        return ", ".join(alias for alias, version in self.aliases.items() if version == summary.version)

    def __len__(self) -> int:
        return len(self.summaries)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[position] for position in range(len(self))[at]]
        return ModelVersion(self._model, self._model.version(self.summaries[at].version))

    def __repr__(self) -> str:
        return f"<{len(self)} versions of {self._model.name}>"

    def _repr_html_(self) -> str:
        rows = [
            (summary.version, f"{summary.created:%Y-%m-%d %H:%M}", summary.metric or "",
             "" if summary.value is None else figure(summary.value), self._aliases_of(summary))
            for summary in self.summaries
        ]  # fmt: skip
        heads = ("VERSION", "CREATED (UTC)", "METRIC", ">VALUE", "ALIASES")
        return table(heads, rows, title=f"{len(rows)} versions of {self._model.name}")


class NotPromoted(Failed):
    """A version does not meet the rule; the champion stays.

    Args:
        message: Which version, and who stays champion.
        decision: Of the rule.
    """

    def __init__(self, message: str, decision: Decision) -> None:
        super().__init__(message, "; ".join(decision.reasons))
        self.decision = decision


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What became of a version that was to be champion."""

    record: Record
    """In the history."""

    decision: Decision | None = None
    """Of the rule, with its figures; None if there was no rule."""

    @property
    def version(self) -> str:
        """Id of the champion now."""
        return self.record.version

    @property
    def replaced(self) -> str | None:
        """The champion before; None if there was none."""
        return self.record.replaced


class RegisteredModel:
    """A model of a registry.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model, self.name = model, model.name

    @property
    def champion(self) -> ModelVersion:
        """The champion.

        Raises:
            NotFound: There is none.
        """
        return self[CHAMPION]

    @property
    def versions(self) -> Versions:
        """All versions, oldest first."""
        return Versions(self._model)

    def __getitem__(self, ref: str) -> ModelVersion:
        """Return a version by its id or an alias."""
        return ModelVersion(self._model, self._model.version(ref))

    def promote(
        self, version: str | ModelVersion, *, rule: str | None = None, data: str | Path | None = None,
        reason: str = "by hand", tracking: str = "",
    ) -> Promotion:  # fmt: skip
        """Make a version champion: unconditionally, or if it beats the present champion by a rule.

        Args:
            version: A version, its id or an alias.
            rule: ``better``, ``not-worse``, ``significant,p=0.01`` …; None promotes it in any case.
            data: Dataset for the comparison, if the predictions of the two are not stored.
            reason: For the history.
            tracking: MLflow whose alias champion follows; the one that the version's run was logged to if empty.

        Raises:
            NotPromoted: It does not meet the rule; the champion stays.
            NotFound: There is no such version.
            Conflict: Somebody else moved the champion meanwhile.
        """
        ref = version.version if isinstance(version, ModelVersion) else version
        chosen = self._model.version(ref).version
        check_tracking(tracking)
        if rule is None:
            held = self._model.aliases().get(CHAMPION)
            record = self._model.promote(chosen, {"reason": reason}, held.points_at if held else None)
            return self._moved(Promotion(record=record), tracking)
        from podium.training.compare import contest

        ended = contest(self._model, chosen, rule, str(data) if data else None, {"reason": reason})
        if ended.record is None:
            champion = f"{ended.champion} stays champion" if ended.champion else "there is still no champion"
            raise NotPromoted(f"{chosen} of {self.name} does not meet the rule; {champion}", ended.decision)
        return self._moved(Promotion(record=ended.record, decision=ended.decision), tracking)

    def rollback(self, to: str | None = None, *, reason: str = "by hand", tracking: str = "") -> Promotion:
        """Make an earlier version champion again, after verifying it.

        Args:
            to: The version; None for the previous champion. Rolling back twice goes back two steps.
            reason: For the history.
            tracking: As for promote.

        Raises:
            NotFound: There is no champion, no previous one, or it was deleted.
        """
        check_tracking(tracking)
        return self._moved(Promotion(record=self._model.rollback(to, reason)), tracking)

    def _moved(self, promotion: Promotion, tracking: str) -> Promotion:
        if notice := champion_in_mlflow(self._model, promotion.record, tracking):
            echo(notice, err=True)
        return promotion

    def alias(self, alias: str, version: str | ModelVersion) -> ModelVersion:
        """Point an alias of your own at a version; return it."""
        ref = version.version if isinstance(version, ModelVersion) else version
        return self[self._model.alias(alias, ref).version]

    @property
    def history(self) -> "DataFrame":
        """Every promotion, refusal, rollback, alias move and deletion, oldest first."""
        rows = [record.document() for record in self._model.history()]
        return data_frame(rows, ["time", "event", "version", "alias", "replaced", "evidence"])

    def __repr__(self) -> str:
        held = self._model.aliases().get(CHAMPION)
        return f"<model {self.name}: {len(self.versions)} versions, champion {held.version if held else 'none'}>"

    def _repr_html_(self) -> str:
        return self.versions._repr_html_()


class Registry(Mapping[str, RegisteredModel]):
    """The models of a storage.

    Args:
        url: A directory, ``s3://`` or ``minio://``; PODIUM_STORAGE, else ``$PODIUM_HOME/store``, if None.
    """

    def __init__(self, url: str | Path | None = None) -> None:
        self._registry = open_registry(url or os.environ.get(STORAGE) or Settings.from_environment().storage)
        self.url = self._registry.storage.url

    def __getitem__(self, name: str) -> RegisteredModel:
        """Return a model.

        Raises:
            NotFound: There is no such model.
        """
        return RegisteredModel(*self._registry.select(name))

    def __contains__(self, name: object) -> bool:
        return name in self._registry.models()

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.models())

    def __len__(self) -> int:
        return len(self._registry.models())

    def __repr__(self) -> str:
        return f"<registry {self.url}: {', '.join(self) or 'no models'}>"

    def _repr_html_(self) -> str:
        rows = [
            (row.name, str(row.versions), row.champion or "", "" if row.value is None else figure(row.value))
            for row in (model.overview() for model in self._registry.select())
        ]
        return table(("MODEL", ">VERSIONS", "CHAMPION", ">VALUE"), rows, title=self.url)


def registry(url: str | Path | None = None) -> Registry:
    """Open the registry of a storage; an empty storage is an empty registry.

    Args:
        url: A directory, ``s3://`` or ``minio://``; PODIUM_STORAGE, else ``$PODIUM_HOME/store``, if None.

    Example:
        >>> import podium
        >>> models = podium.registry(storage)
        >>> list(models)
        ['digits']
        >>> models["digits"].champion.predict(images).values.tolist()
        ['zero', 'one']
    """
    return Registry(url)
