"""Tools that change something, offered with `podium mcp --allow-changes` only."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Literal

import podium
from podium.manifests.options import documented
from podium.mcp.look import Answer, Look
from podium.runner.detached import begin


class Change:
    """Tools that change something. Their docstrings are what the model reads of them, and say so.

    Args:
        look: Knows the cluster and the registry.
    """

    def __init__(self, look: Look) -> None:
        self._look = look

    def run(self, pipeline: str = "", parameters: dict[str, Any] | None = None) -> Answer:
        """Begin a run of a pipeline on this machine. This changes something: it trains, and may
        promote a model.

        It returns at once with the run's id, and the run goes on when this server ends; show_run
        tells how far it is. pipeline: tune_and_promote, train_and_promote, or FILE.py with a KFP
        pipeline; empty for that of podium.yaml in the working directory. parameters: those that
        differ from the defaults, such as {"epochs": 5}.
        """
        return begin("run", {"pipeline": pipeline, "parameters": parameters or {}})

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
    ) -> Answer:
        """Begin a sweep over the flags of a script or command. This changes something: it runs that
        program many times.

        It returns at once with the sweep's name, and the sweep goes on when this server ends;
        show_sweep tells how far it is. program: ["train.py"], or a command as words. The program
        gets --NAME=VALUE and prints lines such as accuracy=0.98. space: by name a range
        "1e-4..1e-1" or "1..8", choices [32, 64], or a fixed value. objective: NAME, min:NAME or
        max:NAME, or several, of which the first decides. prints: the library whose lines hold the
        metrics of a script that needs no change: huggingface, lightning, keras, xgboost, lightgbm,
        catboost, sklearn, colon. stop: keeps bad trials short. options: what else the sweep is
        asked, by the names below, such as {"max_time": "2h"}.
        """
        settings = {
            "objective": objective,
            "trials": trials,
            "parallel": parallel,
            "algorithm": algorithm,
            "name": name or None,
            "data": data or None,
            "prints": prints or None,
            "stop": stop or None,
            **(options or {}),
            "cluster": self._look.spec.url,
        }
        return begin("tune", {"program": program, "space": space, "settings": settings})

    tune.__doc__ = documented(tune.__doc__)

    def promote(self, model: str, version: str, rule: str = "", reason: str = "") -> Answer:
        """Make a version the champion of its model. This changes something: whoever uses the
        champion gets this one.

        rule: likely, better, not-worse, fresh, likely=.97,minimum=.9 …: only if it beats the
        present champion so; empty in any case. reason: for the history.
        """
        moved = podium.registry(self._look.storage)[model].promote(
            version, rule=rule or None, reason=reason or "by a tool of podium mcp"
        )
        reasons = moved.decision.reasons if moved.decision else ()
        return {
            "model": model,
            "champion": moved.version,
            "replaced": moved.replaced,
            "reasons": reasons,
        }

    def rollback(self, model: str, to: str = "", reason: str = "") -> Answer:
        """Make an earlier version champion again. This changes something: whoever uses the champion
        gets that one.

        to: the version; empty for the champion before this one. reason: for the history.
        """
        moved = podium.registry(self._look.storage)[model].rollback(
            to or None, reason=reason or "by a tool of podium mcp"
        )
        return {"model": model, "champion": moved.version, "replaced": moved.replaced}

    def stop(self, name: str, kind: Literal["run", "sweep"]) -> Answer:
        """Stop a run or a sweep that runs. This changes something: its trials and trainings end;
        what finished is kept.

        name: id of a run, or name of a sweep.
        """
        if kind == "run":
            run = podium.runs()[name].stop()
            return {"run": run.id, "state": run.state}
        with closing(self._look.open_sweep(name, "")) as sweep:
            sweep.stop()
            return {
                "sweep": name,
                "state": "stopping" if sweep.status == "Running" else sweep.status.lower(),
            }

    def annotate_run(
        self, run: str, note: str | None = None, tags: list[str] | None = None
    ) -> Answer:
        """Set the note or the tags of a run. This changes something: they replace those that the
        run has.

        run: an id or "latest". note: one line or several; "" removes it. tags: all that it shall
        have.
        """
        chosen = podium.runs()[run]
        if note is not None:
            chosen.note = note
        if tags is not None:
            chosen.tags = tags
        return {"run": chosen.id, "note": chosen.note, "tags": chosen.tags}

    @property
    def tools(self) -> Mapping[str, Any]:
        """The tools by name."""
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
