"""Follow a job: its log as it comes, the metrics in it, and how it ends."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence

from podium.cluster.base import Cluster, goes_on
from podium.errors import Failed, PodiumError
from podium.manifests.conditions import State
from podium.metrics import PACE, RESUMED, number, parse_line
from podium.training.base import say


def follow(
    cluster: Cluster, kind: str, name: str, metrics: Sequence[str] = (), formats: Sequence[str] = ()
) -> list[dict[str, float]]:
    """Show the log of the replica that reports metrics until the job ends.

    Args:
        metrics: Whose lines are shown as progress.
        formats: metricsFormat of the lines; none stands for Katib's default.

    Returns:
        The metrics of each such line.

    Raises:
        Failed: The job failed.
    """
    # The log may never begin (an image that cannot be pulled), so the job's end is watched
    # separately.
    epochs: list[dict[str, float]] = []
    reader = threading.Thread(
        target=show_log, args=(cluster, kind, name, metrics, formats, epochs), daemon=True
    )
    reader.start()
    state = cluster.get(kind, name).state
    waited = ""
    for resource in cluster.watch(kind, name):
        state = resource.state
        waited = _say_waiting(f"{kind} {name}", state, waited)
    reader.join(timeout=10)
    if not state.finished:
        raise Failed(f"somebody deleted {kind} {name} while it ran", "run the step again")
    if not state.succeeded:
        raise cluster.failure(kind, name)
    return epochs


def _say_waiting(job: str, state: State, said: str) -> str:
    """Print why a job waits for its queue where that is new, and when it is admitted; return what
    was said last."""
    why = state.message if state.phase == "Waiting" else ""
    if why and why != said:
        say(f"{job} waits. {why}")
    elif said and not why:
        say(f"{job} is admitted")
    return why


def show_log(
    cluster: Cluster,
    kind: str,
    name: str,
    metrics: Sequence[str],
    formats: Sequence[str],
    epochs: list[dict[str, float]],
    whose: str = "",
) -> None:
    """Print the log of the replica that reports metrics as it comes, each line of metrics and each
    notice as progress.

    Args:
        metrics: To look for, the objective first.
        formats: metricsFormat of the lines; none stands for Katib's default.
        epochs: Gets the metrics of each line that has some.
        whose: Put before each line of progress.
    """
    try:
        for line, values, more in _measured(
            cluster.logs(kind, name, follow=True), metrics, formats
        ):
            if values:
                if more:
                    epochs[-1] |= values
                else:
                    epochs.append(values)
                say(
                    f"{whose}epoch {len(epochs)}: {' '.join(f'{name}={value:g}' for name, value in values.items())}"
                )
            elif line.startswith(PACE):
                say(whose + line.removeprefix(PACE))
            elif line.startswith("notice: "):
                say(whose + line)
            else:
                if line.startswith(RESUMED):
                    epochs.clear()  # those that finished are printed again
                print(line, flush=True)
    except PodiumError as error:
        # Only the job's state decides whether the step failed.
        print(f"the log of {kind} {name} breaks off: {error.message}", file=sys.stderr, flush=True)


def epochs_of(
    lines: Iterable[str], metrics: Sequence[str], formats: Sequence[str], most: int = sys.maxsize
) -> list[dict[str, float]]:
    """Return the metrics of each line that has some, once for an epoch that a restarted training
    printed again.

    Args:
        metrics: As of show_log, and formats too.
        most: How many lines at most; of more some are left out, evenly.
    """
    epochs, every, at, last = list[dict[str, float]](), 1, 0, dict[str, float]()
    for line, values, more in _measured(lines, metrics, formats):
        if line.startswith(RESUMED):
            epochs, every, at = [], 1, 0
        elif more:
            last |= values
        elif values:
            last = values
            epochs += [last] if at % every == 0 else []
            at += 1
            if len(epochs) > most:
                epochs, every = epochs[::2], 2 * every
    return epochs


def _measured(
    lines: Iterable[str], metrics: Sequence[str], formats: Sequence[str]
) -> Iterator[tuple[str, dict[str, float], bool]]:
    """Yield each line, its metrics, and whether they are a later state of the progress bar whose
    metrics came last: of one bar the last state counts."""
    has_some = False
    for line in lines:
        values = read_metrics(line, metrics, formats)
        yield line, values, has_some and bool(values)
        has_some = (has_some or bool(values)) and goes_on(line)


def read_metrics(line: str, metrics: Sequence[str], formats: Sequence[str]) -> dict[str, float]:
    """Return the finite metrics in a line, by name."""
    readings = {
        reading.name: number(reading.value) for reading in parse_line(line, metrics, formats)
    }
    return {name: value for name, value in readings.items() if value is not None}
