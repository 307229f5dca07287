"""Default directories on this machine, read once from the environment, and podium's images."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from podium.errors import InvalidInput

STEPS_IMAGE = "podium-steps:0.1.0"
"""Runs the steps: kfp, kubernetes, minio, pyarrow and onnxruntime, no torch."""

TRAINER_IMAGE = "podium-trainer:0.1.0"
"""Runs the trainer: torch as well. In an Experiment it stands for the image that the pipeline was
compiled with."""

STORAGE = "PODIUM_STORAGE"
"""Variable with the URL of the storage that is used where none is given."""

CLUSTER = "PODIUM_CLUSTER"
"""Variable with the URL of the cluster that steps launch on where none is given."""

PUBLIC_KEY = "PODIUM_PUBLIC_KEY"
"""Variable with the path of the public key that versions must be signed with; empty asks for no
signature."""

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT", "MINIO_ENDPOINT")
"""Variables with the address of an S3 server, the strongest first."""

FAILURE = "PODIUM_STEP_FAILURE"
"""File in which a step of `podium run` leaves the error it ends with."""

SAFE_PATH = "PYTHONSAFEPATH"
"""Variable that keeps Python from importing modules of the working directory, as ``python -P``
does."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Directories that podium uses unless the user names others."""

    home: Path
    """Holds ``runs/`` and ``store/``; PODIUM_HOME, else ``podium-work`` under the working
    directory."""

    cache: Path
    """Downloads that can be repeated; PODIUM_CACHE, else ``$XDG_CACHE_HOME/podium``."""

    cache_limit: int = 10 * 10**9
    """Bytes of datasets that the cache holds; PODIUM_CACHE_GB, a number of gigabytes, else 10."""

    @property
    def runs(self) -> Path:
        """Holds a directory for each run."""
        return self.home / "runs"

    @property
    def cluster(self) -> Path:
        """Directory of the local cluster for single jobs and Experiments; each run has its own."""
        return self.home / "cluster"

    @property
    def storage(self) -> str:
        """URL of the default storage, a directory."""
        return f"file://{quote(os.fsencode(self.home / 'store'))}"

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read PODIUM_HOME, PODIUM_CACHE, PODIUM_CACHE_GB and XDG_CACHE_HOME.

        Raises:
            InvalidInput: PODIUM_CACHE_GB is not a number.
        """
        env = os.environ
        cache = env.get("PODIUM_CACHE") or str(
            Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podium"
        )
        gigabytes = env.get("PODIUM_CACHE_GB") or "10"
        if not gigabytes.replace(".", "", 1).isdecimal():
            raise InvalidInput(
                f"PODIUM_CACHE_GB is not a number of gigabytes: {gigabytes!r}", "PODIUM_CACHE_GB=10"
            )
        home = Path(env.get("PODIUM_HOME") or "podium-work").absolute()
        return cls(
            home=home, cache=Path(cache).absolute(), cache_limit=int(float(gigabytes) * 10**9)
        )
