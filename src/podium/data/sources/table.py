"""A table in a CSV or Parquet file: one input ``table``, float32 [n, columns]."""

import logging
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from podium.data.contract import Contract
from podium.data.contract_check import violations
from podium.data.hashes import key_rows
from podium.data.hidden_groups import MOST_NAMES, are_series, find_beginning, share_targets
from podium.data.option_text import written
from podium.data.options import COMMON, DataOptions
from podium.data.preprocessing.table import MAX_CATEGORIES, Field, TablePreprocessing
from podium.data.rows import RowFile
from podium.data.schema import DATES, NUMBERS, Array, Column, InputDescription
from podium.data.sources.source import Raw, Source
from podium.data.sources.tabular import ROWS, Survey, open_table
from podium.data.suspects import UNIQUE
from podium.data.values import (
    AFTER,
    BEFORE,
    GROUPS,
    Guess,
    broken_text,
    to_days,
    to_numbers,
    to_text,
)
from podium.display.text import plural
from podium.errors import InvalidInput, suggestion

_log = logging.getLogger(__name__)
summary = logging.getLogger("podium.data.summary")


_MANY_CATEGORIES = 20
"""More of them are looked at: they may be names, or numbers in another notation."""

_UNIT = r"(?P<unit>[a-zµ°][A-Za-z/²³]{0,8}|[A-Z][a-z]{1,8}|[KMGT]?B?|[KMGT]|[^\W\d_a-zA-Z][^\W\d_]{0,7})"
_LIKE_NUMBER = re.compile(
    rf"[<>~≤≥≈]*{BEFORE}(?!0\d)\d+([., {GROUPS}]\d{{3}})*([.,]\d+)?\s?{_UNIT}{AFTER}\.?"
    r"|(\d+ days? )?\d+:\d\d(:\d\d)?([.,]\d+)?"
    r"|-?(?=\D*[^\W\x00-\x7f])\d+(\W\d+)?"
    r"|(?i:\d+ ?([ywdhms]|days?|hours?|hrs?|mins?|minutes?|secs?|seconds?)[ ,]*){2,}"
    r"|P(?=.*\d)(\d+[YMWD])*(T(\d+(\.\d+)?[HMS])+)?"
    r'|="(?!0\d)[\d.,]+"'
)
_WHOLE_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])?")
_LIKE_DATE = re.compile(
    r"([^\W\d]{2,9}[.,]* )?([^\W\d]{3,9}\.? \d{1,2},? \d{4}|\d{4}[-/.]\d\d?[-/.](0?[1-9]|[12]\d|3[01])"
    r"|(19|20)\d\d[-/](0?[1-9]|1[0-2])|(0?[1-9]|1[0-2])/(19|20)\d\d"
    r"|(?P<first>\d\d?)[-./ ]+((?P<second>\d\d?)|[^\W\d]{3,9}\.?)[-/., ]+\d\d(\d\d)?)"
    r"([T, ]+\d\d?[:.]\d\d.*)?"
)
"""12.3 kg, <0.5, 9,85, 12:30, １２, 1h 5m, PT5M, ="5"; and as dates 31.01.20,
Fri, Jan 31, 2020, 01/2020, 2020-01-31 10:00 CET."""

_MOST_UNITS, _FEW_WORDS = 3, 5
"""Different words after the numbers of a column that may be units, and those beside numbers that
may mean missing; more are codes."""

_COUNTED = re.compile(
    "st|nd|rd|th|er|ère|i?ème|[ºªйя]|го|класс|группа|학년|호선"
    "|.*[班级級组組号號楼层層階室期类類区區课課栋棟队隊章节節線线路番位回생生目반조호층동]"
)
"""Words that never are: 4th, 1班, 2号线; nor is any other single letter, as of house numbers."""

_LETTERS = set("kKMGTBmglshLWVAJNCF°")
"""Units of one letter."""

_TOTAL = re.compile(
    r"(?i)((grand|sub)[ -]?)?totals?:?|sum:?|(overall )?(average|mean):?|(gesamt)?summe:?|gesamt:?|mittelwert:?"
    r"|total général|moyenne|totale|totaal|suma|итого|合計|总计|합계"
)
"""How spreadsheets in several languages name a row that sums the others up."""

_BLANKS = re.compile(rf"{BEFORE}\d{{1,3}}( \d{{3}})+([.,]\d+)?{AFTER}")
"""A number whose groups of digits blanks divide."""

_EXAMPLES = 3

_MOST_CELLS = 2_000_000
"""Cells that are kept at a time to look at columns together."""

_MOST_SHOWN = 200
"""Columns that are shown with what they were read as, a line each."""

_CURRENCIES = {
    "$": "USD",
    "US$": "USD",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "円": "JPY",
    "₩": "원",
    "₹": "INR",
    "Rs": "INR",
    "R$": "BRL",
    "zł": "PLN",
    "Kč": "CZK",
    "₽": "руб",
    "₺": "TRY",
}


def _read(location: str, options: DataOptions, scratch: Path) -> Raw:
    """Read the target of a table; its input is fitted once the rows of the training part are known.

    Args:
        location: Path or URI of a CSV file (also gzipped) or a Parquet file.
        options: ``target`` is needed.
        scratch: Directory for what does not fit into memory.

    Raises:
        InvalidInput: The message names file, row and column.
    """
    seen = Survey.of(_open_file(location, options, scratch), location, options)
    fields = _choose_fields(seen, options)
    if options.contract:
        _hold(options.contract, seen, fields, options)
    _report(seen, fields, options)
    by = options.split_by or [field.name for field in fields]
    types = {name: seen.guesses[name].type for name in by}
    guess, target = seen.guesses[options.target], seen.kept[options.target]
    if not options.kind and guess.type == "text" and not guess.others.get("number"):
        texts = pc.unique(to_text(target, seen.missing_values).drop_null()).to_pylist()
        _refuse_like_numbers(seen, options.target, texts)
    raw = seen.unfitted(location, options, key_rows(seen.file, types, seen.missing_values))
    if not options.kind:
        _refuse_like_numbers(seen, options.target, raw.classes)
    if not (options.group or options.time or options.part or seen.held_out):
        _warn_of_groups(seen, options, raw.items.target)
    if options.time and not (options.group or options.cluster):
        _warn_of_series(seen, options, raw.items.target)
    return replace(raw, fit=lambda train: _fit(raw, seen, fields, options, train, scratch))


def _refuse_like_numbers(seen: Survey, target: str, texts: Sequence[str]) -> None:
    example = _like_numbers(_unread(texts), len(texts)) if len(texts) > _MANY_CATEGORIES else ""
    if example:
        raise InvalidInput(
            f"{seen.file.name}: the target {target} has {len(texts):,} different texts, but most "
            f"look like numbers or dates, such as {example!r}",
            f"{_how_to_write(example)}; if these are classes: {written('kind', 'classification')}",
        )


def _open_file(location: str, options: DataOptions, scratch: Path) -> RowFile:
    file = open_table(location, options, scratch)
    for option in ("drop", "categories", "numbers", "split_by"):
        for name in getattr(options, option):
            if name not in file.columns:
                raise InvalidInput(
                    f"{option}: {file.name} has no column {name!r}", suggestion(name, file.columns)
                )
    both = sorted(set(options.categories) & set(options.numbers))
    if both:
        raise InvalidInput(
            f"column {both[0]} cannot be both a number and a category",
            "name it in one of the options",
        )
    return file


def _choose_fields(seen: Survey, options: DataOptions) -> tuple[Field, ...]:
    """Return the columns of the input: all but those with a role, those dropped, and those without
    a value.

    Raises:
        InvalidInput: None is left.
    """
    left_out = {
        *options.roles.values(),
        *options.drop,
        *(set(seen.file.index) - {*options.categories, *options.numbers}),
    }
    fields = []
    for name, guess in seen.guesses.items():
        if name in left_out:
            continue
        if guess.count:
            fields.append(_field(guess, options))
    if not fields:
        raise InvalidInput(
            f"{seen.file.name} has no column to learn from: {', '.join(seen.file.columns)}",
            "a table has a column besides those with a role, dropped and empty ones",
        )
    return tuple(fields)


def _field(guess: Guess, options: DataOptions) -> Field:
    expected = options.contract.columns.get(guess.name) if options.contract else None
    kind = "category" if guess.type in ("boolean", "text") else "number"
    if guess.name in (*options.categories, *options.numbers):
        kind = "category" if guess.name in options.categories else "number"
    elif expected and expected.is_number:
        holds = expected.type if expected.type in DATES else "number"
        return Field(
            name=guess.name, kind="number", type=expected.type, loose=guess.others.get(holds) != 0
        )
    elif expected:
        holds = guess.type if expected.type == "category" else expected.type
        return Field(name=guess.name, kind="category", type=holds)
    return Field(name=guess.name, kind=kind, type=guess.type, loose=guess.type != guess.exact)


def _hold(contract: Contract, seen: Survey, fields: Sequence[Field], options: DataOptions) -> None:
    left_out = {*seen.file.columns} - {field.name for field in fields}
    said = violations(contract, seen.file, seen.guesses, left_out, seen.missing_values)
    if said and contract.on_violation == "refuse":
        lines = [f"{seen.file.name} breaks the data contract:", *said]
        raise InvalidInput(
            "\n  ".join(lines),
            "fix the data, or change the contract; on_violation: warn accepts them",
        )
    for sentence in said:
        _log.warning("the data contract is broken: %s", sentence)


def _report(seen: Survey, fields: tuple[Field, ...], options: DataOptions) -> None:
    """Say how columns were understood, and which of them look like a mistake."""
    chosen = {field.name: field for field in fields}
    index = set(seen.file.index) - {*options.roles.values(), *options.drop}
    _log.info("%s: %s rows, read as %s", seen.file.name, f"{seen.count:,}", seen.file.note)
    shown = set(list(chosen)[:_MOST_SHOWN])
    for name, guess in seen.guesses.items():
        if name in shown:
            is_number = chosen[name].kind == "number"
            absent = guess.missing + (guess.marks if is_number else 0)
            missing = f", {absent:,} missing" if absent else ""
            _log.info("  %s: %s (%s%s)", name, chosen[name].kind, guess.type, missing)
        if not guess.count:
            _log.warning("column %s has no value and is left out", name)
        elif name in index and name not in chosen:
            _log.warning("column %s is the index of a DataFrame and is left out", name)
        elif name in chosen and chosen[name].loose and guess.type != guess.exact:
            _log.warning(
                "column %s holds %s, but for %s such as %s, which count as missing; as categories: %s",
                name,
                "dates" if guess.type in DATES else "numbers",
                plural(guess.others[guess.type], "value"),
                " and ".join(map(repr, dict.fromkeys(guess.examples[guess.type]))),
                written("categories", name),
            )
        elif name in chosen and guess.huge:
            _log.warning(
                "column %s holds whole numbers beyond 2^53, which no float64 holds: they are categories",
                name,
            )
        elif name in chosen and guess.slashed and guess.type == "text":
            _log.warning(
                "column %s looks like dates, but is read as categories, since %s "
                "%s: write it as 2026-01-31",
                name,
                "the day or the month may be first in"
                if re.search(r"[/-]\d{4}\b", guess.first or "")
                else "a year has two digits in",
                guess.first,
            )
        elif name in chosen and guess.constant:
            _warn_of_constant(guess, chosen[name], options)
        elif name in chosen and guess.counting:
            _log.warning(
                "column %s counts the rows, as an id does; leave it out: %s",
                name,
                written("drop", name),
            )
    if more := Counter(field.kind for field in fields[_MOST_SHOWN:]):
        _log.info("  and more: %d numbers, %d categories", more["number"], more["category"])
    if broken := broken_text("the name of a column", seen.file.columns):
        _log.warning(broken)
    _warn_of_second_header([seen.guesses[name] for name in chosen])
    _warn_of_totals(seen, [*chosen, options.target])
    _warn_of_units([seen.guesses[name] for name in (*chosen, options.target)])
    _warn_of_groups_of_digits(seen, {*chosen, options.target})
    _warn_of_words([seen.guesses[name] for name in chosen])
    _warn_of_dates(fields, options)
    _warn_of_whole_dates(seen, fields, options)


def _warn_of_constant(guess: Guess, field: Field, options: DataOptions) -> None:
    """Warn of a column of one value, unless a model can tell it from a missing one."""
    if not guess.missing + guess.marks:
        advice = f"is always {guess.first!r}; leave it out: {written('drop', guess.name)}"
    elif field.kind == "number" and options.missing != "indicator":
        advice = (
            f"is {guess.first!r} or missing, which counts as {guess.first!r} too; to tell them apart: "
            f"{written('categories', guess.name)}"
        )
    else:
        return
    _log.warning("column %s %s", guess.name, advice)


def _warn_of_whole_dates(seen: Survey, fields: Sequence[Field], options: DataOptions) -> None:
    """Warn of whole numbers of which the first, the last and the lowest are dates such as 20260131
    or 202601."""
    numbers = {field.name for field in fields if field.kind == "number"} - {*options.numbers}
    for guess in map(seen.guesses.__getitem__, sorted(numbers)):
        some = (guess.first, guess.last, f"{guess.lowest:.0f}")
        if guess.exact == "integer" and all(_WHOLE_DATE.fullmatch(at or "") for at in some):
            _log.warning(
                "column %s looks like dates, but is read as numbers, such as %s: write it as 2026-01-31; "
                "if these are numbers: %s",
                guess.name,
                guess.first,
                written("numbers", guess.name),
            )


def _warn_of_dates(fields: Sequence[Field], options: DataOptions) -> None:
    dates = [field.name for field in fields if field.type in DATES]
    if dates and not (options.time or options.group or options.part):
        _log.warning(
            "column %s holds dates: if rows are to be predicted in the order of time, divide them so: %s",
            dates[0],
            written("time", dates[0]),
        )


def _warn_of_second_header(guesses: Sequence[Guess]) -> None:
    """Warn of several columns of numbers that begin with a word and hold no other."""
    words = [
        guess
        for guess in guesses
        if guess.others.get(guess.type) == 1 and guess.examples.get(guess.type) == [guess.first]
    ]
    if len(words) > 1:
        _log.warning(
            "row 1 is probably a second header: %s; remove it",
            ", ".join(f"{guess.first!r} in {guess.name}" for guess in words[:_EXAMPLES]),
        )


def _warn_of_totals(seen: Survey, names: Sequence[str]) -> None:
    """Warn of a last row that alone is called a total, or that sums up several columns."""
    for name in names:
        last = seen.guesses[name].last
        if last and seen.guesses[name].type == "text" and _TOTAL.fullmatch(last):
            named = (to_text(rows.columns[name], seen.missing_values) for rows in seen.file)
            if sum(pc.sum(pc.equal(texts, last)).as_py() or 0 for texts in named) == 1:
                _log.warning(
                    "row %s is probably a sum or mean of the others: it alone has %r in %s; remove it",
                    f"{seen.count:,}",
                    last,
                    name,
                )
                return
    summed = [name for name in names if seen.guesses[name].sums_up]
    if len(summed) > 1:
        _log.warning(
            "row %s is probably the sum of the others: it is in %s; remove it",
            f"{seen.count:,}",
            " and ".join(summed[:_EXAMPLES]),
        )


def _warn_of_units(guesses: Sequence[Guess]) -> None:
    """Warn of numbers with different currencies, or with and without a per cent sign."""
    for guess in guesses:
        money = {
            unit: _CURRENCIES.get(unit.strip("."), unit.strip("."))
            for unit in sorted(guess.units - {"", "%"})
        }
        if guess.type not in NUMBERS:
            continue
        if "%" in guess.units and len(guess.units) > 1:
            _log.warning(
                "column %s holds numbers with and without %%: 45%% is read as 0.45, and 45 as 45; write all "
                "of them in one way",
                guess.name,
            )
        if len(set(money.values())) > 1:
            _log.warning(
                "column %s holds amounts in %s: they are read as if they were of one currency",
                guess.name,
                " and ".join(money),
            )


def _warn_of_groups_of_digits(seen: Survey, names: Collection[str]) -> None:
    for name in seen.file.grouped:
        if name in names and seen.guesses[name].type in NUMBERS:
            _log.warning(
                "column %s holds numbers with three digits behind a point or none at all: 1.234 is "
                "read as less than 987; if it is a thousand and more: %s",
                name,
                written("decimal", ","),
            )


def _warn_of_words(guesses: Sequence[Guess]) -> None:
    """Warn of a word such as NA that is missing in a column of texts, where no other column shows
    that the program that wrote the file writes missing values so."""
    numbers = set[str]().union(*(guess.words for guess in guesses if guess.type != "text"))
    for guess in guesses:
        if guess.type == "text" and guess.words and not guess.words & {"", *numbers}:
            _log.warning(
                "column %s: %s means missing, in %s; if it is a value: %s",
                guess.name,
                " or ".join(sorted(guess.words)),
                plural(guess.missing, "row"),
                written("missing_values", ""),
            )


def _warn_of_series(seen: Survey, options: DataOptions, target: Array) -> None:
    """Warn of a column of which each value has a row at most times, as a shop has every week."""
    columns: dict[str, list[str | None]] = {
        name: []
        for name, guess in seen.guesses.items()
        if guess.type in ("text", "integer")
        and not guess.missing
        and name not in options.roles.values()
    }
    few = np.arange(min(seen.count, MOST_NAMES, _MOST_CELLS // max(1, len(columns))))
    moments = to_text(seen.kept[options.time].slice(0, len(few))).dictionary_encode()
    for rows in seen.chosen(few) if columns else ():
        if not len(rows):
            break
        for name, values in columns.items():
            values += to_text(rows.columns[name]).to_pylist()
    for name, values in columns.items():
        if are_series(values, moments.indices.to_numpy(), target[few]):
            _log.warning(
                "rows of one %s at several times have much the same %s: where errors on them are alike too, "
                "intervals are too narrow; count them together: %s",
                name,
                options.target,
                written("cluster", name),
            )
            return


def _warn_of_groups(seen: Survey, options: DataOptions, target: Array) -> None:
    """Warn of a column that is left out, or of the beginnings of one, whose rows belong together."""
    few = np.arange(min(seen.count, MOST_NAMES))
    left_out = {*options.drop, *seen.file.index}
    names: dict[str, list[str]] = {
        name: []
        for name in seen.file.columns
        if name != options.target and (name in left_out or seen.guesses[name].type == "text")
    }
    for rows in seen.chosen(few) if names else ():
        if not len(rows):
            break
        for name, values in names.items():
            column = rows.columns[name]
            if pa.types.is_string(column.type) or pa.types.is_integer(column.type):
                values += column.cast(pa.string()).fill_null("").to_pylist()
    for name, values in names.items():
        if len(values) < len(few):
            continue
        if name in left_out and share_targets(values, target[few]):
            _log.warning(
                "rows with the same %s mostly have the same %s: if they belong together, keep them in one part: %s",
                name,
                options.target,
                written("group", name),
            )
        elif found := find_beginning(values, target[few]):
            _log.warning(
                "rows whose %s begins alike, such as %s, mostly have the same %s: if they belong together, "
                "write that beginning into a column of its own, and divide by it: %s",
                name,
                found[1],
                options.target,
                written("group", "COLUMN"),
            )


def _summarize(seen: Survey, preprocessing: TablePreprocessing, train: int) -> None:
    """Say in a line what the columns were taken for, and name those that are nearly unique."""
    numbers = [column for column in preprocessing.columns if column.kind == "number"]
    categories = [column for column in preprocessing.columns if column.kind == "category"]
    sizes = sorted(len(column.categories) - 2 for column in categories)
    words = [plural(len(numbers), "number")] if numbers else []
    if sizes:
        many = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
        words.append(f"{plural(len(sizes), 'category', 'categories')} of {many}")
    missing = sum(column.missing for column in preprocessing.columns)
    words += [f"{missing:,} missing values in the {train:,} training rows"] if missing else []
    summary.info("%s, %s rows: %s", seen.file.note, f"{seen.count:,}", ", ".join(words))
    for column in categories:
        if broken := broken_text(f"column {column.name}", column.categories):
            _log.warning(broken)
        different, present = len(column.categories) - 2, train - column.missing
        guess = seen.guesses[column.name]
        if different <= _MANY_CATEGORIES or guess.slashed:
            continue
        others = _unread(column.categories[:-2])
        example = _like_numbers(others, different)
        unique = different >= UNIQUE * present
        is_code = re.fullmatch(r"[0-9 .-]+", example) and not _LIKE_DATE.fullmatch(example)
        if is_code and all(map(_BLANKS.fullmatch, others)):
            is_code = len({len(name) for name in others}) == 1  # 9 100 beside 10 200 is an amount
        if example and not (unique and is_code):
            _log.warning(
                "column %s is read as %s categories, but most look like numbers or dates, such as %r: %s",
                column.name,
                f"{different:,}",
                example,
                _how_to_write(example),
            )
        elif (kind := guess.nearly) and len(others) <= _FEW_WORDS:
            _log.warning(
                "column %s is read as %s categories: it holds %s, but for %s such as %s; if these mean "
                "missing, leave them empty",
                column.name,
                f"{different:,}",
                "dates" if kind in DATES else "numbers",
                plural(guess.others[kind], "value"),
                " and ".join(map(repr, dict.fromkeys(guess.examples[kind]))),
            )
        elif unique:
            _log.warning(
                "column %s has %s different values in %s rows, as an id does; leave it out: %s",
                column.name,
                f"{different:,}",
                f"{present:,}",
                written("drop", column.name),
            )


def _unread(categories: Sequence[str]) -> list[str]:
    words = to_days(to_numbers(pa.array(categories, pa.string()))[1])[1].is_valid().to_pylist()
    return [name for name, odd in zip(categories, words, strict=True) if odd]


def _like_numbers(others: Sequence[str], different: int) -> str:
    """Return a category of those that look like numbers with a unit, in another notation, or like
    dates; nothing if fewer than half do.

    Args:
        others: Of the different categories those that are neither numbers nor dates.
    """
    dates = list(filter(None, map(_LIKE_DATE.fullmatch, others)))
    numbers = list(filter(None, map(_LIKE_NUMBER.fullmatch, others)))
    if not all(map(_is_day, dates)):
        dates = []
    units = {match["unit"] for match in numbers if match["unit"]}
    if len(units) > _MOST_UNITS or not all(map(_is_unit, units)):
        numbers = [match for match in numbers if not match["unit"]]
    alike = list(dict.fromkeys(match[0] for match in (*numbers, *dates)))
    plain = different - len(others)
    return alike[0] if alike and 2 * (len(alike) + plain) > different else ""


def _is_day(match: re.Match[str]) -> bool:
    """Return whether a day and a month stand before the year, in either order."""
    if match["first"] is None:
        return True
    first, second = int(match["first"]), int(match["second"] or 1)
    return 1 <= min(first, second) <= 12 and max(first, second) <= 31


def _is_unit(word: str) -> bool:
    return not _COUNTED.fullmatch(word) and (
        len(word) > 1 or word in _LETTERS or not word.isascii()
    )


def _how_to_write(example: str) -> str:
    if re.fullmatch(rf"{BEFORE}[\d.{GROUPS}]*,\d+{AFTER}", example):
        return written("decimal", ",")
    if _BLANKS.fullmatch(example):
        return written("thousands", " ")
    if _LIKE_DATE.fullmatch(example):
        return "write dates as 2026-01-31"
    if ":" in example:
        return "write times as minutes, 750 for 12:30"
    return "write quantities as plain numbers"


def _fit(
    raw: Raw,
    seen: Survey,
    fields: tuple[Field, ...],
    options: DataOptions,
    train: NDArray[np.int64],
    scratch: Path,
) -> Raw:
    preprocessing = TablePreprocessing.fit(
        fields,
        seen.chosen(train),
        missing=options.missing or "fill",
        missing_values=seen.missing_values,
        max_categories=options.max_categories or MAX_CATEGORIES,
        decimal=seen.file.decimal,
        thousands=seen.file.thousands,
    )
    _summarize(seen, preprocessing, len(train))
    columns = tuple(
        Column(
            name=name,
            kind=column.kind if name == column.name else "number",
            categories=column.categories if name == column.name else (),
            missing=column.missing,
            center=column.center if name == column.name else 0.0,
        )
        for column in preprocessing.columns
        for name in column.names
    )
    described = {"table": InputDescription(meaning="table", columns=columns)}
    return seen.fitted(
        raw, preprocessing, described, scratch, "correct the value, or leave it empty"
    )


TABLE = Source(
    name="table",
    options=(
        *ROWS,
        "split_by",
        "drop",
        "categories",
        "numbers",
        "missing",
        "max_categories",
        "contract",
        *COMMON,
    ),
    read=_read,
    open=_open_file,
)
