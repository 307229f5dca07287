"""Tools that only look: runs, sweeps, models, logs. Each calls what `import podium` offers."""

import shlex
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import podium
from podium.api.cluster_spec import ClusterSpec
from podium.api.sweep_list import list_sweeps
from podium.display.text import cut
from podium.errors import PodiumError, require
from podium.manifests.experiment import leaderboard
from podium.runner.run import Run
from podium.runner.runs import differing

MOST_LINES, MOST_ITEMS = 2000, 10
_LONGEST_LINE = 2000
"""Columns of a line of a log."""

_DETAILS = ("directory", "outputs", "parameters", "steps")
"""Of a run, that are in no list."""

Answer = dict[str, Any]


class Look:
    """Tools that change nothing. Their docstrings are what the model reads of them.

    Args:
        spec: The cluster whose sweeps are shown; those of runs are in clusters of their own.
        storage: URL of the registry; None for that of PODIUM_HOME.
    """

    def __init__(self, spec: ClusterSpec, storage: str | None) -> None:
        self.spec, self.storage = spec, storage

    def list_runs(self, tag: str = "", last: int = 20) -> Answer:
        """List pipeline runs on this machine, oldest first: state, duration in seconds, tags, note
        and result.

        tag: only runs with this tag. last: at most this many of the newest.
        """
        require(1 <= last <= 1000, "1 <= last <= 1000", last=last)
        found = [run for run in podium.runs().all if not tag or tag in run.record.tags]
        return {
            "runs": [_entry(run) for run in found[-last:]],
            "not_shown": max(0, len(found) - last),
        }

    def show_run(self, run: str) -> Answer:
        """Show a run: parameters that differ from the defaults, steps, outputs, test metrics,
        decision with reasons.

        run: an id, the beginning of one, or "latest".
        """
        shown = podium.runs()[run]
        with suppress(PodiumError):
            outcome = shown.outcome
            parts = [part for part in ("metric", "test", "decision", "report") if part in outcome]
            return shown.to_json() | {"outcome": {part: outcome[part] for part in parts}}
        return shown.to_json()

    def compare_runs(self, runs: list[str]) -> Answer:
        """Compare runs: the parameters in which they differ, the result and the test metrics of
        each.

        runs: ids, or beginnings of ids. null is the pipeline's default. The models of two runs are
        compared item by item by compare_versions: a version has the id of its run.
        """
        require(len(runs) >= 2, "at least two runs are compared", runs=runs)
        chosen = [podium.runs()[name] for name in runs]
        names = differing(chosen)
        return {
            "runs": [
                {
                    **_entry(run),
                    "parameters": {name: run.parameters.get(name) for name in names},
                    "test": _test_metrics(run),
                }
                for run in chosen
            ]
        }

    def run_logs(self, run: str, what: str = "", last_lines: int = 200) -> Answer:
        """Return the last lines that a run printed, as data.

        run: an id or "latest". what: one of its steps, trials or jobs; empty for all steps.
        """
        return _last(podium.runs()[run].printed(what or None), last_lines)

    def list_sweeps(self) -> Answer:
        """List sweeps (hyperparameter searches) that were begun by themselves, oldest first: state,
        trials, best value.

        The sweep inside of a run is in show_sweep(run=...).
        """
        return {"sweeps": list_sweeps(self.spec)}

    def show_sweep(self, sweep: str = "", run: str = "", best: int = 20) -> Answer:
        """Show a sweep: state, number of trials by state, and the leaderboard: its trials, best
        first, with number, parameters and metrics.

        number: 1 is the trial that started first. sweep: its name. run: in place of a name, the run
        whose sweep it is. best: at most this many trials.
        """
        require(1 <= best <= 1000, "1 <= best <= 1000", best=best)
        with self.open_sweep(sweep, run) as opened:
            results = opened.results
            numbers = {trial.name: number for number, trial in enumerate(results, 1)}
            trials = leaderboard(results)
            sure = opened.standing(trials)
            return {
                **opened.to_json(),
                "leaderboard": [
                    {"number": numbers[trial.name], **trial.to_json(), **sure.to_json(trial.name)}
                    for trial in trials[:best]
                ],
                "standing": sure.remark,
                "not_shown": max(0, len(trials) - best),
            }

    def trial_logs(
        self, sweep: str = "", trial: str = "", run: str = "", last_lines: int = 200
    ) -> Answer:
        """Return the last lines that a trial of a sweep printed, as data.

        sweep, run: as for show_sweep. trial: its name or its number; empty for the best one, or the
        first that failed.
        """
        with self.open_sweep(sweep, run) as opened:
            if trial.isdecimal():
                names = [result.name for result in opened.results]
                require(
                    1 <= int(trial) <= len(names), f"1 <= trial <= {len(names)}", trial=int(trial)
                )
                trial = names[int(trial) - 1]
            return _last(opened.logs(trial or None).splitlines(), last_lines)

    def list_models(self) -> Answer:
        """List the models of the registry: number of versions, the champion, and what it was judged
        by."""
        overviews = [model.overview() for model in podium.registry(self.storage).select()]
        return {"models": [overview.to_json() for overview in overviews]}

    def show_model(self, model: str, version: str = "", last: int = 10) -> Answer:
        """Show a model: its versions with test metrics, aliases such as champion, why the champion
        changed, and the commands that serve it.

        version: add the metrics and hyperparameters of this one (an id, or "champion"). last: at
        most this many events of the history. commands: for the user's shell, as this server runs
        none; serve answers by the Open Inference Protocol until it is stopped.
        """
        registry = podium.registry(self.storage)
        shown = registry[model]
        commands = {
            "serve": shlex.join(["podium", "serve", model, "--storage", registry.url]),
            "inputs": f"curl http://127.0.0.1:8080/v2/models/{model}",
        }
        events = [record.to_json() for record in shown.records()[-last:]]
        answer = {**shown.versions.to_json(), "history": events, "commands": commands}
        if version:
            found = shown.version(version)
            answer["version"] = {
                **found.to_json(),
                "metrics": found.metrics,
                "hyperparameters": found.hyperparameters,
            }
        return answer

    def compare_versions(self, model: str, first: str, second: str) -> Answer:
        """Compare two versions on the test part both were evaluated on: metrics, a paired test,
        classes, changed items.

        first, second: ids or aliases such as champion. gained and lost: what the second does better
        and worse, some of each; items_gained and items_lost: how many.
        """
        from podium.models.difference import of_versions

        shown = podium.registry(self.storage)[model]
        versions = shown.version(first), shown.version(second)
        change = of_versions(versions)[1].to_json()
        change |= {way: change[way][:MOST_ITEMS] for way in ("gained", "lost")}
        return {"first": versions[0].version, "second": versions[1].version, **change}

    def open_sweep(self, sweep: str, run: str) -> "podium.Sweep":
        """Return a sweep by its name, or that of a run."""
        require(bool(sweep) != bool(run), "either sweep or run is named", sweep=sweep, run=run)
        return podium.runs()[run].sweep if run else podium.open_sweep(sweep, cluster=self.spec)

    @property
    def tools(self) -> Mapping[str, Any]:
        return {
            tool.__name__: tool
            for tool in (
                self.list_runs,
                self.show_run,
                self.compare_runs,
                self.run_logs,
                self.list_sweeps,
                self.show_sweep,
                self.trial_logs,
                self.list_models,
                self.show_model,
                self.compare_versions,
            )
        }


def _entry(run: Run) -> Answer:
    """Return a run in a list, without what show_run tells: a model reads every word."""
    return {name: value for name, value in run.to_json().items() if name not in _DETAILS}


def _test_metrics(run: Run) -> dict[str, float]:
    with suppress(PodiumError):
        return run.metrics
    return {}


def _last(lines: Iterable[str], most: int) -> Answer:
    require(1 <= most <= MOST_LINES, f"1 <= last_lines <= {MOST_LINES}", last_lines=most)
    kept: deque[str] = deque(maxlen=most)
    count = 0
    for line in lines:
        kept.append(line)
        count += 1
    return {
        "lines": [cut(line, _LONGEST_LINE) for line in kept],
        "earlier_lines": count - len(kept),
    }
