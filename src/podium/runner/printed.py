"""What the steps, trials and jobs of a run have printed."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from podium.cluster import connect
from podium.errors import NotFound, suggestion
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.resource import Resource
from podium.runner.runs import Run
from podium.steps.kept_logs import KeptLogs


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What one of them printed."""

    title: str
    """Its name; empty where there is only one."""

    lines: Iterable[str]
    """Without line ends."""


def printed(run: Run, what: str | None = None) -> Iterator[Printed]:
    """Yield what a run on this machine has printed.

    Args:
        what: A step, a trial or a job; None for all steps.

    Raises:
        NotFound: There is none of this name, or it has printed nothing.
    """
    if what is None:
        written = [step for step in run.steps if run.log(step).is_file()]
        yield from (Printed(title=step, lines=_lines(run.log(step))) for step in written)
    elif what in run.steps:
        if not run.log(what).is_file():
            raise NotFound(f"step {what} of run {run.id} has printed nothing", f"it is {run.steps[what].state}")
        yield Printed(title="", lines=_lines(run.log(what)))
    else:
        yield from _of_job(run, what)


def _lines(log: Path) -> Iterator[str]:
    with log.open(errors="replace") as lines:
        for line in lines:
            yield line.rstrip("\n")


def _of_job(run: Run, name: str) -> Iterator[Printed]:
    with connect(f"local://{run.cluster}") as cluster:
        for kind in ("Trial", *JOB_KINDS):
            with suppress(NotFound):
                yield Printed(title="", lines=list(cluster.logs(kind, name)))
                return
        if kept := run.kept_logs:
            yield from of_kept(kept, name)
            return
        names = [*run.steps, *(Resource.parse(trial).name for trial in cluster.list("Trial"))]
    raise NotFound(f"run {run.id} has no step, trial or job {name!r}", suggestion(name, names))


def of_kept(kept: KeptLogs, what: str | None) -> Iterator[Printed]:
    """Yield what a run on a cluster has printed, as its storage keeps it.

    Args:
        what: A step, a trial or ``train``; None for all steps.

    Raises:
        NotFound: None is kept.
    """
    names = kept.of(what)
    for name in names:
        title = name.removeprefix("steps/") if len(names) > 1 else ""
        yield Printed(title=title, lines=kept.read(name).splitlines())
