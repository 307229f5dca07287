"""Documents that are small to send and large to read, and those that people really write."""

import json
import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium.errors import InvalidInput, PodiumError, require, suggestion
from podium.files.documents import load_json, load_yaml, parse, read_text, write_file
from podium.files.yaml_loader import dump

ROOT = Path(__file__).parent.parent


def aliases(levels: int, first: str = "x") -> str:
    lines = [f"a0: &a0 [{first}, {first}]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)
    ]
    return "\n".join(lines)


def merges(levels: int) -> str:
    lines = ["a0: &a0 {k: v}"]
    lines += [
        f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}"
        for level in range(1, levels)
    ]
    return "\n".join(lines)


BOMBS: dict[str, Callable[[], str]] = {
    "aliases of aliases": lambda: aliases(10),
    "merges of merges": lambda: merges(20),
    "aliases of a long text": lambda: f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]",
    "many documents": lambda: "---\n" * 200_000,
    "many values": lambda: "- {}\n" * 200_000,
    "open brackets": lambda: "[" * 1_000_000,
    "open keys": lambda: "? " * 1_000_000 + "a",
    "levels made of aliases": lambda: (
        "a0: &a0 [x]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))
    ),
    "a number in base sixty": lambda: "!!int '1" + ":1" * 1_000_000 + "'",
    "a number in base sixteen": lambda: "0x" + "f" * 3_000_000,
    "an alias of itself": lambda: "a: &a [*a]",
    "many directives": lambda: "".join(f"%TAG !a{n}! x\n" for n in range(100_000)) + "--- a",
    "100 MB": lambda: "# comment\n" * 10_000_000,
}
"""Made when read: together they are 120 MB."""


def test_a_byte_order_mark_is_no_part_of_a_document() -> None:
    marked = "\ufeffa: 1\n".encode()
    assert load_yaml(marked, "a.yaml") == [{"a": 1}]
    assert load_json("\ufeff{}".encode(), "a.json") == {}


@pytest.mark.timeout(60)  # half a second each; minutes without the limits
@pytest.mark.parametrize("what", BOMBS)
def test_yaml_bombs_are_refused_by_name_within_seconds(what: str) -> None:
    bomb = BOMBS[what]()
    with pytest.raises(InvalidInput, match=r"^bomb\.yaml (has|is) "):
        load_yaml(bomb, "bomb.yaml")


def test_a_bomb_as_an_experiment_is_refused(tmp_path: Path) -> None:
    from podium.manifests.experiment import load

    (tmp_path / "bomb.yaml").write_text(aliases(10))
    with pytest.raises(InvalidInput, match=r"bomb\.yaml has more than 50,000 values"):
        load(str(tmp_path / "bomb.yaml"))


def test_a_device_without_end_is_read_to_the_limit() -> None:
    with pytest.raises(InvalidInput, match="/dev/zero is larger than 1,000 bytes"):
        read_text(Path("/dev/zero"), 1000)


def test_all_yaml_of_the_project_loads_as_before() -> None:
    files = [
        file
        for folder in ("experiments", "schedules", "deploy", "tests/golden")
        for file in (ROOT / folder).rglob("*.yaml")
        if file.name
        != "initContainer.yaml"  # a template in Go's language, which the training operator fills in
    ]
    assert len(files) > 20
    for file in files:
        before = [
            document for document in yaml.safe_load_all(file.read_text()) if document is not None
        ]
        if "1e-" not in file.read_text():  # text in YAML 1.1, a number to kubectl
            assert load_yaml(file.read_bytes(), str(file)) == json.loads(json.dumps(before)), file


def test_anchors_of_ordinary_size_are_copies() -> None:
    first, second = load_yaml(
        "base: &base {cpu: 1}\nmaster: {<<: *base, gpu: 0}\nworker: *base\n---\n---\nb: 1",
        "job.yaml",
    )
    assert first == {"base": {"cpu": 1}, "master": {"cpu": 1, "gpu": 0}, "worker": {"cpu": 1}}
    first["worker"]["cpu"] = 2
    assert (first["base"]["cpu"], second) == (1, {"b": 1})


def test_a_key_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at line 3: the key 'a' stands there twice"):
        load_yaml("b: {a: 1}\na: 2\na: 3\n", "x")
    merged = "x: &x {a: 1}\nin: {deep: &y {<<: *x, a: 2}}\nz: {<<: *y, <<: *x, a: 3}\n"
    assert load_yaml(merged, "x")[0]["z"] == {"a": 3}
    with pytest.raises(InvalidInput, match="the key '1' stands there twice"):
        load_yaml("{1: a, '1': b}", "x")  # keys are texts


@pytest.mark.parametrize(
    "text", ["{1: a, 0x1: b}", "{1: a, 1.0: b}", "{yes: a, true: b}", "{0x1: a, '1': b}", "{~: a, 'null': b}"]
)  # fmt: skip
def test_keys_that_mean_the_same_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="stands there twice"):
        load_yaml(text, "x")


def test_podiums_own_files_hold_no_octal_numbers() -> None:
    with pytest.raises(InvalidInput, match="at line 2: 010 is octal to some and decimal to others"):
        load_yaml("a: 1\nlimit: 010", "podium.yaml", own=True)
    text = "[0, 08, '010', 0.5, 0x10, y, n]"
    assert load_yaml(text, "x", own=True) == [[0, "08", "010", 0.5, 16, "y", "n"]]


def test_letters_are_booleans_only_to_kubectl() -> None:
    text = "[y, N, yes, 'y', yn]"
    assert load_yaml(text, "x") == [["y", "N", True, "y", "yn"]]
    assert load_yaml(text, "x", kubectl=True) == [[True, False, True, "y", "yn"]]


def test_values_are_those_that_kubectl_reads() -> None:
    text = "[1e-3, 2026-01-02, 1:30, 0x10, 017, 1_000, yes, ~, 18446744073709551616, '1', !!str 5, =, .5, -3.0]"
    assert load_yaml(text, "x") == [
        [
            0.001,
            "2026-01-02",
            "1:30",
            16,
            15,
            1000,
            True,
            None,
            18446744073709551616.0,
            "1",
            "5",
            "=",
            0.5,
            -3.0,
        ]
    ]


@pytest.mark.parametrize(
    "text",
    [".nan", "-.inf", "!!timestamp x", "!!bool x", "!!int x", "!!int [1]", "!!float x", "!!binary aa", "!!set {a}",
     "!!python/object/apply:os.getcwd []", "{[1]: 2}", "a: b: c", "\t- a", "'\\ud800'x", '"\\ud800"', "*a", "\x00", b"\xff", "\udcff"],
)  # fmt: skip
def test_what_is_not_plain_yaml_is_refused_with_its_name(text: str | bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^some\.yaml is not "):
        load_yaml(text, "some.yaml")


@pytest.mark.parametrize(
    ("content", "reason"),
    ids=str.split(
        "brackets objects size surrogate surrogate-byte byte unfinished digits nan twice"
    ),
    argvalues=[
        (b"[" * 1_000_000, "nested more than 100 levels deep"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested more than 100 levels deep"),
        (b'"' + b"x" * 2_000 + b'"', "larger than 1,000 bytes"),
        (b'"\\ud800"', "half of a surrogate pair"),
        ("\udcff", "is not readable as UTF-8"),
        (b"\xff", "is not readable as UTF-8"),
        (b"{", "not readable as JSON"),
        (b"1" * 5000, "not readable as JSON"),
        (b"[NaN]", "NaN is not a number"),
        (b'[{"a": 1, "b": 2, "a": 3}]', "the key 'a' stands there twice"),
    ],
)
def test_json_beyond_limits_is_refused_with_its_name(content: bytes | str, reason: str) -> None:
    limit = 1000 if "1,000" in reason else 10**7
    with pytest.raises(InvalidInput, match=rf"^some\.json .*{reason}"):
        load_json(content, "some.json", nan=False, limit=limit)


def test_json_of_ordinary_depth_and_characters_is_read() -> None:
    assert load_json(b"[" * 99 + b"[]" + b"]" * 99, "deep")
    assert load_json('["\\ud83d\\ude00", "\u00e9"]', "text") == ["\U0001f600", "\u00e9"]
    assert load_json("[NaN]", "nan")[0] != 0


def test_size_is_checked_before_a_file_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse.yaml").open("wb") as file:
        os.truncate(file.fileno(), 10 * 2**30)
    with pytest.raises(InvalidInput, match="is larger than"):
        read_text(tmp_path / "sparse.yaml")


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a small document holds."""

    written: datetime
    by: list[str] | str = ""

    def __post_init__(self) -> None:
        require(self.by != "nobody", "somebody wrote it", by=self.by)


def test_a_document_becomes_a_dataclass() -> None:
    written = "2026-01-02T03:04:05+01:00"
    note = parse(Note, {"written": written, "by": "Ada"}, "note.json")
    assert (note.written.isoformat(), note.by) == ("2026-01-02T02:04:05+00:00", "Ada")
    assert parse(Note, {"written": written, "by": ["Ada"]}, "note.json").by == ["Ada"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "note.json has no written"),
        ({"written": "2026-01-02T03:04:05"}, "note.json: written must be a time with time zone"),
        ({"written": 5}, "note.json: written must be a time with time zone, but is 5"),
        ({"written": "2026-01-02T03:04:05Z", "by": 5}, r"note.json: by must be a list"),
        (
            {"written": "2026-01-02T03:04:05Z", "by": "nobody"},
            "note.json: `somebody wrote it` must hold",
        ),
    ],
)
def test_a_document_that_does_not_fit_is_named(document: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse(Note, document, "note.json")


def test_a_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("folder/file")
    write_file(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/file").read_text() == "text"
    assert len(list(tmp_path.rglob("*"))) == 3


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    write_file(pipe, "text")
    reader.join(10)
    assert received == ["text"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("path", [".", "/", "", "/dev/null/file"])
def test_a_path_that_is_not_a_files_is_refused(path: str) -> None:
    with pytest.raises(PodiumError, match=r"cannot be written: (Is|Not) a directory"):
        write_file(Path(path), "text")


@pytest.mark.parametrize(
    "text", ["y", "N", "yes", "08", "-0_9", "0o17", "0XFF", "0B1", "007", "5e-05", "1_000"]
)
def test_text_that_kubectl_reads_otherwise_is_quoted(text: str) -> None:
    assert dump({"value": text}) == f"value: '{text}'\n"
    assert load_yaml(dump({"value": text}), "file") == [{"value": text}]


def test_a_number_that_no_float_holds_is_refused() -> None:
    assert load_json("[1e308, NaN, -Infinity, 1e-400]", "x")[::3] == [1e308, 0.0]
    with pytest.raises(InvalidInput, match="-1e400 is larger than any number of 64 bits"):
        load_json('{"a": -1e400}', "x")


@pytest.mark.parametrize(
    ("known", "hint"),
    [((), "there are none yet"), (("a", "b"), "one of a, b"), (("train",), "did you mean train?")],
)
def test_a_hint_names_what_there_is(known: tuple[str, ...], hint: str) -> None:
    assert suggestion("trian", known) == hint


def test_of_many_names_a_hint_lists_twenty() -> None:
    hint = suggestion("zzz", [f"n{number}" for number in range(80)])
    assert hint.startswith("one of n0, n1, ")
    assert hint.endswith(", n19, … (80 in all)")


@pytest.mark.parametrize("kind", [list[float], tuple[float, ...], dict[str, float]])
@pytest.mark.parametrize("bad", [math.nan, math.inf, True, "1", None])
def test_a_number_among_many_that_is_none_is_named(kind: Any, bad: Any) -> None:
    values = [0.5, 1, bad, 2.5]
    value = dict(zip("abcd", values, strict=True)) if kind == dict[str, float] else values
    place = "x.c" if kind == dict[str, float] else r"x\[2\]"
    with pytest.raises(InvalidInput, match=f"file: {place} must be a finite number"):
        parse(kind, value, "file", "x")


def test_whole_numbers_among_floats_become_floats() -> None:
    parsed = parse(list[float], [0.5, 1, 2.5], "file")
    assert parsed == [0.5, 1.0, 2.5]
    assert [type(number) for number in parsed] == [float] * 3
