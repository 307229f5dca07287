"""A stand-in for a training program: its curve depends on its arguments only."""

import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--units", type=int, default=8)
parser.add_argument("--optimizer", default="adam")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--curve", default="")  # values separated by commas, printed as they are
parser.add_argument("--metric", default="loss")
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--silent", action="store_true")
args = parser.parse_args()

print("argv:", sys.argv[1:], flush=True)
if args.curve:
    for value in args.curve.split(","):
        print(f"{args.metric}={value}", flush=True)
        time.sleep(args.sleep)
elif args.silent:
    print("nothing to report", flush=True)
else:
    best = (args.lr - 0.03) ** 2 + 0.001 * abs(args.units - 12)
    best += {"adam": 0.0, "sgd": 0.02}.get(args.optimizer, 0.05)
    for epoch in range(1, args.epochs + 1):
        loss = best + 1.0 / epoch
        rank = os.environ.get("RANK", "0")
        print(
            f"rank={rank} epoch={epoch} loss={loss:.6f} accuracy={1.0 / (1.0 + loss):.6f}",
            flush=True,
        )
        time.sleep(args.sleep)
sys.exit(args.exit)
