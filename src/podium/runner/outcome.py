"""The outcome of a finished run: leaderboard, champion, and paths of model, report and run."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from podium.display.tables import fold, screen_width, table
from podium.display.terminal import Styled
from podium.display.text import cut, figure, harmless, one_line, relative
from podium.errors import PodiumError
from podium.files.documents import parse, read_json
from podium.kfp.values import PIPELINES
from podium.reports import Step, complete
from podium.reports.leaderboard import Leaderboard
from podium.runner.record import RunRecord
from podium.runner.steps import OUTPUT
from podium.storage import local_path
from podium.training.handover import Evaluation
from podium.training.kept_logs import hide

_log = logging.getLogger("podium")

REPORT = "report.html"
"""File in a run's directory."""

LONGEST = 200
"""Characters shown of an output."""


@dataclass(frozen=True, kw_only=True)
class _Artifact:
    name: str = ""
    uri: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Artifacts:
    artifacts: list[_Artifact] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _StepOutput:
    """The file that a KFP component leaves (kfp: ExecutorOutput in pipeline_spec.proto)."""

    parameterValues: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, _Artifacts] = field(default_factory=dict)


def outcome_of(run: RunRecord) -> dict[str, Any]:
    """Collect the results of a run's steps, and copy the report into the run's directory.

    Returns:
        Leaderboard, candidates, decision and paths; of a pipeline without these steps, or a run
        that has not succeeded, what its steps and it put out.
    """
    if run.state != "succeeded" or not _judges(run):
        outputs = {"step_outputs": _step_outputs(run), "outputs": run.outputs}
        return {**_steps(run), **outputs, "directory": str(run.directory)}
    evaluation = asdict(Evaluation.read(_artifact(run, "evaluate", "evaluation")))
    decision = read_json(_artifact(run, "promote-best", "decision"))
    return {
        **_steps(run),
        **{name: evaluation[name] for name in ("sweep", "candidates", "winner", "metric")},
        "dataset": {
            name: evaluation["dataset"][name]
            for name in ("name", "digest", "test_digest", "test_part")
        },
        "test": {name: evaluation["test"][name] for name in ("metrics", "count")},
        "decision": decision,
        "report": _report(run, decision),
        "directory": str(run.directory),
        "storage": decision["storage"],
    }


def _judges(run: RunRecord) -> bool:
    # Steps of these names may do something else in a user's pipeline.
    judged = {"evaluate": "evaluation", "promote-best": "decision"}
    if run.pipeline.replace("_", "-") in PIPELINES:
        return judged.keys() <= run.steps.keys()
    return all(_files(run, step, name) for step, name in judged.items())


def _report(run: RunRecord, decision: Mapping[str, Any]) -> str:
    """Write the report, now with steps and command, into the run's directory; empty, with a
    warning, if that fails.

    Returns:
        Its path.
    """
    target = run.directory / REPORT
    steps = [
        Step(title=step.title, state=step.state, seconds=step.elapsed)
        for step in run.steps.values()
    ]
    try:
        written = _artifact(run, "promote-best", "report").read_text()
        command = hide(run.command({}), ())  # a report is handed around
        target.write_text(complete(written, steps, command, _champion_report(run, decision)))
    except OSError as error:
        _log.warning(
            f"warning: run {run.id} succeeded, but {target} cannot be written: {error.strerror}"
        )
        return ""
    return str(target)


def _champion_report(run: RunRecord, decision: Mapping[str, Any]) -> str:
    # Relative: a directory of runs that is copied keeps its links.
    made = str(decision.get("champion_run") or "")
    if Path(made).name != made or not (run.directory.parent / made / REPORT).is_file():
        return ""
    return f"../{made}/{REPORT}"


def _steps(run: RunRecord) -> dict[str, Any]:
    steps = {name: step.to_json() for name, step in run.steps.items()}
    return {"run": run.id, "pipeline": run.pipeline, "steps": steps}


def _step_outputs(run: RunRecord) -> dict[str, dict[str, Any]]:
    """Return the outputs of finished steps, by step and name: values, metrics, and the URIs of
    other artifacts."""
    outputs: dict[str, dict[str, Any]] = {}
    for step, record in run.steps.items():
        files = _files(run, step, OUTPUT)
        # It did not run with these values.
        if record.state not in ("succeeded", "cached") or not files:
            continue
        written = parse(_StepOutput, read_json(files[-1]), str(files[-1]))
        outputs[step] = dict(written.parameterValues)
        for name, held in written.artifacts.items():
            listed = [artifact.metadata or artifact.uri for artifact in held.artifacts]
            outputs[step][name] = listed[0] if len(listed) == 1 else listed
    return outputs


_MOST_OUTPUTS = 40
"""Outputs of steps that are listed; a loop may have thousands."""


def put_out(outcome: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the steps of any pipeline put out, the last ones of many, and the pipeline itself,
    each as a short text."""
    of_steps = [
        (f"{step}  {name}", value)
        for step, outputs in outcome.get("step_outputs", {}).items()
        for name, value in outputs.items()
    ]
    if hidden := len(of_steps[:-_MOST_OUTPUTS]):
        run = Path(outcome["directory"]).name
        yield f"{hidden} earlier ones", f"podium runs show {run} --json lists all"
    listed = [*of_steps[-_MOST_OUTPUTS:], *outcome.get("outputs", {}).items()]
    yield from ((name, _brief(value)) for name, value in listed)


def show(outcome: Mapping[str, Any]) -> Styled:
    """Format an outcome as text, no wider than the terminal."""
    if "decision" not in outcome:
        width = screen_width()
        rows = [*map(list, put_out(outcome)), ["run", relative(outcome["directory"])]]
        *lines, path = _columns(rows).splitlines()
        return Styled(
            harmless("\n".join([*(cut(line, width) if width else line for line in lines), path]))
        )
    sweep, decision = outcome["sweep"], outcome["decision"]
    parts: list[str] = [_leaderboard(sweep)] if sweep else []
    parts += [_candidates(outcome), _verdict(outcome, decision), _paths(outcome, decision)]
    return Styled(
        "\n\n".join(part if isinstance(part, Styled) else harmless(part) for part in parts)
    )


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name} {_brief(part)}" for name, part in value.items())
    text = one_line(relative(str(value)))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _files(run: RunRecord, step: str, name: str) -> list[Path]:
    # The last attempt's is last.
    return sorted(run.directory.glob(f"artifacts/*/{step}/{name}"))


def _artifact(run: RunRecord, step: str, name: str) -> Path:
    files = _files(run, step, name)
    if not files:
        raise PodiumError(f"step {step} of run {run.id} left no {name}", f"see {run.log(step)}")
    return files[-1]


def _leaderboard(sweep: Mapping[str, Any]) -> Styled:
    title = harmless(f"Leaderboard of {sweep['algorithm']} search")
    width = screen_width()
    return Styled(f"{title}\n{_indented(Leaderboard.read(sweep).text(width=width and width - 2))}")


def _candidates(outcome: Mapping[str, Any]) -> Styled:
    metric = outcome["metric"]["name"]
    rows = []
    for candidate in outcome["candidates"]:
        value = figure(candidate["validation"]["metrics"][metric])
        rows.append(
            [f"{candidate['kind']} {candidate['name']}", value, str(len(candidate["epochs"]))]
        )
    head = ["candidate", f"validation {metric}", "epochs"]
    width = screen_width()
    drawn = table(head, rows, width=width and width - 2, drop=["epochs"], shorten="candidate")
    note = "the validation part chose epoch, trial and candidate: its figures are optimistic"
    return Styled(f"Candidates\n{_indented(drawn)}\n{fold(note, width, indent='  ', hang='  ')}")


def _indented(drawn: str) -> str:
    return "\n".join(f"  {line}" for line in drawn.splitlines())


def _verdict(outcome: Mapping[str, Any], decision: Mapping[str, Any]) -> str:
    test, name = outcome["test"], decision["model_name"]
    metric = outcome["metric"]["name"]
    measured = f"test {metric} {figure(test['metrics'][metric])} on {test['count']} items"
    if decision["outcome"] == "promoted":
        head = f"Champion of {name}: {decision['version']}, {measured}. Promoted."
    else:
        champion = decision["champion"]
        stays = (
            f"Champion of {name} stays {champion}" if champion else f"{name} has no champion yet"
        )
        head = f"{stays}. {decision['version']} reached {measured}."
    width = screen_width()
    reasons = (fold(reason, width, indent="  ", hang="      ") for reason in decision["reasons"])
    return "\n".join([fold(head, width), *reasons])


def _paths(outcome: Mapping[str, Any], decision: Mapping[str, Any]) -> str:
    store = str(local_path(outcome["storage"]) or outcome["storage"])
    model = f"{relative(store)}/models/{decision['model_name']}/versions/{decision['version']}"
    report = relative(outcome["report"]) or "none: it could not be written"
    return _columns([["model", model], ["report", report], ["run", relative(outcome["directory"])]])


def _columns(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(f"  {line.rstrip()}" for line in lines)
