"""The run a step belongs to, where it keeps its files, and the names of objects that it launches:
equal on retry, different in every run."""

import os
import re
import secrets
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from podium import __version__
from podium.errors import InvalidInput, PodiumError
from podium.manifests.labels import KFP_RUN, MANAGED_BY, RUN
from podium.system.settings import STORAGE

RUN_ID = "PODIUM_RUN_ID"
_CODE_VERSION = "PODIUM_CODE_VERSION"

ATTEMPT = "."
"""Stands before the number in the id of a later attempt of a run on this machine:
``20260102-030405-1a2b.2``."""

_NAME_LIMIT = 40
"""Katib refuses Experiments with longer names; trials and pods append to them."""


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """The run a process belongs to."""

    id: str
    """KFP's run id, or the one `podium run` made."""

    owner: Mapping[str, str] | None = None
    """Owner reference to the Workflow of the run, in its pods."""

    namespace: str | None = None
    step: str = ""
    """Name of the pod's task in the run; empty where the run is on this machine."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", self.id, re.ASCII):
            hint = f"at most 63 letters, digits, '.', '_' and '-'; it comes from {RUN_ID} or the pod's label {KFP_RUN}"
            raise InvalidInput(f"not a run id: {self.id!r}", hint)

    @property
    def resumed_as(self) -> str:
        """The id without the attempt, for ``podium run --resume``."""
        return self.id.partition(ATTEMPT)[0]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything the run launches."""
        return {MANAGED_BY: "podium", RUN: self.id}


def new_run_id() -> str:
    """Make an id for a run on this machine; ids sort by creation time, which they have in UTC: the
    newest runs are those that stay when old ones are deleted."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def object_name(slug: str, run: str, task: str) -> str:
    """Name an object a step launches.

    Args:
        slug: A readable prefix such as ``sweep``; shortened if needed.
        task: Identifies the step within its run and is equal on retry: the URI of one of its
            outputs.

    Returns:
        At most 40 characters, a valid Kubernetes name.
    """
    digest = sha256(f"{run}\n{_without_attempt(task, run)}".encode()).hexdigest()[:10]
    readable = (
        re.sub(r"[^a-z0-9]+", "-", slug.lower())
        .strip("-")[: _NAME_LIMIT - len(digest) - 1]
        .rstrip("-")
    )
    if not readable[:1].isalpha():
        raise InvalidInput(f"a name cannot begin as {slug!r} does", "begin with a letter")
    return f"{readable}-{digest}"


def _without_attempt(task: str, run: str) -> str:
    """Leave out the directory that `podium run` makes below a run's artifacts each time the run is
    resumed."""
    before, artifacts, rest = task.partition(f"/{run.partition(ATTEMPT)[0]}/artifacts/")
    return before + artifacts + rest.partition("/")[2] if artifacts and "://" not in task else task


def code_version(environ: Mapping[str, str] | None = None, root: Path | None = None) -> str:
    """Return the version of the running code.

    Args:
        environ: The environment; the process's own if None.
        root: Directory of the checkout; that of this file if None.

    Returns:
        PODIUM_CODE_VERSION if it is set (images do); in a checkout the version and the commit, as
        in ``0.1.0+36088f5c0ffe``, with ``.changed`` if files differ from it; else the version.
    """
    env, root = os.environ if environ is None else environ, root or Path(__file__).parents[3]
    if env.get(_CODE_VERSION):
        return env[_CODE_VERSION]
    if not (root / ".git").exists():
        return __version__
    command = [
        "git",
        "-C",
        str(root),
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=12",
        "--dirty=.changed",
    ]
    try:
        commit = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit}"


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
