"""The last words of a program are its error, not the hint behind it."""

import pytest

from podium.display.text import last_said, quoted


def test_the_error_is_taken_and_not_its_hint() -> None:
    assert last_said(["epoch 1", "error: no such file", "hint: name one", ""]) == (
        "error: no such file"
    )
    assert last_said(["hint: alone"]) == "hint: alone"
    assert last_said(["", " "]) == ""


def test_the_hint_of_hydra_is_no_last_word() -> None:
    said = [
        "Could not override 'optim.lrr'.",
        "Key 'lrr' is not in struct",
        "    full_key: optim.lrr",
        "    object_type=dict",
        "",
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
    ]
    assert last_said(said) == "Key 'lrr' is not in struct"


def test_the_border_of_a_box_is_no_last_word() -> None:
    box = ["╭─ Error ──────╮", "│ No such option: --hidden_size │", "╰───────────────╯"]
    assert last_said(box) == "No such option: --hidden_size"
    assert last_said(["=====", "done"]) == "done"
    assert last_said(["***"]) == "***"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (  # absl
            "FATAL Flags parsing error: Unknown command line flag 'lrr'\n"
            "Pass --helpshort or --helpfull to see help on flags.",
            "FATAL Flags parsing error: Unknown command line flag 'lrr'",
        ),
        (  # tyro
            "╭─ Unrecognized options ───╮\n│ Unrecognized options: --lrr, 1 │\n│ ──────── │\n"
            "│ Perhaps you meant: │\n│     --lr FLOAT │\n│         (default: 0.1) │\n│ ──────── │\n"
            "│ For full helptext, run train.py --help │\n╰──────────╯",
            "Unrecognized options: --lrr, 1",
        ),
        (  # fire
            "ERROR: Could not consume arg: --lrr\nUsage: train.py - <command|value>\n"
            "  available commands:    fit\n\nFor detailed information on this command, run:\n"
            "  train.py - --help",
            "ERROR: Could not consume arg: --lrr",
        ),
        ("┌────┐\n│ ── │\n│ .9 │\n└────┘\nValueError: no rows", "ValueError: no rows"),
        (  # fire, of a function
            "ERROR: The function received no value for the required argument: data\n"
            "Usage: train.py DATA <flags>\n  optional flags:        --lr | --depth\n\n"
            "For detailed information on this command, run:\n  train.py --help",
            "ERROR: The function received no value for the required argument: data",
        ),
        ("Usage: train.py --help", "Usage: train.py --help"),
    ],
)
def test_where_help_is_found_is_no_last_word(said: str, error: str) -> None:
    assert last_said(said.splitlines()) == error


def test_of_a_progress_bar_the_last_state_is_quoted() -> None:
    bar = "\r 0%| | 0/9\r50%| | 5/9\r100%| | 9/9"
    assert quoted([bar, f"{bar}\r", "done", ""]) == ["  | 100%| | 9/9"] * 2 + ["  | done", "  | "]
