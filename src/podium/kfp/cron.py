"""Cron expressions as the scheduler of Kubeflow Pipelines reads them: robfig/cron v1, six fields, seconds first.

Its last field may be left out, so that a crontab's five fields are taken without a word and mean something else:
``0 3 * * *`` runs at minute 3 of every hour, not daily at three.
"""

import re
from datetime import UTC, datetime

from podium.errors import InvalidInput, require

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
    """Return a cron expression as six fields, or say what is wrong with it.

    Args:
        expression: Six fields, or a descriptor such as @daily.

    Raises:
        InvalidInput: A crontab of five fields (the hint converts it), a field out of range, or what the scheduler
            does not know: @every, L, W, #, day-of-week 7.
    """
    text = " ".join(expression.split())
    text = DESCRIPTORS.get(text.lower(), text)
    require(not text.startswith("@"), f"cron is six fields or one of {', '.join(DESCRIPTORS)}", cron=expression)
    count = len(text.split())
    if count == 5:
        law = f"`cron has six fields, {FIELDS}` must hold, but got the five of a crontab: {expression!r}"
        raise InvalidInput(law, f'write "0 {text}", with the second in front')
    require(count == 6, f"cron has six fields, {FIELDS}", cron=expression)
    _iterator(text, datetime.now(UTC))
    return text


def next_times(expression: str, count: int = 5, after: datetime | None = None) -> list[datetime]:
    """Return when a schedule fires next, in UTC, the zone of the scheduler unless CRON_SCHEDULE_TIMEZONE is set there.

    Args:
        expression: As check takes it.
        count: How many times.
        after: From when on; now if None.

    Raises:
        InvalidInput: As check.
    """
    times = _iterator(check(expression), after or datetime.now(UTC))
    return [next(times) for _ in range(count)]


def _iterator(text: str, after: datetime):  # type: ignore[no-untyped-def]  # cronsim is loaded here only
    from cronsim import CronSim, CronSimError

    day, weekday = text.split()[3], text.split()[5].upper()
    known = not re.search(r"[LW#]", day.upper()) and not re.search(r"#|\dL|7", weekday)
    require(known, "cron uses no L, W, # and no day-of-week 7", "Sunday is 0", cron=text)
    try:
        return CronSim(text.replace("?", "*"), after.astimezone(UTC))
    except CronSimError as error:
        fields = f"fields are {FIELDS}; * any, 1-5 range, */10 step, 1,15 list"
        raise InvalidInput(f"`cron is valid` must hold, but got cron={text!r}: {error}", fields) from error
