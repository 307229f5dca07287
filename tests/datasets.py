"""Small datasets for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from podium.data import artifact, artifact_files
from podium.data.blocks import Selection


def synthetic_part(seed: int, count: int) -> artifact.Split:
    """Draw images that a small net learns in an epoch or two: ten blocky patterns, shifted by a pixel, with noise."""
    patterns = np.random.default_rng(0).random((10, 7, 7)) > 0.6
    rng = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.uint8) % 10
    rng.shuffle(labels)
    clean = np.kron(patterns[labels], np.ones((1, 4, 4))) * 200
    moved = [np.roll(image, tuple(rng.integers(-1, 2, 2)), (0, 1)) for image in clean]
    noisy = np.stack(moved) + rng.normal(0, 30, clean.shape)
    return artifact.Split(inputs={"images": noisy.clip(0, 255).astype(np.uint8)}, target=labels)


def write_pictures(
    target: str | Path, parts: Mapping[str, artifact.Split | Selection], **facts: Any
) -> artifact.DatasetInfo:
    """Write pictures of ten classes as the artifact `tiny`."""
    defaults = {
        "name": "tiny", "kind": "classification", "classes": tuple("0123456789"), "target_name": "label",
        "inputs": {"images": artifact.InputDescription(meaning="image")}, "source": "drawn by the tests",
        "preprocessing": {"kind": "image", "input": "images", "recipe": "digit", "size": [28, 28], "channels": 1},
        "split": "given", "seed": 1,
    }  # fmt: skip
    return artifact_files.write(target, parts, **{**defaults, **facts})
