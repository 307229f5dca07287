"""Commands for a server load neither kfp's client nor the Kubernetes client: a second of CPU for nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from kfp_server import KfpServer

pytestmark = pytest.mark.whole

LOADED = """
import sys
from podium.cli import app
try:
    app({words!r})
finally:
    print("loaded:", *(name for name in ("kubernetes", "google.auth", "kfp.client", "torch") if name in sys.modules))
"""


def python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def loaded_by(*words: str) -> str:
    return re.findall(r"(?m)^loaded: ?(.*)$", python(LOADED.format(words=list(words))))[0].strip()


@pytest.mark.parametrize("kfp", ["2.16.1"], indirect=True)
def test_compile_upload_and_submit_load_no_kubernetes(kfp: KfpServer, tmp_path: Path) -> None:
    assert loaded_by("compile", "tune_and_promote", "-o", str(tmp_path / "p.yaml")) == ""
    assert loaded_by("upload", "train_and_promote", "--host", kfp.host) == ""
    assert loaded_by("submit", "train-and-promote", "--host", kfp.host, "storage=s3://b/p") == ""
    assert len(kfp.world.runs) == 1


@pytest.mark.parametrize(
    "use",
    [
        "import kfp; kfp.Client",
        "from kfp import Client",
        "import kfp; kfp.dsl.pipeline",
        "from kfp import dsl, local",
    ],
)
def test_a_users_file_finds_all_of_kfp(use: str) -> None:
    script = f"import os; from podium.kfp.importing import import_kfp; import_kfp(); import_kfp(); {use}; print('fine', os.environ.get('_KFP_RUNTIME'))"
    assert python(script).strip().endswith("fine None")


def test_a_name_that_kfp_lacks_is_an_attribute_error() -> None:
    said = python(
        "from podium.kfp.importing import import_kfp; import_kfp(); import kfp; kfp.nothing"
    )
    assert "AttributeError: module 'kfp' has no attribute 'nothing'" in said
