"""Predict topics with a LoRA adapter: podium gives --model, --inputs and --output, podium.yaml the model below it."""

import argparse

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--base", "--model", "--inputs", "--output"):
        parser.add_argument(flag, required=True)
    args = parser.parse_args()
    tokens, mask = (
        np.load(f"{args.inputs}/{name}.npy").astype(np.int64) for name in ("tokens", "mask")
    )
    first = np.full((len(tokens), 1), AutoTokenizer.from_pretrained(args.model).cls_token_id)
    tokens, mask = (
        torch.tensor(np.hstack([first, tokens])),
        torch.tensor(np.hstack([np.ones_like(first), mask])),
    )
    model = PeftModel.from_pretrained(
        AutoModelForSequenceClassification.from_pretrained(args.base), args.model
    ).eval()
    with torch.no_grad():
        pairs = zip(tokens.split(256), mask.split(256), strict=True)
        logits = torch.cat(
            [model(input_ids=some, attention_mask=kept).logits for some, kept in pairs]
        )
    np.save(args.output, logits.double().softmax(-1).numpy())


if __name__ == "__main__":
    main()
