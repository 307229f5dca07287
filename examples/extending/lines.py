# src/podium/data/sources/lines.py
"""JSON lines: each has the inputs ``x``, a list of numbers, and the number to predict."""

import json
from pathlib import Path

import numpy as np

from podium.data.options import COMMON, DataOptions
from podium.data.schema import InputDescription
from podium.data.sources.fetching import fetch_file
from podium.data.sources.source import Raw, Source
from podium.data.split import Split
from podium.errors import InvalidInput


def read(location: str, options: DataOptions, folder: Path) -> Raw:
    """Read a file of JSON lines."""
    rows = [json.loads(line) for line in fetch_file(location, folder).read_text().splitlines()]
    for number, row in enumerate(rows, 1):
        if options.target not in row:
            raise InvalidInput(
                f"{location}, line {number} has no {options.target!r}",
                "name the target: target=NAME",
            )
    inputs, target = (
        np.array([row[name] for row in rows], np.float32) for name in ("x", options.target)
    )
    return Raw(
        items=Split(inputs={"x": inputs}, target=target),
        name=options.name or Path(location).stem,
        kind="regression",
        descriptions={"x": InputDescription()},
        target_name=options.target,
        source=location,
    )


LINES = Source(name="lines", options=("target", *COMMON), read=read, kind="regression")
