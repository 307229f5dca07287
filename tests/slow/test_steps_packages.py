"""The steps' image: what scripts/slim-packages removes, no step needs.

The packages are installed, cut and compiled as the Dockerfile does it; every template of `podium init` runs on them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from podium.cli.init import TEMPLATES

ROOT = Path(__file__).parents[2]
PODIUM = ("-P", "-c", "from podium.cli import main; main()")
TRAINERS_OWN = ("torch", "torchvision", "torchvision.libs", "torchgen", "functorch", "nvidia", "triton", "sympy",
                "mpmath", "networkx", "filelock", "fsspec", "sklearn", "joblib", "narwhals", "threadpoolctl.py")  # fmt: skip

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("strip") is None, reason="needs strip (binutils)"),
]  # fmt: skip


def run(*words: str | Path, folder: Path, path: str = "") -> str:
    """Run a program that finds packages on the given path only; return what it printed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("VIRTUAL_ENV")}
    env |= {"PYTHONPATH": path, "PODIUM_HOME": str(folder / "podium-work"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter without the packages of this environment."""
    return (
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    )


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Path:
    root = tmp_path_factory.mktemp("image")
    # Copies: strip would write through links into the cache.
    pins = root / "pins.txt"
    pins.write_text(
        subprocess.run(
            [ROOT / "scripts/pins", "steps"], capture_output=True, text=True, check=True
        ).stdout
    )
    run(Path(sys.executable).with_name("uv"), "pip", "install", "-q", "--link-mode", "copy", "--python", python,
        "--prefix", root / "usr/local", "--no-deps", "--require-hashes", "-r", pins,
        folder=root)  # fmt: skip
    run(ROOT / "scripts/slim-packages", "--steps", root, folder=root)
    (found,) = root.glob("usr/local/lib/python3*/site-packages")
    run(python, ROOT / "scripts/compile-steps", root, folder=root, path=f"{found}:{ROOT / 'src'}")
    return found


@pytest.fixture(scope="module")
def path(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The steps' packages, podium, and for the trainer, which has an image of its own, torch and what it needs."""
    beside, here = (
        tmp_path_factory.mktemp("trainer"),
        Path(next(p for p in sys.path if p.endswith("site-packages"))),
    )
    for name in TRAINERS_OWN:
        if (here / name).exists():
            (beside / name).symlink_to(here / name)
    return f"{packages}:{ROOT / 'src'}:{beside}"


def test_bytecode_is_there_for_what_steps_import_only(packages: Path) -> None:
    assert list((packages / "kubernetes/client/__pycache__").glob("*.pyc"))
    assert not list((packages / "kfp/cli").rglob("*.pyc"))


def test_a_path_that_a_release_moved_stops_the_build(packages: Path) -> None:
    root = packages.parents[4]
    done = subprocess.run(
        [ROOT / "scripts/slim-packages", "--steps", root],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("slim-packages: there is no ")


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_runs_to_a_champion_on_them(
    template: str, path: str, python: Path, tmp_path: Path
) -> None:
    run(python, *PODIUM, "init", "mine", "--from", template, folder=tmp_path, path=path)
    project = tmp_path / "mine"
    run(python, "make_data.py", folder=project, path=path)
    outcome = json.loads(
        run(python, *PODIUM, "run", "--json", "max_trials=2", folder=project, path=path)
    )
    assert outcome["decision"]["outcome"] == "promoted"
    assert (
        project / "podium-work/runs" / outcome["run"] / "report.html"
    ).stat().st_size > 1_000_000


@pytest.fixture
def without_torch(packages: Path) -> str:
    return f"{packages}:{ROOT / 'src'}"


def test_a_trainer_of_ones_own_needs_no_torch(
    without_torch: str, python: Path, tmp_path: Path
) -> None:
    run(python, *PODIUM, "init", "mine", folder=tmp_path, path=without_torch)
    project = tmp_path / "mine"
    run(python, "make_data.py", folder=project, path=without_torch)
    outcome = json.loads(
        run(python, *PODIUM, "run", "--json", "max_trials=2", folder=project, path=without_torch)
    )
    assert outcome["decision"]["outcome"] == "promoted"
    assert "no findings" in run(
        python, *PODIUM, "models", "verify", folder=project, path=without_torch
    )
    (project / "train.sh").write_text("echo accuracy=0.${1#*=}\n")
    words = ("tune", "--rate", "1..8", "--trials", "3", "--", "sh", "train.sh")
    assert "best trial" in run(python, *PODIUM, *words, folder=project, path=without_torch)


@pytest.mark.parametrize("words", [(*PODIUM, "run", "limit=1000"), ("-m", "podium.trainer", "--epochs=1")],
                         ids=["podium run", "the trainer"])  # fmt: skip
def test_podiums_trainer_says_that_it_needs_torch(
    words: tuple[str, ...], without_torch: str, python: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "PYTHONPATH": without_torch, "PODIUM_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [python, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: podium's trainer needs PyTorch for ")
    assert not (tmp_path / "home" / "runs").exists()
