"""What is written about images: their SBOM, and the commands that build them."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_structure import ROOT, imported_modules

pytestmark = pytest.mark.whole

COMPLETE = ROOT / "scripts/sbom/complete"
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Shared libraries.

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: libssl3
Status: install ok installed
Architecture: amd64
Version: 1:3.0.17-1~deb12u2
"""


def completed(folder: Path) -> dict[str, object]:
    """Complete the list of one Python package for an image whose root is a folder."""
    python = folder / "python.json"
    listed = {"bomFormat": "CycloneDX", "components": [{"name": "numpy", "version": "2.3.0"}]}
    python.write_text(json.dumps(listed))
    words = [sys.executable, COMPLETE, python, "podium-steps", "0.1.0", "sha256:abc", folder]
    return dict(
        json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    )


def reported(bom: dict[str, object]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in bom["metadata"]["properties"]}  # type: ignore[index]


def test_the_sbom_of_an_image_lists_debian_packages(tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(
        'PRETTY_NAME="Debian GNU/Linux 12"\nID=debian\nVERSION_ID="12"\n'
    )
    bom = completed(tmp_path)
    components = {component["name"]: component for component in bom["components"]}  # type: ignore[attr-defined]
    assert list(components) == ["numpy", "python", "libc6", "libssl3"]
    assert (
        components["libc6"]["purl"]
        == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12"
    )
    assert components["libssl3"]["purl"].startswith("pkg:deb/debian/libssl3@1%3A3.0.17-1~deb12u2?")
    assert reported(bom) == {
        "podium:lists": "Python packages, Debian packages",
        "podium:image-id": "sha256:abc",
    }


def test_an_sbom_without_system_packages_says_so(tmp_path: Path) -> None:
    assert reported(completed(tmp_path))["podium:lists"] == "Python packages only"


def commands(*words: str) -> list[str]:
    """Return the commands of `make images`."""
    env = {"PATH": os.environ["PATH"]}  # without what a make around the tests was given
    done = subprocess.run(
        ["make", "-n", "images", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        line
        for line in done.stdout.replace("\\\n", " ").splitlines()
        if line.startswith("docker build")
    ]


def test_another_index_of_pytorch_is_for_the_trainer_alone() -> None:
    index = "--build-arg TORCH_INDEX=https://example.com/cpu"
    steps, serve, trainer, *sboms = commands("TORCH_INDEX=https://example.com/cpu")
    assert index in trainer
    assert not any(index in line for line in (steps, serve, *sboms))
    assert not any("TORCH_INDEX" in line for line in commands())


@pytest.mark.parametrize("target", ["steps", "serve", "trainer"])
def test_an_sbom_is_made_from_the_image_just_built(target: str) -> None:
    (built,) = (line for line in commands("TAG=7") if f"--target {target} " in line)
    assert f"--iidfile=build/images/podium-{target}.id" in built
    assert f"-t podium-{target}:7 " in built
    (read,) = (line for line in commands("TAG=7") if f"NAME=podium-{target} " in line)
    assert f"IMAGE=podium-{target}:7 " in read
    assert f"ID=$(cat build/images/podium-{target}.id)" in read


def test_builders_without_output_leave_the_sboms_out() -> None:
    assert len(commands("SBOM=no")) == 3


def test_the_steps_image_has_what_search_algorithms_load() -> None:
    pinned = {
        line.partition("==")[0]
        for line in (ROOT / "requirements/steps.txt").read_text().splitlines()
    }
    imported = {
        module.partition(".")[0]
        for file in (ROOT / "src/podium/search").glob("*.py")
        for module in imported_modules(file)
    }
    loaded = imported - set(sys.stdlib_module_names) - {"podium"}
    assert {"optuna", "numpy", "scipy"} <= loaded
    assert not loaded - pinned, "podium-engine and sweep steps run sweeps in that image"


def test_the_serve_image_has_no_pipelines_and_no_torch() -> None:
    pinned = {
        line.partition("==")[0]
        for line in (ROOT / "requirements/serve.txt").read_text().splitlines()
    }
    assert {
        "starlette",
        "uvicorn",
        "onnxruntime",
        "minio",
        "pyarrow",
        "pillow",
        "cryptography",
        "orjson",
    } <= pinned
    assert not pinned & {"kfp", "kubernetes", "torch", "optuna", "plotly", "scipy"}


TRAINS = """
import sys
sys.path[:] = [path for path in sys.path if "site-packages" not in path] + [sys.argv[1]]
import torch, torchvision
import torch.distributed as dist
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 26 * 26, 10))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 1, 28, 28)).sum().backward()
optimizer.step()
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([0.5]), 0.5)
print(torch.__file__, torch.cuda.is_available(), torch.version.cuda)
"""


def mib(folder: Path) -> float:
    return (
        sum(
            file.stat().st_size
            for file in folder.rglob("*")
            if file.is_file() and not file.is_symlink()
        )
        / 2**20
    )


def test_a_trainers_image_without_cuda_trains(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if (
        not torch.backends.cuda.is_built()
        or platform.machine() != "x86_64"
        or not shutil.which("nm")
    ):
        pytest.skip("needs a PyTorch with CUDA for x86_64, and binutils")
    installed = Path(torch.__file__).parents[1]
    try:
        for name in ("torch", "torchvision", "nvidia"):
            shutil.copytree(installed / name, tmp_path / name, copy_function=os.link)
    except OSError:
        pytest.skip("links to the installed packages need the same file system")
    for entry in installed.iterdir():
        if entry.name.startswith("torch-"):
            shutil.copytree(entry, tmp_path / entry.name)
        elif entry.name not in ("torch", "torchvision", "nvidia", "triton"):
            (tmp_path / entry.name).symlink_to(entry)
    subprocess.run([sys.executable, ROOT / "scripts/cpu-torch", tmp_path], check=True)
    words = [sys.executable, "-S", "-c", TRAINS, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(tmp_path / "torch/__init__.py"), "False", "None"], (
        done.stderr
    )
    assert mib(tmp_path / "torch") + mib(tmp_path / "nvidia") < 600, (
        "1120 and 3057 MiB before, beside triton's 996"
    )
    assert torch.version.cuda, "what is installed is as it was"


def test_pods_with_gpus_get_all_of_cuda() -> None:
    assert sum("--build-arg GPU=yes" in line for line in commands("GPU=yes")) == 1
    assert not any("GPU" in line for line in commands())
