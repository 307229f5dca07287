"""A softmax regression on pictures, saved as ONNX. It knows nothing of podium; RANK and WORLD_SIZE make it distributed."""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from onnx import TensorProto, helper, numpy_helper

parser = argparse.ArgumentParser()
parser.add_argument("--pictures", default=os.environ.get("PODIUM_DATA"))
parser.add_argument("--put-into", default=os.environ.get("PODIUM_OUTPUT"))
parser.add_argument("--rate", type=float, default=float(os.environ.get("RATE", "0.1")))
options = parser.parse_args()


def load(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    images = np.load(Path(options.pictures) / f"{part}-images.npy").reshape(-1, 784) / np.float32(
        255
    )
    labels = np.load(Path(options.pictures) / f"{part}-target.npy")
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def save(weight: torch.Tensor, bias: torch.Tensor, target: Path) -> None:
    constants = {
        "shape": np.array([-1, 784]),
        "weight": weight.detach().numpy() / np.float32(255),
        "bias": bias.detach().numpy(),
    }
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["floats", "shape"], ["rows"]),
        helper.make_node("Gemm", ["rows", "weight", "bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes, "softmax",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.onnx").write_bytes(model.SerializeToString())


rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    dist.init_process_group("gloo")
images, labels = (tensor[rank::ranks] for tensor in load("train"))
weight, bias = torch.zeros(784, 10, requires_grad=True), torch.zeros(10, requires_grad=True)
for _ in range(4):
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(images @ weight + bias, labels)
        for value, gradient in zip(
            (weight, bias), torch.autograd.grad(loss, (weight, bias)), strict=True
        ):
            if ranks > 1:
                dist.all_reduce(gradient)
            value.data -= options.rate * gradient / ranks
    if rank == 0:
        seen, truth = load("validation")
        hits = (seen @ weight + bias).argmax(1) == truth
        print(f"accuracy={hits.float().mean().item():.4f}", flush=True)
if rank == 0:
    save(weight, bias, Path(options.put_into))
    print(f"saved after training in {ranks} processes", flush=True)
if ranks > 1:
    dist.barrier()  # a process that leaves while another still speaks to it makes that one fail
    dist.destroy_process_group()
