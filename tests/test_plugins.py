"""Another distribution adds one of each kind, and each is used through podium's public doors."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

PODIUM = str(Path(sys.executable).with_name("podium"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]

TRAIN = """
import json, os, pathlib

place = pathlib.Path(os.environ["PODIUM_OUTPUT"])
place.mkdir(parents=True, exist_ok=True)
(place / "model.json").write_text(json.dumps({"predict": ["python", "predict.py"]}))
(place / "predict.py").write_text('''
import argparse, numpy

parser = argparse.ArgumentParser()
for name in ("model", "inputs", "output"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
x = numpy.load(f"{given.inputs}/x.npy")[:, 0]
red = (1 / (1 + numpy.exp(-x))).astype("float32")
numpy.save(given.output, numpy.stack([1 - red, red], 1))
''')
print("accuracy=1.0")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution of tests/plugin, installed in a directory of its own."""
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(Path(__file__).parent / "plugin", place / "source")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    command += ["--no-index", "--target", str(place / "packages"), str(place / "source")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "packages"


@pytest.fixture
def podium(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> Run:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "trees.txt").write_text("600")

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([PODIUM, *words], cwd=tmp_path, capture_output=True, text=True)

    return run


def test_a_pipeline_uses_what_was_added(podium: Run, tmp_path: Path) -> None:
    words = [
        "run", "train_and_promote", "dataset=apples:trees.txt", "metric=profit",
        'command=["python", "train.py"]', "code=.", "model_name=apples",
    ]  # fmt: skip
    failed = podium(*words, "rule=crash")
    assert failed.returncode == 1
    assert "podium-orchard 1.2 failed: ZeroDivisionError: division by zero" in failed.stderr
    assert "Traceback" not in failed.stdout + failed.stderr

    done = podium(*words, "rule=better,many", "--notify", f"basket://{tmp_path}/notices")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apples are 50 or more" in done.stdout + done.stderr
    assert json.loads((tmp_path / "notices").read_text())["event"] == "champion"

    shown = json.loads(podium("models", "show", "apples", "--json").stdout)
    assert shown["metric"]["name"] == "profit"
    assert shown["metrics"]["profit"] == 2.0

    exported = podium("models", "export", "apples", "-o", "out", "--to", "crate")
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "out" / "crate.json").is_file()


def test_a_sweep_searches_by_an_added_algorithm(podium: Run, tmp_path: Path) -> None:
    done = podium(
        "tune", "--trials", "3", "--parallel", "1", "--objective", "y", "--algorithm", "golden",
        "--json", "--x", "0.0..1.0", "--", "sh", "-c", "echo y=${1#--x=}", "sh",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["value"] == pytest.approx(3 * 0.6180339887 % 1)


def test_a_command_is_added(podium: Run) -> None:
    done = podium("pick", "3")
    assert done.stdout == "apple apple apple \n"
    assert podium("pick", "--help").stdout.startswith("Usage: podium pick")
    assert "did you mean pick?" in podium("pck").stderr


def test_what_is_broken_names_its_distribution(podium: Run) -> None:
    for words, expected in {
        ("data", "prepare", "pears:5", "-o", "out"): "'pears' in podium.sources of podium-orchard 1.2 cannot be loaded: AttributeError",
        ("drop",): "podium-orchard 1.2 failed: ZeroDivisionError",
        ("run", "metric=profits"): "podium-orchard 1.2 adds 'accuracy' to podium.metrics, which is podium's own name: it is refused",
    }.items():  # fmt: skip
        done = podium(*words)
        assert done.returncode != 0
        assert expected in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_help_reads_no_entry_points(podium: Run) -> None:
    code = "import sys; sys.argv = ['podium', '--help']\nfrom podium.cli import main\ntry: main()\n"
    code += "finally: assert 'importlib.metadata' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
