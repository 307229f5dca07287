"""Writes metrics as JSON lines into the file it is given."""

import json
import sys
from pathlib import Path

rows = [
    {"loss": "0.5", "accuracy": 0.6},
    {"loss": 0.4, "timestamp": 1767225600},
    {"loss": "0.3", "accuracy": "0.7", "timestamp": "2026-01-01T00:00:00Z"},
]
Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
Path(sys.argv[1]).write_text("".join(json.dumps(row) + "\n" for row in rows))
