"""Prints lines that are hard to read."""

import sys

LINES = {
    "filter": ["loss: 0.5 accuracy: 0.6", "loss=0.1", "loss: 0.4"],
    "lines": [
        "loss = 0.5, accuracy:0.1; val-loss=1 val/loss=2 a b=3 Loss=9 xloss=8",
        "loss=+0.25 accuracy=.5",
        "accuracy=90%",
        "val-loss=-1.5e-3",
        "epoch 3: loss=0.75|accuracy=0.8",
    ],
    "timestamps": [
        "2026-01-01T00:00:02Z loss=0.5",
        "2026-01-01T00:00:01Z loss=0.7",
        "2026-01-01T00:00:02Z loss=0.6",
        "loss=0.9",
    ],
    "words": ["loss=good", "loss=0x10", "loss=1_000", "loss=1,5", "loss=", "loss=0.5.5"],
}
for line in LINES[sys.argv[1]]:
    print(line, flush=True)
