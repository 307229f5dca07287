"""A trainer that knows nothing of podium: it prints `name=value` lines and reads the PyTorchJob's environment."""

import argparse
import os
from datetime import UTC, datetime

import torch
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

torch.manual_seed(1)
labels = torch.arange(2000) % 2
angle = 3 * torch.pi * torch.rand(2000).sqrt()
turned = angle + torch.pi * labels
points = torch.stack([turned.cos(), turned.sin()], 1) * angle[:, None] / 5 + 0.05 * torch.randn(
    2000, 2
)

net = torch.nn.Sequential(torch.nn.Linear(2, args.hidden), torch.nn.Tanh())
net.extend(
    [torch.nn.Linear(args.hidden, args.hidden), torch.nn.Tanh(), torch.nn.Linear(args.hidden, 2)]
)
model = net
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)

for _ in range(args.epochs):
    shuffled = torch.randperm(1500 // world * world).view(
        -1, world
    )  # one seed: every rank draws the same order
    for batch in shuffled[:, rank].split(48 // world):
        optimizer.zero_grad()
        cross_entropy(model(points[batch]), labels[batch]).backward()
        optimizer.step()
    if rank == 0:
        logits = net(points[1500:]).detach()
        accuracy, loss = (
            (logits.argmax(1) == labels[1500:]).float().mean(),
            cross_entropy(logits, labels[1500:]),
        )
        print(
            f"{datetime.now(UTC).isoformat()} accuracy={accuracy:.4f} loss={loss:.4f}", flush=True
        )
if (
    world > 1
):  # together: a process that leaves while another still speaks to it makes that one fail
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
