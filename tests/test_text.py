"""Figures as people read them."""

import pytest

from podium.display.text import apart, brief, digits, duration, figure
from podium.reports.leaderboard import short


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (92127.3, "92,130"),
        (1234567.0, "1,235,000"),
        (-25381.9, "-25,380"),
        (1234.5, "1234"),
        (12.345, "12.35"),
        (0.98765, "0.9877"),
        (0.0000123, "1.23e-05"),
        (0.0, "0.0000"),
        (3.2e14, "3.2e+14"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_a_price_has_no_exponent(value: float, text: str) -> None:
    assert figure(value) == text


def test_differences_have_a_sign_and_texts_stay() -> None:
    assert (digits(25381.9, sign="+"), digits(-0.5, sign="+")) == ("+25,380", "-0.5")
    assert (brief("92127.3"), brief("adamw")) == ("92,130", "adamw")
    assert (brief("16384"), brief(12345), brief("1e-5")) == ("16384", "12345", "1e-05")
    assert (digits(1234, 3), digits(123.4, 3), digits(99996, 4)) == ("1,230", "123", "100,000")


@pytest.mark.parametrize("name", ["007", "1_000_000_000", "0123456789", "infinity", "nan"])
def test_a_name_of_digits_stays(name: str) -> None:
    assert (brief(name), short(name)) == (name, name)


def test_large_values_are_told_apart() -> None:
    assert apart(92127.31, 92127.32) == "92,127.31"
    assert apart(92127.0, 92127.0) == "an equal 92,130"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (99.94, "99.9 s"),
        (99.97, "1 min 40 s"),
        (119.7, "2 min 00 s"),
        (3599.6, "60 min 00 s"),
    ],
)
def test_no_minute_has_sixty_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text
