"""`make docs`: the reference of the Python API."""

import re
from importlib import import_module
from inspect import getdoc, isclass, isfunction
from pathlib import Path

import pytest

import podium

MAKEFILE = (Path(__file__).parent.parent / "Makefile").read_text().replace("\\\n", " ")
MODULES = re.findall(r"^API = (.*)$", MAKEFILE, re.MULTILINE)[0].split()


@pytest.mark.parametrize("name", ["podium", *MODULES])
def test_everything_public_explains_itself(name: str) -> None:
    module = import_module(name)
    public = getattr(module, "__all__", None) or [
        key
        for key, value in vars(module).items()
        if getattr(value, "__module__", "") == name and key[0] != "_"
    ]
    values = {
        key: getattr(podium, key) if module is podium else getattr(module, key) for key in public
    }
    silent = [
        key
        for key, value in values.items()
        if (isclass(value) or isfunction(value)) and not getdoc(value)
    ]
    for key, value in values.items():
        if isclass(value):
            silent += [
                f"{key}.{part}"
                for part, member in vars(value).items()
                if part[0] != "_"
                and (isfunction(member) or isinstance(member, property))
                and not getdoc(member)
            ]
    assert values
    assert not silent


def test_what_the_functions_return_has_a_page() -> None:
    returned = {}
    functions = {
        name: getattr(podium, name) for name in podium.__all__ if isfunction(getattr(podium, name))
    }
    for name in [
        name
        for name, function in functions.items()
        if function.__annotations__["return"] is not None
    ]:
        (returned[name],) = re.findall(
            r"\w+$", str(getattr(podium, name).__annotations__["return"]).strip("<>'[]")
        )
    pages = {name for module in MODULES for name in vars(import_module(module))} | set(
        podium.__all__
    )
    assert set(returned.values()) <= pages, returned


def test_the_page_on_python_names_what_podium_exports() -> None:
    page = (Path(__file__).parent.parent / "docs/python.md").read_text()
    documented = set(re.findall(r"podium\.(\w+)\(", page)) | set(
        re.findall(r"^\| `podium.*\| `(\w+)` \|$", page, re.MULTILINE)
    )
    exported = set(podium.__all__)
    returned = set(re.findall(r"^\| `podium.*\| `(\w+)` \|$", page, re.MULTILINE))
    assert exported <= documented
    assert documented - returned <= exported


@pytest.mark.slow
def test_the_reference_is_written(tmp_path: Path) -> None:
    import pdoc

    pdoc.render.configure(docformat="google", include_undocumented=False, show_source=False)
    pdoc.pdoc("podium", "!podium[.]", *MODULES, output_directory=tmp_path)
    pages = {file.stem: file.read_text() for file in tmp_path.rglob("*.html")}
    assert {"podium", *(module.rpartition(".")[2] for module in MODULES)} <= pages.keys()
    for name in podium.__all__:
        assert f'id="{name}"' in pages["podium"], name
