"""What is written about images: their SBOM, and the commands that build them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_structure import ROOT, imported_modules

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
    return dict(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))


def reported(bom: dict[str, object]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in bom["metadata"]["properties"]}  # type: ignore[index]


def test_the_sbom_of_an_image_lists_debian_packages(tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('PRETTY_NAME="Debian GNU/Linux 12"\nID=debian\nVERSION_ID="12"\n')
    bom = completed(tmp_path)
    components = {component["name"]: component for component in bom["components"]}  # type: ignore[attr-defined]
    assert list(components) == ["numpy", "python", "libc6", "libssl3"]
    assert components["libc6"]["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12"
    assert components["libssl3"]["purl"].startswith("pkg:deb/debian/libssl3@1%3A3.0.17-1~deb12u2?")
    assert reported(bom) == {"podium:lists": "Python packages, Debian packages", "podium:image-id": "sha256:abc"}


def test_an_sbom_without_system_packages_says_so(tmp_path: Path) -> None:
    assert reported(completed(tmp_path))["podium:lists"] == "Python packages only"


def commands(*words: str) -> list[str]:
    """Return the commands of `make images`."""
    env = {"PATH": os.environ["PATH"]}  # without what a make around the tests was given
    done = subprocess.run(
        ["make", "-n", "images", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return [line for line in done.stdout.replace("\\\n", " ").splitlines() if line.startswith("docker build")]


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
    pinned = {line.partition("==")[0] for line in (ROOT / "requirements-steps.txt").read_text().splitlines()}
    imported = {
        module.partition(".")[0]
        for file in (ROOT / "src/podium/search").glob("*.py")
        for module in imported_modules(file)
    }
    loaded = imported - set(sys.stdlib_module_names) - {"podium"}
    assert {"optuna", "numpy", "scipy"} <= loaded
    assert not loaded - pinned, "podium-engine and sweep steps run sweeps in that image"


def test_the_serve_image_has_no_pipelines_and_no_torch() -> None:
    pinned = {line.partition("==")[0] for line in (ROOT / "requirements-serve.txt").read_text().splitlines()}
    assert {"starlette", "uvicorn", "onnxruntime", "minio", "pyarrow", "pillow", "cryptography", "orjson"} <= pinned
    assert not pinned & {"kfp", "kubernetes", "torch", "optuna", "plotly", "scipy"}
