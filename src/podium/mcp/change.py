"""Tools that change something, offered with `podium mcp --allow-changes` only."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import podium
from podium.manifests.options import documented
from podium.mcp.look import Answer, Look
from podium.models.decision import Promotion
from podium.models.model import Model
from podium.runner.detached import begin
from podium.runner.record import Annotations

_BY_TOOL = "by a tool of podium mcp"
"""Reason for the history where the model gives none."""


class Change:
    """Tools that change something. Their docstrings are what the model reads of them, and say so.

    With ``dry_run`` each checks the same, answers the same, and changes nothing.

    Args:
        look: Knows the cluster and the registry.
    """

    def __init__(self, look: Look) -> None:
        self._look = look

    def run(
        self,
        pipeline: str = "",
        parameters: dict[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Answer:
        """Begin a run of a pipeline on this machine. This changes something: it trains, and may
        promote a model.

        It returns at once with the run's id, and the run continues when this server ends; show_run
        shows its progress. pipeline: tune_and_promote, train_and_promote, or FILE.py with a KFP
        pipeline; empty for that of podium.yaml in the working directory. parameters: those that
        differ from the defaults, such as {"epochs": 5}.
        """
        arguments = {"pipeline": pipeline, "parameters": parameters or {}, "dry_run": dry_run}
        return {"dry_run": dry_run, **begin("run", arguments)}

    def tune(
        self,
        program: list[str],
        space: dict[str, Any],
        objective: str | list[str] = "accuracy",
        trials: int = 20,
        parallel: int = 2,
        algorithm: str = "auto",
        name: str = "",
        data: str = "",
        prints: str = "",
        stop: Literal["", "median", "asha"] = "",
        options: dict[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Answer:
        """Begin a sweep over the flags of a script or command. This changes something: it runs that
        program many times.

        It returns at once with the sweep's name, and the sweep continues when this server ends;
        show_sweep shows its progress. program: ["train.py"], or a command as words. The program
        gets --NAME=VALUE and prints lines such as accuracy=0.98. space: by name a range
        "1e-4..1e-1" or "1..8", choices [32, 64], or a fixed value. objective: NAME, min:NAME or
        max:NAME, or several, of which the first decides. name: of the sweep; the script's if empty.
        data: directory or URI of a dataset, which the program gets as --data. prints: the library
        whose lines hold the metrics of a script that needs no change: huggingface, lightning,
        keras, xgboost, lightgbm, catboost, sklearn, colon. stop: ends bad trials early. options:
        further settings, by the names below, such as {"max_time": "2h"}, and passing, where the
        program takes no flags: hydra, papermill, env or config:FILE with ${NAME} in the file.
        """
        settings = {
            "trials": trials,
            "parallel": parallel,
            "algorithm": algorithm,
            "name": name or None,
            "data": data or None,
            "prints": prints or None,
            "stop": stop or None,
            **(options or {}),
        }
        arguments = {
            "program": program,
            "space": space,
            "objectives": [objective] if isinstance(objective, str) else objective,
            "cluster": self._look.spec.url,
            "settings": settings,
            "dry_run": dry_run,
        }
        return {"dry_run": dry_run, **begin("tune", arguments)}

    tune.__doc__ = documented(tune.__doc__)

    def promote(
        self, model: str, version: str, rule: str = "", reason: str = "", dry_run: bool = False
    ) -> Answer:
        """Make a version the champion of its model. This changes something: whoever uses the
        champion gets this one.

        version: an id or an alias, as show_model lists them. rule: likely, better, not-worse,
        fresh, likely=.97,minimum=.9 …: promote only if it beats the champion by this rule; empty to
        promote in any case. reason: for the history.
        """
        return self._move(
            model,
            lambda chosen: chosen.promote(
                version, rule=rule or None, reason=reason or _BY_TOOL, dry_run=dry_run
            ),
            dry_run,
        )

    def rollback(self, model: str, to: str = "", reason: str = "", dry_run: bool = False) -> Answer:
        """Make an earlier version champion again. This changes something: whoever uses the champion
        gets that one.

        to: the version; empty for the champion before this one. show_model lists versions with the
        time of their upload, and in its history who was champion when. reason: for the history.
        """
        return self._move(
            model,
            lambda chosen: chosen.rollback(to or None, reason=reason or _BY_TOOL, dry_run=dry_run),
            dry_run,
        )

    def _move(self, name: str, move: Callable[[Model], Promotion], dry_run: bool) -> Answer:
        model = podium.registry(self._look.storage)[name]
        before = model.champion_id
        moved = move(model)
        return {
            "dry_run": dry_run,
            "model": name,
            "champion_before": before,
            "champion": moved.version,
            "reasons": moved.decision.reasons if moved.decision else (),
        }

    def stop(self, name: str, kind: Literal["run", "sweep"], dry_run: bool = False) -> Answer:
        """Stop a run or a sweep that is running. This changes something: its trials and trainings
        end; finished ones are kept.

        name: id of a run, or name of a sweep.
        """
        if kind == "run":
            run = podium.runs()[name]
            before, name = run.state, run.id
            after = "stopped" if before == "running" else before
            after = after if dry_run else run.stop().state
        else:
            with self._look.open_sweep(name, "") as sweep:
                before, ended = sweep.status.lower(), sweep.experiment.state.finished
                after = before if ended else "stopping"
                if not (dry_run or ended):
                    sweep.stop()
        return {"dry_run": dry_run, kind: name, "state_before": before, "state": after}

    def annotate_run(
        self,
        run: str,
        note: str | None = None,
        tags: list[str] | None = None,
        dry_run: bool = False,
    ) -> Answer:
        """Set the note or the tags of a run. This changes something: they replace those that the
        run has.

        run: an id or "latest". note: one line or several; "" removes it. tags: the complete list.
        """
        chosen = podium.runs()[run]
        before = Annotations.read(chosen.directory)

        def change(written: Annotations) -> Annotations:
            if note is not None:
                written = written.noted(note)
            return written if tags is None else replace(written, tags=()).tagged(tags)

        after = change(before) if dry_run else Annotations.edit(chosen.directory, change)
        return {
            "dry_run": dry_run,
            "run": chosen.id,
            "note_before": before.note,
            "tags_before": before.tags,
            "note": after.note,
            "tags": after.tags,
        }

    @property
    def tools(self) -> Mapping[str, Any]:
        return {
            tool.__name__: tool
            for tool in (
                self.run,
                self.tune,
                self.promote,
                self.rollback,
                self.stop,
                self.annotate_run,
            )
        }
