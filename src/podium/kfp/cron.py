"""Cron expressions as the scheduler of Kubeflow Pipelines reads them: robfig/cron v1, six fields,
seconds first.

The scheduler lets the last field be omitted, so it accepts a crontab's five fields and misreads
them: ``0 3 * * *`` runs at minute 3 of every hour, not daily at three.
"""

import re
from datetime import UTC, datetime

from podium.errors import InvalidInput

DESCRIPTORS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}

FIELDS = "second minute hour day-of-month month day-of-week"


def check(expression: str) -> str:
    """Check a cron expression and return it as six fields.

    Args:
        expression: Six fields, or a descriptor such as @daily.

    Raises:
        InvalidInput: It has the five fields of a crontab (the hint converts it), a field is out of
            range, or it uses what the scheduler does not support: @every, L, W, #, day-of-week 7.
    """
    text = " ".join(expression.split())
    text = DESCRIPTORS.get(text.lower(), text)
    if text.startswith("@"):
        raise InvalidInput(
            f"no schedule is called {expression!r}",
            f"six fields, or one of {', '.join(DESCRIPTORS)}",
        )
    count = len(text.split())
    if count == 5:
        problem = f"cron has six fields, {FIELDS}, but got the five of a crontab: {expression!r}"
        raise InvalidInput(problem, f'write "0 {text}", with the second in front')
    if count != 6:
        raise InvalidInput(f"cron has six fields, {FIELDS}, but got {expression!r}")
    _iterator(text, datetime.now(UTC))
    return text


def next_times(expression: str, count: int = 5, after: datetime | None = None) -> list[datetime]:
    """Return when a schedule fires next in UTC, the scheduler's zone unless CRON_SCHEDULE_TIMEZONE
    is set there.

    Args:
        expression: The argument of check.
        after: Start; now if None.

    Raises:
        InvalidInput: As check.
    """
    times = _iterator(check(expression), after or datetime.now(UTC))
    return [next(times) for _ in range(count)]


def _iterator(text: str, after: datetime):  # type: ignore[no-untyped-def]  # cronsim is loaded here only
    from cronsim import CronSim, CronSimError

    day, weekday = text.split()[3], text.split()[5].upper()
    known = not re.search(r"[LW#]", day.upper()) and not re.search(r"#|\dL|7", weekday)
    if not known:
        raise InvalidInput(
            f"the scheduler knows no L, W, # and no day-of-week 7, but got {text!r}", "Sunday is 0"
        )
    try:
        return CronSim(text.replace("?", "*"), after.astimezone(UTC))
    except CronSimError as error:
        fields = f"fields are {FIELDS}; * any, 1-5 range, */10 step, 1,15 list"
        raise InvalidInput(f"not a cron expression: {text!r}: {error}", fields) from error
