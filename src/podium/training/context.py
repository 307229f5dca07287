"""What a step knows of the run it belongs to."""

import os
from collections.abc import Callable
from functools import cached_property
from typing import Self
from urllib.parse import urlsplit

from podium.errors import PodiumError
from podium.identity import RunIdentity
from podium.settings import STORAGE


class StepContext:
    """The run that a step belongs to, and the storage that keeps its models and logs; each is
    looked up once.

    Args:
        run: Returns the run.
        storage: Returns the URL of the storage.
    """

    def __init__(self, run: Callable[[], RunIdentity], storage: Callable[[], str]) -> None:
        self._run, self._storage = run, storage

    @classmethod
    def of(cls, run: RunIdentity, storage: str) -> Self:
        """Return the context of a run and a storage that are known."""
        return cls(lambda: run, lambda: storage.rstrip("/"))

    @cached_property
    def run(self) -> RunIdentity:
        """The run.

        Raises:
            PodiumError: This process belongs to none, or its pod cannot be read.
        """
        return self._run()

    @cached_property
    def storage(self) -> str:
        """URL of the storage.

        Raises:
            PodiumError: None is given and there is no bucket of the run, or it is out of reach.
        """
        return self._storage()

    def url(self, name: str) -> str:
        """Return where a job of the run leaves its model directory.

        Args:
            name: Name of the job; trials write below ``trials/<name of the trial>``.
        """
        return f"{self.storage}/runs/{self.run.id}/{name}"


def storage_url(given: str, artifact: str) -> str:
    """Return the storage that keeps models: given, else PODIUM_STORAGE's, else ``podium`` in the
    run's bucket.

    Args:
        given: The pipeline's parameter; may be empty.
        artifact: URI of any artifact of the run.

    Raises:
        PodiumError: None is given and the artifact is not in a bucket.
    """
    if given := given or os.environ.get(STORAGE, ""):
        return given.rstrip("/")
    parts = urlsplit(artifact)
    if parts.scheme in ("s3", "minio") and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}/podium"
    raise PodiumError(
        f"no storage is given and {artifact} is not in a bucket",
        "storage=s3://BUCKET or a directory",
    )
