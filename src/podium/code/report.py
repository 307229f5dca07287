"""Metric lines of a tuned function or script, one per epoch."""

from collections.abc import Mapping
from typing import SupportsFloat

from podium.errors import InvalidInput
from podium.metrics import metric_line
from podium.system.arguments import checked, plain


@checked
def report(
    values: Mapping[str, SupportsFloat | str] | None = None,
    /,
    *,
    step: float | None = None,
    **named: SupportsFloat | str,
) -> None:
    """Print the metrics of an epoch at once, so that an unpromising trial can be stopped early.

    One call prints one line, which podium and Katib read; outside of a trial it is printed, too.

    Args:
        values: Finite numbers by name, for names that are no Python words: ``{"val-loss": 0.3}``.
        step: Number of the epoch, for those who read the log.
        **named: More of them: ``loss=0.3``.

    Raises:
        InvalidInput: There is no number, one is not finite, a name is given twice, or Katib would
            not read it.

    Example:
        >>> import podium
        >>> podium.report(loss=0.3)  # doctest: +ELLIPSIS
        20...Z loss=0.3
    """
    metrics = dict(values or {})
    if twice := sorted(metrics.keys() & named.keys()) or [
        *(["step"] if step is not None and "step" in metrics else [])
    ]:
        raise InvalidInput(f"{twice[0]} is reported twice in one call", "give each metric once")
    metrics |= named
    if not metrics:
        raise InvalidInput("nothing is reported", "podium.report(loss=0.3)")
    numbers = dict[str, float]()
    for name, value in metrics.items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"{name} is {value!r:.60}, not a number", "podium.report(loss=0.3)"
            ) from None
    count = "" if step is None else f" step={plain(step)}"
    print(f"{metric_line(numbers)}{count}", flush=True)
