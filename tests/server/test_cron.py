"""Cron as the KFP scheduler reads it: six fields, seconds first."""

from datetime import UTC, datetime

import pytest

from podium.errors import InvalidInput
from podium.kfp.schedule_files import check, next_times

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_a_crontab_of_five_fields_is_caught_and_converted() -> None:
    with pytest.raises(InvalidInput, match="the five of a crontab: '0 3") as caught:
        check("0 3 * * *")
    assert caught.value.hint == 'write "0 0 3 * * *", with the second in front'


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("0 0 3 * * *", "2026-11-22 03:00:00"),
        ("30 */15 * * * *", "2026-11-21 12:00:30"),
        ("0 0 9 ? * MON-FRI", "2026-11-23 09:00:00"),
        ("0 0 0 1 1 *", "2027-01-01 00:00:00"),
        ("0 0 0 29 2 *", "2028-02-29 00:00:00"),
        ("5/20 0 12 * * *", "2026-11-21 12:00:05"),
        ("0 0 0 13 * 5", "2026-11-27 00:00:00"),  # day or weekday where both are given
        ("0 0 0 2-22,* * 3", "2026-11-25 00:00:00"),  # a star anywhere in a list restricts nothing
        ("0 0 0 25 * 1-3,?", "2026-11-25 00:00:00"),
        ("0 0 0 24-30 * */7", "2026-11-29 00:00:00"),
        ("0 0 0 * * 2/5", "2026-11-24 00:00:00"),  # Saturday is the last day of a week
        ("0 0 0 * * 6/1", "2026-11-28 00:00:00"),
        ("0 0 0 * * */17", "2026-11-22 00:00:00"),
        ("0 0 0 * * 1,Sat/2", "2026-11-23 00:00:00"),
        ("0 0 0 15-15/2 * *", "2026-12-15 00:00:00"),  # a range of one value has no second one
        ("@daily", "2026-11-22 00:00:00"),
        ("  @Hourly ", "2026-11-21 13:00:00"),
    ],
)
def test_the_next_time_is_shown(expression: str, first: str) -> None:
    assert f"{next_times(expression, 1, START)[0]:%Y-%m-%d %H:%M:%S}" == first


def test_five_times_follow_each_other() -> None:
    assert [time.day for time in next_times("0 0 3 * * *", 5, START)] == [22, 23, 24, 25, 26]


@pytest.mark.parametrize(
    "expression",
    ["", "0 0 3 * *  * *", "60 0 3 * * *", "0 0 24 * * *", "0 0 0 L * *", "0 0 0 * * 5#2", "0 0 0 * * 5L",
     "0 0 0 * * 7", "0 0 0 15W * *", "@every 1h", "@reboot", "0 0 0 31 2 *", "a b c d e f", "0 0 0 5-1 * *",
     "0 */0 * * * *", "0 0 0 15-15/0 * *", "0 0 0 * * 6/0"],
)  # fmt: skip
def test_what_the_scheduler_would_not_take_is_refused(expression: str) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"six fields|no schedule is called|the scheduler does not support|not a cron expression",
    ):
        check(expression)
