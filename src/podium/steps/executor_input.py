"""What Kubeflow Pipelines tells the process of a step on its command line (``kfp.dsl.executor_main``, kfp 2.17)."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from podium.steps.target import storage_url

FLAG = "--executor_input"


def storage_of_step(words: Sequence[str] = sys.argv) -> str:
    """Return the storage that keeps a step's models and logs: its parameter ``storage``, else its artifacts' bucket.

    Args:
        words: Command line of the process.

    Raises:
        PodiumError: It names no storage, and no artifact of it is in a bucket.
    """
    given = json.loads(words[words.index(FLAG) + 1])
    values = given.get("inputs", {}).get("parameterValues", {})
    return storage_url(str(values.get("storage", "")), next(_artifacts(given), ""))


def _artifacts(given: dict[str, Any]) -> Iterator[str]:
    """Yield the URIs of the artifacts that a step reads and writes."""
    for side in ("inputs", "outputs"):
        for listed in given.get(side, {}).get("artifacts", {}).values():
            yield from (str(artifact["uri"]) for artifact in listed["artifacts"])
