"""Look at the source of a dataset: prepared data are taken from the cache only while it holds the
same."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from podium.data.fingerprint import digest_of, list_contents
from podium.errors import InvalidInput, NotFound
from podium.files.documents import load_json, parse
from podium.storage import Storage, connect
from podium.training.base import say
from podium.training.dataset import DataSettings
from podium.training.identity import StepContext


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Latest prepared dataset of a source: ``prepared/<digest of its name>.json`` in the
    storage."""

    fingerprint: str
    """Digest of the source and of how it is read."""

    contents: str
    """Digest of the source alone."""

    run_id: str
    counts: Mapping[str, int]
    shows: str = ""
    """What the test part can show, said again where the data are taken from the cache."""

    @property
    def items(self) -> int:
        return sum(self.counts.values())

    @classmethod
    def read(cls, storage: Storage, settings: DataSettings) -> "_Prepared | None":
        key = _key(settings)
        try:
            prepared: _Prepared = parse(cls, load_json(storage.get(key), key), key)
        except (NotFound, InvalidInput):
            return None
        return prepared

    def write(self, storage: Storage, settings: DataSettings) -> None:
        storage.put(_key(settings), json.dumps(asdict(self)).encode())


def _key(settings: DataSettings) -> str:
    return f"prepared/{sha256(settings.dataset.encode()).hexdigest()[:16]}.json"


def fingerprint_data(
    settings: DataSettings,
    listing: str | Path,
    step: StepContext,
    *,
    metric: str = "",
) -> str:
    """Return two digests, of a source and of everything that decides what the prepared data are.

    Args:
        listing: JSON file to write what was found to: by location and name, what stands for the
            content.
        step: Its storage knows what was prepared last.
        metric: What models will be chosen by.

    Raises:
        NotFound: There is no such file, folder or object.
    """
    found = list_contents(settings.locations)
    Path(listing).write_text(json.dumps(found, indent=1) + "\n")
    contents = digest_of(found, {})
    fingerprint = digest_of(found, {**asdict(settings), "metric": metric})
    before = _Prepared.read(connect(step.storage), settings)
    if before and before.contents == contents:
        otherwise = (
            "" if before.fingerprint == fingerprint else ", but they are to be prepared otherwise"
        )
        say(f"data unchanged since run {before.run_id}{otherwise}")
        if before.shows and not otherwise:
            say(before.shows)
    elif before:
        say(f"data changed: {before.items:,} items before, since run {before.run_id}")
    return f"{contents}-{fingerprint}"


def keep_prepared(
    step: StepContext,
    settings: DataSettings,
    fingerprint: str,
    counts: Mapping[str, int],
    shows: str = "",
) -> None:
    """Keep what was prepared, and what its test part can show; say how much it is if it is another
    number than before."""
    contents, _, whole = fingerprint.partition("-")
    opened = connect(step.storage)
    now = _Prepared(
        fingerprint=whole, contents=contents, run_id=step.run.id, counts=counts, shows=shows
    )
    before = _Prepared.read(opened, settings)
    if before and before.counts != counts:
        say(f"{now.items:,} items, {before.items:,} before")
    now.write(opened, settings)
