"""Environments of components: their own packages, made once, nothing half made, podium's untouched."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from test_own_pipelines import written
from test_podium_run import podium

from podium.errors import Failed
from podium.runner.compiled import Compiled
from podium.runner.environments import Environment

pytestmark = pytest.mark.whole


def wheel(folder: Path, version: str) -> Path:
    """Write a package whose one module knows its version."""
    file = folder / f"tiny_part-{version}-py3-none-any.whl"
    info = f"tiny_part-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as parts:
        parts.writestr("tiny_part.py", f"version = {version!r}\n")
        parts.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-part\nVersion: {version}\n"
        )
        parts.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        parts.writestr(f"{info}/RECORD", "")
    return file


def test_each_component_has_packages_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_CACHE", str(tmp_path / "cache"))
    first, second = wheel(tmp_path, "1.0"), wheel(tmp_path, "2.0")
    text = dedent(f"""\
        from kfp import dsl

        @dsl.component(base_image="python:3.11", install_kfp_package=False, packages_to_install=["{first}"])
        def one() -> str:
            import tiny_part
            return tiny_part.version

        @dsl.component(base_image="python:3.11", install_kfp_package=False, packages_to_install=["{second}"])
        def two() -> str:
            import tiny_part
            return tiny_part.version

        @dsl.component(base_image="python:3.11", install_kfp_package=False)
        def itself() -> str:
            import subprocess, sys
            words = ["install", "-q", "--no-index", "{second}"]
            subprocess.run([sys.executable, "-m", "pip", *words], check=True)
            import tiny_part
            return tiny_part.version

        @dsl.component(base_image="python:3.11", install_kfp_package=False)
        def join(one: str, two: str, itself: str) -> str:
            return f"{{one}} {{two}} {{itself}}"

        @dsl.pipeline
        def all() -> str:
            return join(one=one().output, two=two().output, itself=itself().output).output
        """)
    done = podium(tmp_path / "home", written(tmp_path, text), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"Output": "1.0 2.0 2.0"}
    assert len(list((tmp_path / "cache/environments").iterdir())) == 2
    looked = subprocess.run([sys.executable, "-c", "import tiny_part"], capture_output=True)
    assert looked.returncode, "podium's own environment is as it was"


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_an_environment_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    if tool == "pip":
        find = shutil.which
        monkeypatch.setattr(
            shutil, "which", lambda name, **path: None if name == "uv" else find(name, **path)
        )
    asked = Environment(
        installs=(("--no-index", "no-such-part==1.0"),), python=sys.executable, sees_ours=False
    )
    said: list[str] = []
    with pytest.raises(Failed) as caught:
        asked.made(tmp_path / "environments", "train", said.append)
    assert caught.value.message.startswith("the environment of step train cannot be made: ")
    assert "no-such-part" in caught.value.message
    assert "\n" not in caught.value.message
    assert list((tmp_path / "environments").iterdir()) == []


def test_an_environment_is_made_once(tmp_path: Path) -> None:
    asked = Environment(
        installs=(("--no-index", str(wheel(tmp_path, "1.0"))),),
        python=sys.executable,
        sees_ours=True,
    )
    said: list[str] = []
    programs = asked.made(tmp_path / "environments", "train", said.append)
    before = list(said)
    assert asked.made(tmp_path / "environments", "train", said.append) == programs
    assert said == before
    code = "import sys, tiny_part, numpy; print(tiny_part.version, sys.prefix)"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([programs / "python3", "-c", code], capture_output=True, env=env)
    assert done.stdout.decode().split() == ["1.0", str(programs.parent)]


SCRIPT = (
    '\nif ! [ -x "$(command -v pip)" ]; then\n    python3 -m ensurepip\nfi\n\n'
    "PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet --no-warn-script-location "
    "--index-url https://host/simple --trusted-host https://host/simple 'six==1.16.0'  &&  "
    "python3 -m pip install --quiet --no-warn-script-location 'kfp==2.17.0' '--no-deps' "
    '\'typing-extensions>=3.7.4,<5; python_version<"3.9"\' && "$0" "$@"\n'
)


def container(image: str, script: str = SCRIPT) -> dict[str, Any]:
    return {"image": image, "command": ["sh", "-c", script, "sh", "-ec", "kfp.dsl.executor_main"]}


def test_installs_are_read_from_the_compiled_command() -> None:
    asked = Environment.of(container("example/tensorflow:2"))
    assert asked is not None
    index = ("--index-url", "https://host/simple", "--trusted-host", "host", "six==1.16.0")
    own = ("kfp==2.17.0", "--no-deps", 'typing-extensions>=3.7.4,<5; python_version<"3.9"')
    assert asked.installs == (index, own)
    assert asked.sees_ours, "nothing is known of what that image holds"


def test_a_component_that_installs_nothing_runs_in_podiums() -> None:
    only_kfp = "python3 -m pip install --quiet 'kfp==2.17.0' '--no-deps' && \"$0\" \"$@\""
    image = f"python:{sys.version_info.major}.{sys.version_info.minor}"
    assert Environment.of(container(image, only_kfp)) is None
    from_a_mirror = only_kfp.replace("--quiet", "--quiet --index-url https://host/simple")
    assert Environment.of(container(image, from_a_mirror)) is None
    assert Environment.of(container("podium-steps:0.1.0")) is None
    assert Environment.of({"image": "alpine", "command": ["sh", "-c", "echo hi"]}) is None


def test_kfp_that_knows_no_local_artifact_is_replaced() -> None:
    script = SCRIPT.replace("kfp==2.17.0", "kfp==2.4.0")
    code = 'printf "%s" "$0" > ephemeral_component.py; python3 -m kfp.components.executor_main "$@"'
    in_pipeline = {"image": "python:3.11", "command": ["sh", "-c", script, "sh", "-ec", code]}
    in_image = {"image": "x/y", "command": ["python3", "-m", "kfp.components.executor_main"]}
    executors = {"a": {"container": in_pipeline}, "b": {"container": in_image}}
    compiled = Compiled({"deploymentSpec": {"executors": executors}})
    container = compiled.executor({"executorLabel": "a"})["container"]
    asked = Environment.of(container)
    assert asked is not None
    assert asked.installs[1][0] == "kfp==2.5.0"
    assert "kfp.dsl.executor_main" in container["command"][-1]
    assert compiled.executor({"executorLabel": "b"}) == executors["b"]
